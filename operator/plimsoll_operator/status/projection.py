"""Renders a committed image as `status`.  Pure.

Called by the status writer; the result goes out and is never read back.  Leaders are left out of
Topic status on purpose: they change with every failure, and status must stay small.  Only
partitions in less than full health are shown one by one, the worst of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import msgspec

from plimsoll_core.cluster.model import ClusterImage, Partition, PartitionKey, Topic
from plimsoll_core.controller.partitions.unhealthy_partitions import Outlook
from plimsoll_operator.api import labels
from plimsoll_operator.api import topic as api
from plimsoll_operator.api.cluster_ids import kafka_id
from plimsoll_operator.api.cluster_status import (
    BootstrapServers,
    BrokersStatus,
    Exposure,
    LogClusterStatus,
    MetadataLogStatus,
    PartitionsStatus,
    PendingTopic,
    TopicsStatus,
)
from plimsoll_operator.api.conditions import condition, timestamp
from plimsoll_operator.api.logcluster import LogCluster
from plimsoll_operator.api.meta import Condition

ASSIGNMENT_PARTITIONS_MAX = 200
UNHEALTHY_MAX = 20
PENDING_MAX = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Sight:
    """What the image does not hold: what an unhealthy partition waits for, and since when it is."""

    outlook: Callable[[Partition], Outlook]
    since_ms: Callable[[PartitionKey], int]


def partitions_of(image: ClusterImage, topic: Topic) -> list[Partition]:
    """A topic's partitions, in order."""
    return [image.partitions[PartitionKey(topic.id, index)] for index in range(topic.partitions)]


def margin(partition: Partition) -> int:
    """How many more members may leave before writes with acks=all stop."""
    return len(partition.isr) - partition.effective_min_isr


# --- topics --------------------------------------------------------------------------------------


def topic_status(
    image: ClusterImage, topic: Topic, sight: Sight, refusal: Condition | None = None
) -> api.TopicStatus:
    """The status of the object that declares `topic`; `refusal`: of its latest wish."""
    partitions = partitions_of(image, topic)
    unhealthy = sorted((p for p in partitions if not is_healthy(p)), key=_badness)
    return api.TopicStatus(
        topic_name=topic.name,
        topic_id=kafka_id(topic.id),
        partitions=topic.partitions,
        replication_factor=topic.replication_factor,
        min_in_sync_replicas=topic.min_isr,
        health=_health(partitions),
        assignment=_assignment(partitions),
        unhealthy=tuple(_unhealthy(p, sight) for p in unhealthy[:UNHEALTHY_MAX]) or None,
        conditions=(refusal or _serving(partitions, sight),),
    )


def is_healthy(partition: Partition) -> bool:
    """Led, with every replica in sync."""
    return partition.leader is not None and len(partition.isr) == len(partition.replicas)


def _badness(partition: Partition) -> tuple[bool, int, int]:
    """Sorts the worst first."""
    return partition.leader is not None, margin(partition), partition.index


def _health(partitions: list[Partition]) -> api.Health:
    return api.Health(
        full_isr=sum(len(p.isr) == len(p.replicas) for p in partitions),
        at_min_isr=sum(p.leader is not None and margin(p) == 0 for p in partitions),
        under_min_isr=sum(p.leader is not None and margin(p) < 0 for p in partitions),
        offline=sum(p.leader is None for p in partitions),
    )


def _assignment(partitions: list[Partition]) -> tuple[str, ...] | None:
    if len(partitions) > ASSIGNMENT_PARTITIONS_MAX:
        return None
    return tuple(",".join(str(b) for b in p.replicas) for p in partitions)


def _unhealthy(partition: Partition, sight: Sight) -> api.UnhealthyPartition:
    found = sight.outlook(partition)
    loss = None
    if found.loss is not None:
        loss = api.EstimatedLoss(leader=found.loss.leader, records=found.loss.records)
    return api.UnhealthyPartition(
        partition=partition.index,
        leader=-1 if partition.leader is None else partition.leader,
        leader_epoch=partition.leader_epoch,
        isr=partition.isr,
        elr=partition.elr or None,
        last_known_elr=partition.last_known_elr or None,
        waits_for=found.waits_for,
        estimated_loss=loss,
        cause=found.cause,
        since=timestamp(sight.since_ms(partition.key)),
    )


def _serving(partitions: list[Partition], sight: Sight) -> Condition:
    """Ready, by the state of the partitions alone."""
    offline = [p for p in partitions if p.leader is None]
    under = sum(p.leader is not None and margin(p) < 0 for p in partitions)
    if offline:
        worst = min(offline, key=_badness)
        return condition(
            "Ready",
            False,
            "PartitionsOffline",
            f"{len(offline)} of {len(partitions)} partitions have no leader; unhealthy[].waitsFor "
            f"names the brokers that would bring them back. Partition {worst.index}: "
            f"{sight.outlook(worst).why}",
        )
    if under:
        return condition(
            "Ready",
            False,
            "UnderMinISR",
            f"{under} of {len(partitions)} partitions are below min ISR: they can be read, but "
            "writes with acks=all are refused until replicas catch up.",
        )
    return condition(
        "Ready",
        True,
        "Serving",
        f"{have(len(partitions))} a leader and at least min ISR.",
    )


def have(partitions: int) -> str:
    return "1 partition has" if partitions == 1 else f"{partitions} partitions have"


# --- clusters ------------------------------------------------------------------------------------


def cluster_status(image: ClusterImage, cluster: LogCluster) -> LogClusterStatus:
    """The status of a LogCluster, without conditions."""
    namespace, name = cluster.key
    topics = list(image.topics.values())
    return LogClusterStatus(
        # Only once it is led: until then the owner may still say which log it means.
        cluster_id=kafka_id(image.cluster_id) if image.controller_epoch else None,
        bootstrap_servers=BootstrapServers(internal=labels.bootstrap_address(name, namespace)),
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
    )


def _brokers(image: ClusterImage, cluster: LogCluster) -> BrokersStatus:
    """Of what is asked for; those that leave are extra."""
    found = brokers_status(image)
    staying = [b for b in image.members if b in image.brokers and b not in image.leaving]
    ready = sum(image.brokers[b].active for b in staying)
    return msgspec.structs.replace(found, desired=cluster.count, ready=min(ready, cluster.count))


def brokers_status(image: ClusterImage) -> BrokersStatus:
    """Members by state; a member that never registered is neither ready nor fenced, one that
    stops counts as fenced."""
    registered = [image.brokers[b] for b in image.members if b in image.brokers]
    return BrokersStatus(
        desired=len(image.members),
        ready=sum(b.active for b in registered),
        fenced=sum(not b.active for b in registered),
        ids=image.members,
        leaving=image.leaving or None,
    )


def partitions_status(partitions: Iterable[Partition]) -> PartitionsStatus:
    """All partitions of a cluster by health."""
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
        client_created=sum(t.object is None for t in topics),
        pending_deletions=len(pending) or None,
        pending_deletion=tuple(
            PendingTopic(name=name, until=timestamp(until_ms))
            for until_ms, name in pending[:PENDING_MAX]
        ),
    )
