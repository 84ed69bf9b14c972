"""Brings a topic's min ISR to its partitions, slice by slice.

Called when an object states another one, and by a new term for what its predecessor left half done.
It lives in every partition, under the partition epoch: a leader must know the new one before any
of its proposals is committed again, and what the controller shrinks reaches it afterwards, in the
order of the log.  An ISR that is large enough now needs no ELR; else both lists stay, because a
partition without a leader still waits for them.
Source: the protocol's rule for min ISR changes (Kafka forgets both lists: KIP-966's ClearElr).
"""

from __future__ import annotations

from plimsoll_core.cluster.model import PartitionKey
from plimsoll_core.controller.kernel.decision import DecisionContext
from plimsoll_core.controller.kernel.partition_change import PartitionUpdate
from plimsoll_core.ids import TopicId


def spread_min_isr(turn: DecisionContext, topic_id: TopicId) -> bool:
    """False: more partitions are left to do."""
    image, topic = turn.image, turn.image.topics[topic_id]
    partitions = (image.partitions[PartitionKey(topic_id, n)] for n in range(topic.partitions))
    behind = [p for p in partitions if p.min_isr != topic.min_isr]
    now = behind[: turn.settings.slice_partitions_max]
    wish = PartitionUpdate(min_isr=topic.min_isr)
    turn.change([(p, wish) for p in now], f"min ISR is {topic.min_isr} now")
    return len(now) == len(behind)
