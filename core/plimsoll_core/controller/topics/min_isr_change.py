"""Brings topics' min ISRs to their partitions, slice by slice.

Called when an object or a client states another one; by a new term for what its predecessor left
half done; and by ticks for what this term did: while the log is full a slice is dropped, and with
it the request that it belonged to, but not what was committed before it.  It lives in every
partition, under the partition epoch: a leader must know the new one before any of its proposals is
committed again, and what the controller shrinks reaches it afterwards, in the order of the log.  An
ISR that is large enough now needs no ELR; else both lists stay, because a partition without a
leader still waits for them.  Source: the protocol's rule for min ISR changes (Kafka forgets both
lists: KIP-966's ClearElr).
"""

from __future__ import annotations

from collections.abc import Iterable

from plimsoll_core.cluster.model import PartitionKey
from plimsoll_core.controller.kernel.decision import DecisionContext
from plimsoll_core.controller.kernel.partition_change import PartitionUpdate
from plimsoll_core.ids import TopicId


def spread_min_isr(turn: DecisionContext, topics: Iterable[TopicId]) -> tuple[TopicId, ...]:
    """At most one slice of partitions; the topics that are not done, topics that are gone are."""
    behind = [
        topic_id for topic_id in dict.fromkeys(topics) if topic_id in turn.image.min_isr_behind
    ]
    room = turn.settings.slice_partitions_max
    for topic_id in behind:
        if room <= 0:
            break
        room -= _spread(turn, topic_id, room)
    return tuple(topic_id for topic_id in behind if topic_id in turn.image.min_isr_behind)


def finish_min_isr(turn: DecisionContext) -> None:
    """Change a slice of the partitions that no request is left to change."""
    spread_min_isr(turn, sorted(turn.image.min_isr_behind))


def _spread(turn: DecisionContext, topic_id: TopicId, most: int) -> int:
    """Return the number of changed partitions."""
    image, topic = turn.image, turn.image.topics[topic_id]
    partitions = (image.partitions[PartitionKey(topic_id, n)] for n in range(topic.partitions))
    now = [p for p in partitions if p.min_isr != topic.min_isr][:most]
    wish = PartitionUpdate(min_isr=topic.min_isr)
    turn.change([(p, wish) for p in now], f"min ISR is {topic.min_isr} now")
    return len(now)
