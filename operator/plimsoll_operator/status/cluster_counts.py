"""Counts of brokers, partitions and topics, for a LogCluster's status and for metrics. Pure.

The counts come from the committed image and are never read back. The image is immutable, so its
counts stay valid. The newest image is counted in slices, so that a hundred thousand partitions do
not block the event loop. `availability_margin` of the controller decides whether an action may
lower a partition's margin.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice

import msgspec

from plimsoll_core.cluster.listener_peers import endpoint, open_to_all
from plimsoll_core.cluster.listeners import Listener
from plimsoll_core.cluster.model import ClusterImage, Partition, PartitionKey, Topic
from plimsoll_core.cluster.topic_names import INTERNAL_TOPICS
from plimsoll_core.ids import BrokerId
from plimsoll_operator.api import labels
from plimsoll_operator.api.broker_configs import settings_of
from plimsoll_operator.api.cluster_ids import kafka_id
from plimsoll_operator.api.cluster_status import (
    BootstrapServers,
    BrokersStatus,
    Exposure,
    GroupsStatus,
    InternalTopicsStatus,
    ListenerAddress,
    ListenerStatus,
    LogClusterStatus,
    MetadataLogStatus,
    PartitionsStatus,
    PendingTopic,
    PoolStatus,
    TopicsStatus,
)
from plimsoll_operator.api.conditions import timestamp
from plimsoll_operator.api.logcluster import LogCluster


def partitions_of(image: ClusterImage, topic: Topic) -> list[Partition]:
    return [image.partitions[PartitionKey(topic.id, index)] for index in range(topic.partitions)]


def margin(partition: Partition) -> int:
    """Return how many more ISR members the partition may lose before writes with acks=all stop.
    Negative if they have stopped."""
    return len(partition.isr) - partition.effective_min_isr


def is_healthy(partition: Partition) -> bool:
    """Return True if the partition has a leader and every replica is in sync."""
    return partition.leader is not None and len(partition.isr) == len(partition.replicas)


def have(partitions: int) -> str:
    return "1 partition has" if partitions == 1 else f"{partitions} partitions have"


SLICE = 2_500
"""Number of partitions counted in one turn of the event loop, which takes a few milliseconds."""
MARGINS = ("-1", "0", "1", "2")
"""Margins that are shown, as values of a metric label. A partition with another margin is counted
under the nearest of them."""


@dataclass(slots=True, kw_only=True)
class PartitionCounts:
    """Numbers of partitions by health and margin, and of leaderships by broker. `add` counts one
    partition. Those without a leader are in `offline`, not in `under_min_isr`, `at_min_isr` or
    `not_led_by_preferred`; they are also in `by_margin` (by `MARGINS`), and may be in
    `under_replicated` and `moving`."""

    total: int = 0
    offline: int = 0
    under_replicated: int = 0
    under_min_isr: int = 0
    at_min_isr: int = 0
    reduced_to_min_isr: int = 0
    """Number of partitions exactly at min ISR with a replica that is out of sync and is not just
    being added."""
    moving: int = 0
    not_led_by_preferred: int = 0
    by_margin: Counter[str] = field(default_factory=Counter)
    leaders: Counter[int] = field(default_factory=Counter)
    """Number of partitions that each broker leads."""

    def add(self, partition: Partition) -> None:
        left, size = margin(partition), len(partition.isr)
        self.total += 1
        self.by_margin[MARGINS[min(max(left, -1), 2) + 1]] += 1
        self.under_replicated += size < len(partition.replicas)
        if partition.adding or partition.removing:
            self.moving += 1
        if partition.leader is None:
            self.offline += 1
            return
        self.leaders[partition.leader] += 1
        self.not_led_by_preferred += partition.leader != partition.replicas[0]
        if left < 0:
            self.under_min_isr += 1
        elif left == 0:
            self.at_min_isr += 1
            self.reduced_to_min_isr += not set(partition.settled) <= set(partition.isr)


def count(partitions: Iterable[Partition]) -> PartitionCounts:
    """Return the counts of these partitions. Other tasks of the event loop cannot run meanwhile."""
    counts = PartitionCounts()
    for partition in partitions:
        counts.add(partition)
    return counts


class CountedImage:
    """Keeps the counts of one cluster's newest image. `prepare` counts in slices; `read` returns
    the counts."""

    def __init__(self) -> None:
        self._of: object | None = None
        self._counts = PartitionCounts()
        self._prepared = False

    def read(self, image: ClusterImage) -> PartitionCounts:
        """Return the counts of this image, and store them for the next call. The first call after
        `prepare` returns the counts that `prepare` made, even if the image has changed since."""
        if self._of is not image.partitions and not self._prepared:
            self._keep(image, count(image.partitions.values()))
        self._prepared = False
        return self._counts

    async def prepare(self, image: ClusterImage) -> None:
        """Count the partitions of this image for the next `read`, unless they are counted already.
        Other tasks of the event loop run after each slice of `SLICE` partitions."""
        self._prepared = True
        if self._of is image.partitions:
            return
        counts = PartitionCounts()
        left: Iterator[Partition] = iter(image.partitions.values())
        while part := list(islice(left, SLICE)):
            for partition in part:
                counts.add(partition)
            await asyncio.sleep(0)
        self._keep(image, counts)

    def _keep(self, image: ClusterImage, counts: PartitionCounts) -> None:
        self._of, self._counts = image.partitions, counts


PENDING_MAX = 20


def cluster_status(image: ClusterImage, cluster: LogCluster) -> LogClusterStatus:
    """Return the status of a LogCluster as it follows from the committed image, without
    conditions."""
    namespace, name = cluster.key
    topics = list(image.topics.values())
    return LogClusterStatus(
        # Only once it is led: until then the owner may still say which log it means.
        cluster_id=kafka_id(image.cluster_id) if image.controller_epoch else None,
        bootstrap_servers=BootstrapServers(
            internal=labels.bootstrap_address(name, namespace, _first_port(image))
        ),
        listeners=_listeners(image, cluster) or None,
        brokers=_brokers(image, cluster),
        selector=f"{labels.CLUSTER}={name},{labels.COMPONENT}=broker",
        topics=_topics(topics),
        partitions=partitions_status(image.partitions.values()),
        metadata_log=MetadataLogStatus(
            offset=image.next_offset, controller_epoch=image.controller_epoch
        ),
        exposure=Exposure(
            replication_factor_one=sum(t.replication_factor == 1 for t in topics),
            replication_equals_min_isr=sum(
                t.replication_factor > 1 and t.replication_factor <= t.min_isr for t in topics
            ),
        ),
        internal_topics=_internal_topics(image, cluster),
    )


def _first_port(image: ClusterImage) -> int:
    """Return the port of the listener that clients need no login or TLS for, else of the first
    listener. Without listeners, return Kafka's default port."""
    if not image.listeners:
        return labels.KAFKA_PORT
    return (open_to_all(image.listeners) or image.listeners[0]).port


def _listeners(image: ClusterImage, cluster: LogCluster) -> tuple[ListenerStatus, ...]:
    namespace, name = cluster.key
    active = [broker for broker in image.brokers.values() if broker.active]
    return tuple(
        ListenerStatus(
            name=one.name,
            bootstrap_servers=(one.bootstrap_servers or "")
            if one.external
            else labels.bootstrap_address(name, namespace, one.port),
            tls=one.tls,
            brokers=sum(endpoint(broker, one.name) is not None for broker in active),
            addresses=_addresses(one),
        )
        for one in image.listeners
    )


def _addresses(listener: Listener) -> tuple[ListenerAddress, ...] | None:
    if listener.advertised is None:
        return None
    return tuple(
        ListenerAddress(id=one.broker_id, host=one.host, port=one.port)
        for one in listener.advertised
    )


def groups_status(told: Iterable[int | None]) -> GroupsStatus | None:
    """Return the total number of consumer groups, or None if no broker has reported a number.
    `told`: the number that each broker reports, None if it reports none."""
    counts = [count for count in told if count is not None]
    return GroupsStatus(total=sum(counts)) if counts else None


def _internal_topics(image: ClusterImage, cluster: LogCluster) -> InternalTopicsStatus | None:
    """Return the number of internal topics, and the names of those with a partition that has fewer
    replicas in sync than it has replicas, or than the stated replication factor and the active
    brokers allow. Return None if no internal topic exists yet."""
    topics = [
        image.topics[image.topic_ids[n]] for n in sorted(INTERNAL_TOPICS) if n in image.topic_ids
    ]
    if not topics:
        return None
    stated = settings_of(cluster).offsets_topic.replication_factor
    could_be = min(stated, sum(broker.active for broker in image.brokers.values()))
    lacking = (t.name for t in topics if _lacks_replicas(image, t, could_be))
    return InternalTopicsStatus(total=len(topics), under_replicated=tuple(sorted(lacking)))


def _lacks_replicas(image: ClusterImage, topic: Topic, could_be: int) -> bool:
    keys = (PartitionKey(topic.id, index) for index in range(topic.partitions))
    partitions = (image.partitions[key] for key in keys)
    return any(len(p.isr) < max(len(p.replicas), could_be) for p in partitions)


def _brokers(image: ClusterImage, cluster: LogCluster) -> BrokersStatus:
    """Return the broker counts of the status. `desired` is the number that the LogCluster asks for;
    `ready` counts only active members that are not leaving, at most `desired`; `active` counts
    all."""
    found = brokers_status(image)
    ready = min(_ready(image, image.members), cluster.count)
    return msgspec.structs.replace(found, desired=cluster.count, ready=ready)


def pools_status(
    image: ClusterImage, cluster: LogCluster, sizes: Mapping[str, str]
) -> tuple[PoolStatus, ...] | None:
    """Return the brokers of each pool of the spec, or None without pools. `sizes`: the smallest
    volume of each pool, by name."""
    if not cluster.spec.pools:
        return None
    return tuple(
        PoolStatus(
            name=pool.name,
            brokers=pool.brokers,
            ready=_ready(image, [b for b in image.members if b in pool.ids]),
            ids=tuple(b for b in image.members if b in pool.ids),
            volume_size=sizes.get(pool.name),
        )
        for pool in cluster.spec.pools
    )


def _ready(image: ClusterImage, members: Iterable[BrokerId]) -> int:
    """Return how many of the members are active and stay."""
    staying = [b for b in members if b in image.brokers and b not in image.leaving]
    return sum(image.brokers[b].active for b in staying)


def brokers_status(image: ClusterImage) -> BrokersStatus:
    """Return the numbers of members by state. A member that never registered is neither ready nor
    fenced; one that is stopping counts as fenced."""
    registered = [image.brokers[b] for b in image.members if b in image.brokers]
    active = sum(b.active for b in registered)
    return BrokersStatus(
        desired=len(image.members),
        ready=active,
        active=active,
        fenced=sum(not b.active for b in registered),
        ids=image.members,
        leaving=image.leaving or None,
    )


def partitions_status(partitions: Iterable[Partition]) -> PartitionsStatus:
    """Return the numbers of these partitions by health, each in one class at most (one without a
    leader only in `offline`), and the lowest margin of all (0 without partitions)."""
    total = offline = under = at_min = 0
    lowest: int | None = None
    for partition in partitions:
        total += 1
        left = margin(partition)
        lowest = left if lowest is None else min(lowest, left)
        if partition.leader is None:
            offline += 1
        elif left < 0:
            under += 1
        elif left == 0:
            at_min += 1
    return PartitionsStatus(
        total=total,
        offline=offline,
        under_min_isr=under,
        at_min_isr=at_min,
        lowest_margin=lowest or 0,
    )


def _topics(topics: list[Topic]) -> TopicsStatus:
    pending = sorted(
        (t.pending_deletion.until_ms, t.name) for t in topics if t.pending_deletion is not None
    )
    return TopicsStatus(
        declared=sum(t.object is not None for t in topics),
        client_created=sum(t.object is None and t.name not in INTERNAL_TOPICS for t in topics),
        pending_deletions=len(pending) or None,
        pending_deletion=tuple(
            PendingTopic(name=name, until=timestamp(until_ms))
            for until_ms, name in pending[:PENDING_MAX]
        ),
    )
