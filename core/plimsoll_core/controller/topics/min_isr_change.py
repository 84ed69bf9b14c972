"""Applies a topic's changed min ISR to its partitions, slice by slice.

Called when an object or a client states another min ISR, by a new term for an unfinished change,
and by ticks: if the log is full, a slice is dropped together with its request, but not the slices
committed before it. Each partition stores its min ISR under its partition epoch: a leader must know
the new value before any of its proposals is committed again, and it receives the controller's
shrinks later, in log order. An ISR that is large enough by the new value needs no ELR; otherwise
both ELR lists stay, because a leaderless partition still waits for their members. Source: the
protocol's rule for min ISR changes (Kafka clears both lists: KIP-966's ClearElr)."""

from __future__ import annotations

from collections.abc import Iterable

from plimsoll_core.cluster.model import PartitionKey
from plimsoll_core.controller.kernel.decision import DecisionContext
from plimsoll_core.controller.kernel.partition_change import PartitionUpdate
from plimsoll_core.ids import TopicId


def spread_min_isr(turn: DecisionContext, topics: Iterable[TopicId]) -> tuple[TopicId, ...]:
    """Set the min ISR of these topics in at most one slice of their partitions. Return the topics
    that have partitions with another min ISR left. A deleted topic has none."""
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
    """Set the min ISR in a slice of partitions of all topics in which it is unfinished. Ticks call
    this."""
    spread_min_isr(turn, sorted(turn.image.min_isr_behind))


def _spread(turn: DecisionContext, topic_id: TopicId, most: int) -> int:
    """Set the topic's min ISR in at most `most` of its partitions. Return the number of changed
    ones."""
    image, topic = turn.image, turn.image.topics[topic_id]
    partitions = (image.partitions[PartitionKey(topic_id, n)] for n in range(topic.partitions))
    now = [p for p in partitions if p.min_isr != topic.min_isr][:most]
    wish = PartitionUpdate(min_isr=topic.min_isr)
    turn.change([(p, wish) for p in now], f"min ISR is {topic.min_isr} now")
    return len(now)
