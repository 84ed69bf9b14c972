"""Selects the leaders just lost for which a Metadata answer waits until they are fenced. Pure.

When a leader's process dies, its clients ask another broker for the leader within a millisecond:
before the controller has committed the election. An answer that names the dead leader again sends
them back to it, and librdkafka then asks the next time after up to a second. A follower learns of
the death when the clients do, by its own connection to the leader. If its Metadata answer would
name that leader, the follower delays the answer until the leader is fenced, at most `AWAITED_MS`.
The fence is the last record of a leader's loss. Called by the Metadata handler. Source:
docs/protocol.md §5.6.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from uuid import UUID

from plimsoll_core.cluster.model import ClusterImage
from plimsoll_core.ids import BrokerId

AWAITED_MS = 500
"""The longest wait after the loss of a leader, in milliseconds. A proven death is committed within
a few milliseconds, or tens of them if etcd is busy. A leader that only this follower cannot reach
is not fenced; after this time answers name it again."""


def awaited(image: ClusterImage, lost_for_ms: Mapping[BrokerId, int]) -> frozenset[BrokerId]:
    """Return the leaders lost for less than `AWAITED_MS` that are registered and not fenced: a
    Metadata answer should wait until these are fenced. `lost_for_ms` maps each leader from which
    this broker fetches, and which it cannot reach, to the milliseconds since the connection was
    lost."""
    recent = (broker_id for broker_id, ms in lost_for_ms.items() if ms < AWAITED_MS)
    return not_fenced(image, recent)


def not_fenced(image: ClusterImage, lost: Iterable[BrokerId]) -> frozenset[BrokerId]:
    """Return those of the brokers in `lost` that are registered and not fenced."""
    brokers = image.brokers
    return frozenset(b for b in lost if b in brokers and not brokers[b].fenced)


def led_topics(image: ClusterImage, lost: Iterable[BrokerId]) -> frozenset[UUID]:
    """Return the ids of the topics with a partition that is led by one of the brokers in `lost`."""
    partitions = image.partitions
    return frozenset(
        key.topic_id
        for broker_id in sorted(lost)
        for key in image.hosted.get(broker_id, ())
        if partitions[key].leader == broker_id
    )


def hosted_count(image: ClusterImage, lost: Iterable[BrokerId]) -> int:
    """Return the number of replicas on the brokers in `lost`: a partition with replicas on two of
    them counts twice. `led_topics` examines as many partitions."""
    return sum(len(image.hosted.get(broker_id, ())) for broker_id in lost)
