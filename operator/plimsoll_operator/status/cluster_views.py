"""Views of a cluster that this operator leads, for its read-only HTTP API. Pure.

The views show the committed image, and sizes, lags and heartbeats that brokers have reported in
this term. They copy field by field, so that no other metadata, such as a credential, can leak. All
functions but `cluster_view` may run in another thread: the image is immutable, and only single
values are looked up in the reported state. `what_if` computes which partitions would be offline or
under min ISR if some brokers stopped now.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

import msgspec

from plimsoll_core.addresses import host_and_port
from plimsoll_core.cluster import move_owners
from plimsoll_core.cluster.model import Broker, ClusterImage, Partition, PartitionKey, Topic
from plimsoll_core.controller.kernel.volatile_state import VolatileState
from plimsoll_core.ids import BrokerId
from plimsoll_operator.api.cluster_ids import kafka_id
from plimsoll_operator.api.cluster_status import BrokersStatus, PartitionsStatus
from plimsoll_operator.api.conditions import timestamp
from plimsoll_operator.controller.controller_term import Controller
from plimsoll_operator.kube.seen_objects import Key
from plimsoll_operator.status.broker_status import state_of
from plimsoll_operator.status.cluster_counts import (
    brokers_status,
    is_healthy,
    margin,
    partitions_of,
    partitions_status,
)


class JsonView(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Base class of all views, which are encoded as JSON."""


class Affected(JsonView, frozen=True, kw_only=True):
    """A partition that would be offline or under min ISR if some brokers stopped. `left_in_isr`:
    the ISR members that would remain. `already`: True if the partition is offline or under min ISR
    now."""

    topic: str
    partition: int
    left_in_isr: tuple[int, ...]
    min_isr: int
    already: bool


class WhatIfView(JsonView, frozen=True, kw_only=True):
    """Effect of stopping `brokers` now: partitions that would be offline, and other partitions on
    which acks=all would stop (under min ISR). `leaders_that_move`: the number of partitions that
    would get another leader. `unknown` are ids of `brokers` that are not registered. The counts
    cover all partitions; the lists have at most `ROWS_MAX` entries."""

    brokers: tuple[int, ...]
    unknown: tuple[int, ...]
    leaders_that_move: int
    offline: int
    under_min_isr: int = msgspec.field(name="underMinISR")
    offline_partitions: list[Affected]
    under_partitions: list[Affected]


def what_if(image: ClusterImage, brokers: Sequence[int]) -> WhatIfView:
    """Return the effect of all these brokers stopping at once. Among the affected partitions are
    those on these brokers that are offline or under min ISR already."""
    gone = {BrokerId(b) for b in brokers}
    keys = {key for b in gone for key in image.hosted.get(b, ())}
    hurt = [image.partitions[key] for key in sorted(keys, key=lambda key: _order(image, key))]
    offline = [p for p in hurt if not _could_lead(image, p, gone)]
    dark = {p.key for p in offline}
    under = [p for p in hurt if p.key not in dark and len(_left(p, gone)) < p.effective_min_isr]
    return WhatIfView(
        brokers=tuple(sorted(gone)),
        unknown=tuple(sorted(b for b in gone if b not in image.brokers)),
        leaders_that_move=sum(p.leader in gone and p.key not in dark for p in hurt),
        offline=len(offline),
        under_min_isr=len(under),
        offline_partitions=[
            _affected(image, p, gone, already=p.leader is None) for p in islice(offline, ROWS_MAX)
        ],
        under_partitions=[
            _affected(image, p, gone, already=margin(p) < 0) for p in islice(under, ROWS_MAX)
        ],
    )


def _order(image: ClusterImage, key: PartitionKey) -> tuple[str, int]:
    return image.topics[key.topic_id].name, key.index


def _left(p: Partition, gone: set[BrokerId]) -> tuple[BrokerId, ...]:
    return tuple(b for b in p.isr if b not in gone)


def _could_lead(image: ClusterImage, p: Partition, gone: set[BrokerId]) -> bool:
    """Return True if the partition could have a leader without the brokers in `gone`: its present
    one, or an active member of the ISR, or of the ELR if no ISR member remains."""
    if p.leader is not None and p.leader not in gone:
        return True
    left = _left(p, gone) or tuple(b for b in p.elr if b not in gone)
    return any(b in image.brokers and image.brokers[b].active for b in left)


def _affected(image: ClusterImage, p: Partition, gone: set[BrokerId], *, already: bool) -> Affected:
    return Affected(
        topic=image.topics[p.topic_id].name,
        partition=p.index,
        left_in_isr=_left(p, gone),
        min_isr=p.effective_min_isr,
        already=already,
    )


ROWS_MAX = 100
"""Maximum number of partitions that a view lists; its counts cover all."""


class PartitionView(JsonView, frozen=True, kw_only=True):
    """A partition. `margin`: how many more members the ISR may lose before acks=all stops.

    `bytes`: size of the leader's log. `behind`: records by which each follower lags, by broker id
    (None for a follower with unknown lag). Both come from reports of the last minute and are None
    without one. `mover`: the object that moves the partition, None if it is not moving.
    """

    partition: int
    leader: int | None
    leader_epoch: int
    partition_epoch: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    elr: tuple[int, ...]
    last_known_elr: tuple[int, ...]
    adding: tuple[int, ...]
    removing: tuple[int, ...]
    min_isr: int
    margin: int
    bytes: int | None
    behind: dict[int, int | None] | None
    mover: str | None


class TopicView(JsonView, frozen=True, kw_only=True):
    """A topic with all its partitions. `declared_by`: its Topic object as namespace/name, None for
    a topic that a client created. `deletion_at`: when its data is deleted, None if that is not
    planned. `controller_epoch` and `offset`: those of the committed metadata that the view
    shows."""

    topic: str
    topic_id: str
    declared_by: str | None
    replication_factor: int
    min_isr: int
    configs: dict[str, str]
    deletion_at: str | None
    controller_epoch: int
    offset: int
    partitions: list[PartitionView]


class TopicRow(JsonView, frozen=True, kw_only=True):
    """A topic in one line, with the numbers of its partitions by health: `offline`, `under_min_isr`
    and `at_min_isr` have no partition in common; `not_full` counts all without a leader or a full
    ISR. `bytes` is the sum of the known sizes, None if none is known. `deletion_at`: when its data
    is deleted, None if that is not planned."""

    topic: str
    topic_id: str
    declared_by: str | None
    partitions: int
    replication_factor: int
    min_isr: int
    offline: int
    under_min_isr: int = msgspec.field(name="underMinISR")
    at_min_isr: int = msgspec.field(name="atMinISR")
    not_full: int
    bytes: int | None
    deletion_at: str | None


class BrokerView(JsonView, frozen=True, kw_only=True):
    """A broker. `leaving`: True also for a registered broker that is no member. `revision`: of its
    template; `release`: of its software. `indispensable`: number of partitions with this broker in
    an ISR that cannot spare a member.

    `heard_ms_ago` (milliseconds since the last heartbeat) and `metadata_behind` (records not yet
    applied) are None if no heartbeat has arrived in this term.
    """

    broker: int
    state: str
    leaving: bool
    restarting: bool
    rack: str | None
    revision: str
    release: str
    leaders: int
    replicas: int
    in_isr: int
    indispensable: int
    heard_ms_ago: int | None
    metadata_behind: int | None
    endpoints: dict[str, str]


class UnhealthyView(JsonView, frozen=True, kw_only=True):
    """A partition without a leader or a full ISR, with the cause as a sentence and the brokers that
    it waits for."""

    topic: str
    partition: int
    leader: int | None
    isr: tuple[int, ...]
    replicas: tuple[int, ...]
    margin: int
    cause: str
    waits_for: tuple[int, ...]


class ClusterOverview(JsonView, frozen=True, kw_only=True):
    """The cluster on one screen. `unhealthy` lists the least healthy of the `unhealthy_total`
    unhealthy partitions, worst first. `client_made`: number of the topics without a Topic object.
    `restarting`: the revision to which each broker restarts, by broker id. `moving`: the objects
    that move partitions now."""

    namespace: str
    cluster: str
    cluster_id: str
    active: bool
    operator: str
    controller_epoch: int
    offset: int
    metadata_version: int
    brokers: BrokersStatus
    partitions: PartitionsStatus
    topics: int
    client_made: int
    restarting: dict[int, str]
    moving: list[str]
    unhealthy_total: int
    unhealthy: list[UnhealthyView]


def topic_view(shown: Controller, topic: Topic) -> TopicView:
    image, soft = shown.image, shown.soft
    movers = move_owners.running(image)
    return TopicView(
        topic=topic.name,
        topic_id=kafka_id(topic.id),
        declared_by=_declared_by(topic),
        replication_factor=topic.replication_factor,
        min_isr=topic.min_isr,
        configs=dict(sorted(topic.configs.items())),
        deletion_at=_deletion_at(topic),
        controller_epoch=image.controller_epoch,
        offset=image.next_offset,
        partitions=[_partition(p, soft, movers) for p in partitions_of(image, topic)],
    )


def _partition(
    p: Partition, soft: VolatileState, movers: Sequence[move_owners.Mover]
) -> PartitionView:
    mover = move_owners.mover_of(movers, p.key) if p.moving else None
    behind = soft.behind.get(p.key)
    return PartitionView(
        partition=p.index,
        leader=p.leader,
        leader_epoch=p.leader_epoch,
        partition_epoch=p.partition_epoch,
        replicas=p.replicas,
        isr=p.isr,
        elr=p.elr,
        last_known_elr=p.last_known_elr,
        adding=p.adding,
        removing=p.removing,
        min_isr=p.effective_min_isr,
        margin=margin(p),
        bytes=soft.sizes.get(p.key),
        behind=None if behind is None else {int(b): records for b, records in behind.items()},
        mover=None if mover is None else str(mover),
    )


def topic_rows(shown: Controller) -> list[TopicRow]:
    return [_row(shown, topic) for _, topic in sorted(_by_name(shown.image))]


def _by_name(image: ClusterImage) -> Iterator[tuple[str, Topic]]:
    return ((topic.name, topic) for topic in image.topics.values())


def _row(shown: Controller, topic: Topic) -> TopicRow:
    partitions = partitions_of(shown.image, topic)
    counts = partitions_status(partitions)
    sizes = [shown.soft.sizes.get(p.key) for p in partitions]
    known = [size for size in sizes if size is not None]
    return TopicRow(
        topic=topic.name,
        topic_id=kafka_id(topic.id),
        declared_by=_declared_by(topic),
        partitions=counts.total,
        replication_factor=topic.replication_factor,
        min_isr=topic.min_isr,
        offline=counts.offline,
        under_min_isr=counts.under_min_isr,
        at_min_isr=counts.at_min_isr,
        not_full=sum(not is_healthy(p) for p in partitions),
        bytes=sum(known) if known else None,
        deletion_at=_deletion_at(topic),
    )


def _declared_by(topic: Topic) -> str | None:
    return None if topic.object is None else f"{topic.object.namespace}/{topic.object.name}"


def _deletion_at(topic: Topic) -> str | None:
    pending = topic.pending_deletion
    return None if pending is None else timestamp(pending.until_ms)


def broker_views(shown: Controller) -> list[BrokerView]:
    """Return a view of each member and of each other registered broker, in order of their ids."""
    image = shown.image
    leaders = Counter(p.leader for p in image.partitions.values())
    in_isr: Counter[BrokerId] = Counter()
    needed: Counter[BrokerId] = Counter()
    for p in image.partitions.values():
        in_isr.update(p.isr)
        if margin(p) <= 0:
            needed.update(p.isr)
    found = []
    for broker_id in sorted({*image.members, *image.brokers}):
        broker, contact = image.brokers.get(broker_id), shown.soft.contacts.get(broker_id)
        applied = None if contact is None else contact.applied_offset
        found.append(
            BrokerView(
                broker=broker_id,
                state=state_of(broker),
                leaving=broker_id in image.leaving or broker_id not in image.members,
                restarting=broker_id in image.grants,
                rack=None if broker is None else broker.rack,
                revision="" if broker is None else broker.revision,
                release="" if contact is None else contact.release,
                leaders=leaders[broker_id],
                replicas=len(image.hosted.get(broker_id, ())),
                in_isr=in_isr[broker_id],
                indispensable=needed[broker_id],
                heard_ms_ago=None if contact is None else max(0, shown.now_ms - contact.last_ms),
                metadata_behind=None if applied is None else max(0, image.next_offset - applied),
                endpoints=_endpoints(broker),
            )
        )
    return found


def _endpoints(broker: Broker | None) -> dict[str, str]:
    if broker is None:
        return {}
    return {one.name: host_and_port(one.host, one.port) for one in broker.endpoints}


@dataclass(frozen=True, slots=True, kw_only=True)
class HealthSurvey:
    """Counts of all partitions by health, the number of unhealthy ones, and the least healthy of
    them (at most `ROWS_MAX`), worst first: those without a leader, then by margin."""

    counts: PartitionsStatus
    unhealthy: int
    worst: list[Partition]


def survey(image: ClusterImage) -> HealthSurvey:
    unhealthy = [p for p in image.partitions.values() if not is_healthy(p)]
    worst = sorted(unhealthy, key=lambda p: (p.leader is not None, margin(p), p.key))
    return HealthSurvey(
        counts=partitions_status(image.partitions.values()),
        unhealthy=len(unhealthy),
        worst=worst[:ROWS_MAX],
    )


def cluster_view(
    shown: Controller, key: Key, operator: str, found: HealthSurvey
) -> ClusterOverview:
    """Return the overview of the LogCluster `key`. `operator` is the identity of the process that
    leads it; `found` is the survey of its image."""
    image, (namespace, name) = shown.image, key
    return ClusterOverview(
        namespace=namespace,
        cluster=name,
        cluster_id=kafka_id(image.cluster_id),
        active=shown.active,
        operator=operator,
        controller_epoch=image.controller_epoch,
        offset=image.next_offset,
        metadata_version=image.metadata_version,
        brokers=brokers_status(image),
        partitions=found.counts,
        topics=len(image.topics),
        client_made=sum(topic.object is None for topic in image.topics.values()),
        restarting={int(b): grant.revision for b, grant in sorted(image.grants.items())},
        moving=sorted({str(mover) for mover in move_owners.running(image)}),
        unhealthy_total=found.unhealthy,
        unhealthy=[_unhealthy(shown, p) for p in found.worst if p.topic_id in image.topics],
    )


def _unhealthy(shown: Controller, p: Partition) -> UnhealthyView:
    found = shown.outlook(p)
    return UnhealthyView(
        topic=shown.image.topics[p.topic_id].name,
        partition=p.index,
        leader=p.leader,
        isr=p.isr,
        replicas=p.replicas,
        margin=margin(p),
        cause=found.cause,
        waits_for=tuple(found.waits_for),
    )
