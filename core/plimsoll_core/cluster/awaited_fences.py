"""Selects the fences that an answer with leaders waits for: those of just lost leaders.  Pure.

A leader's process dies, and its clients ask another broker for the leader, within the millisecond:
before the controller has committed the election.  An answer that names the dead leader again sends
them back to it, and librdkafka then asks the next time after up to a second.  A follower learns of
the death when the clients do, by its own connection to the leader; so it waits for the fence a
moment before it answers, where it would name that leader.  The fence is the last record of a
leader's loss.  Called by the Metadata handler.
Source: docs/protocol.md §5.6.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from uuid import UUID

from plimsoll_core.cluster.model import ClusterImage
from plimsoll_core.ids import BrokerId

AWAITED_MS = 500
"""Since the loss.  A proven death is committed in a few ms, in tens of them where etcd is busy; a
leader that is cut off from this follower alone is not fenced, and named again after that."""


def awaited(image: ClusterImage, lost_for_ms: Mapping[BrokerId, int]) -> frozenset[BrokerId]:
    """`lost_for_ms`: leaders that are followed here and not reached, and for how long."""
    recent = (broker_id for broker_id, ms in lost_for_ms.items() if ms < AWAITED_MS)
    return not_fenced(image, recent)


def not_fenced(image: ClusterImage, lost: Iterable[BrokerId]) -> frozenset[BrokerId]:
    """Return the leaders that may still be fenced."""
    brokers = image.brokers
    return frozenset(b for b in lost if b in brokers and not brokers[b].fenced)


def led_topics(image: ClusterImage, lost: Iterable[BrokerId]) -> frozenset[UUID]:
    """Those that an answer names one of them for, as a leader."""
    partitions = image.partitions
    return frozenset(
        key.topic_id
        for broker_id in sorted(lost)
        for key in image.hosted.get(broker_id, ())
        if partitions[key].leader == broker_id
    )


def hosted_count(image: ClusterImage, lost: Iterable[BrokerId]) -> int:
    """Partitions that `led_topics` goes through."""
    return sum(len(image.hosted.get(broker_id, ())) for broker_id in lost)
