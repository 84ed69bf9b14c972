"""Places a new topic's replicas, limits their number, and adds the records of its creation.

Called wherever partitions are created: for clients (CreateTopics, CreatePartitions, topics created
on demand) and for Topic objects.  Each broker reports in its heartbeats for how many partitions it
has memory and descriptors (`BrokerFigures.partitions_max`); a broker that has not reported it is
not checked.  Existing partitions stay, and are replicated, whatever the limit.

A topic belongs to the principal that created it (`Topic.owner`, committed), or, on a listener
without authentication, to the client's network.  All principals share the brokers' partitions by
`FairPool`'s rule.  Super users have no share, only the brokers' limit; nor have objects: their
number is limited by rights on Kubernetes and by `topics.limits.partitionsPerNamespace`. Source: the
protocol's rules for topics; KIP-4.
"""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from uuid import UUID

from plimsoll_core.addresses import network_of
from plimsoll_core.cluster.image_indexes import plain_name
from plimsoll_core.cluster.model import PartitionKey, Topic, TopicObject
from plimsoll_core.cluster.record_versions import OWNERS_SINCE
from plimsoll_core.cluster.records import PartitionsCreated, TopicCreated
from plimsoll_core.cluster.topic_names import check_form
from plimsoll_core.controller.brokers.broker_removal import all_stay
from plimsoll_core.controller.kernel.decision import DecisionContext, is_held_back
from plimsoll_core.controller.kernel.rack_rules import brokers_have_racks, check_spread, located
from plimsoll_core.controller.kernel.replica_figures import most_replicas, replicas_max
from plimsoll_core.errors import Reason, Refusal
from plimsoll_core.ids import BrokerId
from plimsoll_core.messages.requests import (
    DeclareTopic,
    TopicAnswer,
)
from plimsoll_core.messages.security import OnBehalf
from plimsoll_core.planner import placement
from plimsoll_core.planner.placement import Assignment
from plimsoll_core.published_limits import PARTITIONS_OF_CLUSTER
from plimsoll_core.quotas.fair_pool import FairPool
from plimsoll_core.security.acl import ANONYMOUS

FLOOR = 64
"""The number of replicas that every principal may have while the brokers have room."""


def check_name(turn: DecisionContext, name: str) -> Refusal | None:
    """Refuse an illegal name, and one that differs from an existing topic's only in '.' and '_',
    which metrics do not distinguish."""
    if refusal := check_form(name):
        return refusal
    plain = plain_name(name)
    for other in () if plain is None else turn.image.spellings.get(plain, ()):
        if other != name:
            return Refusal(
                reason=Reason.InvalidTopicName,
                message=(
                    f"The name {name} differs from topic {other} only in '.' and '_', which "
                    "metrics do not distinguish. Choose another name."
                ),
            )
    return None


def check_partitions(turn: DecisionContext, partitions: int) -> Refusal | None:
    most = turn.settings.partitions_per_topic_max
    if 1 <= partitions <= most:
        return None
    return Refusal(
        reason=Reason.InvalidPartitions,
        message=f"A topic can have 1 to {most} partitions in this cluster, not {partitions}.",
    )


def check_factor(replication_factor: int) -> Refusal | None:
    if replication_factor >= 1:
        return None
    return Refusal(
        reason=Reason.InvalidReplicationFactor,
        message=f"The replication factor must be at least 1, not {replication_factor}.",
    )


def too_many_in_namespace(
    turn: DecisionContext, request: DeclareTopic, added: int
) -> Refusal | None:
    most, namespace = turn.settings.partitions_per_namespace_max, request.object.namespace
    if most is None:
        return None
    holders = ((t, t.object or t.detached_from) for t in turn.image.topics.values())
    there = sum(t.partitions for t, holder in holders if holder and holder.namespace == namespace)
    if there + added <= most:
        return None
    return Refusal(
        reason=Reason.InvalidPartitions,
        message=(
            f"The Topics of namespace {namespace} have {there} partitions and may have {most};"
            f" {added} more are too many. Use fewer, or raise the LogCluster's"
            " topics.limits.partitionsPerNamespace."
        ),
    )


def too_many_in_cluster(turn: DecisionContext, added: int) -> Refusal | None:
    """Return a refusal if the cluster has no room for `added` partitions more, or None. Internal
    topics count, and are not refused."""
    most, there = turn.settings.partitions_per_cluster_max, len(turn.image.partitions)
    if not added or there + added <= most:
        return None
    limit = PARTITIONS_OF_CLUSTER
    return Refusal(
        reason=Reason.PolicyViolation,
        message=(
            f"The cluster has {there} partitions and may have {most}, so {added} more are not "
            f"created: {limit.cost}. {limit.remedy}"
        ),
    )


def beyond_brokers(turn: DecisionContext, rows: Assignment) -> Refusal | None:
    """Return a refusal if this placement gives a broker more replicas than it reported to have
    memory and file descriptors for, or None."""
    for broker_id, added in sorted(Counter(one for row in rows for one in row).items()):
        if refusal := _beyond_broker(turn, broker_id, added):
            return refusal
    return None


def beyond_all_brokers(turn: DecisionContext, replicas: int) -> Refusal | None:
    """Return a refusal if no broker has room for an even part of so many replicas, so that no
    placement of them passes `beyond_brokers`, or None. It costs no placement."""
    image, each = turn.image, replicas // max(len(turn.image.brokers), 1)
    for broker_id in sorted(image.brokers):
        refusal = _beyond_broker(turn, broker_id, each)
        if refusal is None:
            return None
    return refusal if image.brokers else None


def _beyond_broker(turn: DecisionContext, broker_id: BrokerId, added: int) -> Refusal | None:
    most = replicas_max(turn.soft, broker_id)
    there = len(turn.image.hosted.get(broker_id, ()))
    if most is None or there + added <= most:
        return None
    return Refusal(
        reason=Reason.PolicyViolation,
        message=(
            f"Broker {broker_id} has {there} replicas, and memory and file descriptors for "
            f"at most {most}; {added} more are too many. Use fewer partitions, delete "
            "topics, add brokers, or give the brokers more memory."
        ),
    )


class PartitionRoom:
    """The limits on the replicas that one client request may create: those of the brokers, and the
    share of the principal to which they are charged. `behalf` is the client that sent the request
    to its broker, None if the broker named none; then nothing is charged."""

    def __init__(self, turn: DecisionContext, behalf: OnBehalf | None) -> None:
        self._turn = turn
        self.owner = _owner(turn, behalf)
        self._pool: FairPool | None = None

    def refusal(self, rows: Assignment) -> Refusal | None:
        """Return a refusal if partitions with these replicas would exceed a limit, or None if they
        would not."""
        refusal = beyond_brokers(self._turn, rows) or too_many_in_cluster(self._turn, len(rows))
        return refusal or self._beyond_share(sum(map(len, rows)))

    def refusal_of_number(self, partitions: int, factor: int) -> Refusal | None:
        """Return a refusal if so many partitions with `factor` replicas would exceed a limit
        wherever they are placed, or None. It is asked before they are placed, which takes long."""
        turn, replicas = self._turn, partitions * factor
        refusal = beyond_all_brokers(turn, replicas) or too_many_in_cluster(turn, partitions)
        return refusal or self._beyond_share(replicas)

    def _beyond_share(self, replicas: int) -> Refusal | None:
        pool = self._pool = self._pool or _pool(self._turn)
        if not self.owner or not pool.capacity or pool.admits(self.owner, replicas):
            return None
        return Refusal(
            reason=Reason.PolicyViolation,
            message=(
                f"{self.owner} cannot create {replicas} more replicas, because it has already "
                f"created {pool.held(self.owner)} and would exceed its share: all clients "
                f"together may create {pool.capacity}, of which {pool.free} are free. Delete "
                "topics, or ask the owner of the cluster for a Topic object."
            ),
        )

    def made(self, rows: Assignment) -> None:
        """Charge the replicas of partitions that this request creates to its owner. `refusal` has
        been called for them."""
        if self._pool is not None:
            self._pool.take(self.owner, sum(map(len, rows)))


def _owner(turn: DecisionContext, behalf: OnBehalf | None) -> str:
    """Return the principal to which the request's replicas are charged, the network of an anonymous
    client, or an empty string if there is none: without a client, for a super user, or before
    topics have owners."""
    if behalf is None or turn.image.metadata_version < OWNERS_SINCE:
        return ""
    if behalf.principal == ANONYMOUS:
        return network_of(behalf.host)
    return "" if turn.image.security.is_super_user(behalf.principal) else behalf.principal


def _pool(turn: DecisionContext) -> FairPool:
    """Return the pool of replicas that principals share: the sum of the brokers' limits, less what
    topics have. A broker that has not reported its limit counts as an average one. The capacity is
    0 if none has reported."""
    told = most_replicas(turn.image, turn.soft).values()
    pool = FairPool(sum(told) * len(turn.image.brokers) // len(told) if told else 0)
    pool.floor = min(FLOOR, pool.capacity)
    for topic in turn.image.topics.values():
        pool.take(topic.owner, topic.partitions * topic.replication_factor)
    return pool


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicPlan:
    """The contents of the records of a new topic. `rows`: the replicas of its partitions, the
    preferred leader first. `object`: the Topic object that declares it, or None. `owner`: the
    principal or network to which it is charged, empty if there is none."""

    name: str
    rows: Assignment
    min_isr: int
    configs: Mapping[str, str]
    strategy: str = placement.ROUND_ROBIN
    object: TopicObject | None = None
    deletion_policy: str = "Delete"
    owner: str = ""


def check_rows(turn: DecisionContext, rows: Assignment) -> Refusal | None:
    refusal = placement.check_assignment(rows, set(turn.image.brokers), turn.active())
    named = (broker_id for row in rows for broker_id in row)
    refusal = refusal or all_stay(turn.image, named) or check_spread(turn, rows)
    if refusal is None:
        return None
    return refusal.renamed(Reason.InvalidReplicationFactor, Reason.InvalidReplicaAssignment)


def place_new(
    turn: DecisionContext,
    name: str,
    partitions: int,
    replication_factor: int,
    strategy: str = placement.ROUND_ROBIN,
) -> Assignment | Refusal:
    """Return the replicas of all partitions of a new topic. Return a Refusal if a number is out of
    range or too few brokers can hold replicas."""
    refusal = check_partitions(turn, partitions) or check_factor(replication_factor)
    if refusal:
        return refusal

    def place(pool: list[placement.Located]) -> Assignment | Refusal:
        start = placement.start_of(pool, partitions, turn.image.preferred)
        return placement.place(pool, partitions, replication_factor, strategy, start=start)

    return among_pools(turn, replication_factor, place)


def place_more(
    turn: DecisionContext, topic: Topic, extra: int, replication_factor: int, strategy: str
) -> Assignment | Refusal:
    """Return the replicas of `extra` partitions that are added to a topic, or a Refusal. They
    continue the placement formula from the first replica of partition 0. A topic without partitions
    is placed as a new one: the controller stopped between the records of its creation."""
    if not topic.partitions:
        return place_new(turn, topic.name, extra, replication_factor, strategy)
    leader = turn.image.partitions[PartitionKey(topic.id, 0)].replicas[0]

    def place(pool: list[placement.Located]) -> Assignment | Refusal:
        return placement.place(
            pool,
            extra,
            replication_factor,
            strategy,
            first=topic.partitions,
            start=placement.start_at(pool, leader),
        )

    return among_pools(turn, replication_factor, place)


def among_pools(
    turn: DecisionContext, replication_factor: int, place: placement.Placer
) -> Assignment | Refusal:
    """Return the placement that `place` makes on the usable brokers, or a Refusal. `place` is
    called with active and starting brokers first, then with active ones only, and with fenced ones
    too only if there are too few others.

    A starting broker may come first in a row, since it will lead soon. But each row needs a broker
    that is active now: otherwise the partition would have no leader, and might never get one.
    """
    active = turn.receivers()
    takes = turn.image.takes_replicas
    usable = {b.id: b for b in turn.image.brokers.values() if not b.shutting_down and takes(b.id)}
    starting = {b.id for b in usable.values() if b.fenced and turn.has_session(b)}
    if replication_factor > len(usable):
        return placement.not_enough(replication_factor, len(usable))
    if not active:
        return placement.not_enough(replication_factor, 0)
    if refusal := brokers_have_racks(turn, usable.values()):
        return refusal
    for ids in (active | starting, active):
        if len(ids) >= replication_factor:
            rows = place(located(turn, ids))
            if isinstance(rows, Refusal) or _good(turn, rows, active):
                return rows
    rows = place(located(turn, set(usable)))
    if isinstance(rows, Refusal):
        return rows
    rows = placement.led_by_active(rows, active)
    return check_spread(turn, rows) or rows


def _good(turn: DecisionContext, rows: Assignment, active: AbstractSet[BrokerId]) -> bool:
    return all(active & set(row) for row in set(rows)) and check_spread(turn, rows) is None


def create(turn: DecisionContext, plan: TopicPlan, cause: str) -> Topic:
    """Add the records of a new topic with its partitions, and return the topic. Its id is derived
    from the offset of its first record, its name and a secret key."""
    place = f"{turn.soft.topic_id_key.hex()}{turn.image.next_offset}/{plan.name}"
    topic_id = uuid.uuid5(turn.image.cluster_id, place)
    turn.add(
        TopicCreated(
            cause=cause,
            topic_id=topic_id,
            name=plan.name,
            replication_factor=len(plan.rows[0]),
            min_isr=plan.min_isr,
            configs=dict(sorted(plan.configs.items())),
            strategy=plan.strategy,
            object=plan.object,
            deletion_policy=plan.deletion_policy,
            owner=plan.owner,
        )
    )
    add_partitions(turn, topic_id, plan.rows, cause)
    return turn.image.topics[topic_id]


def add_partitions(turn: DecisionContext, topic_id: UUID, rows: Assignment, cause: str) -> None:
    active = turn.active()
    held = frozenset(b for b in active if is_held_back(turn, b))
    topic = turn.image.topics[topic_id]
    # Few rows differ: a formula repeats them.
    isrs = {row: _first_isr(row, active, held, topic.min_isr) for row in dict.fromkeys(rows)}
    turn.add(
        PartitionsCreated(
            cause=cause,
            topic_id=topic_id,
            first=topic.partitions,
            replicas=rows,
            isr=tuple(isrs[row] for row in rows),
        )
    )


def _first_isr(
    row: Sequence[BrokerId],
    active: AbstractSet[BrokerId],
    held: AbstractSet[BrokerId],
    min_isr: int,
) -> tuple[BrokerId, ...]:
    """Return the first ISR of a new partition: its active replicas, in the order of `row`. Brokers
    that are held back after failures (`held`) are left out if the others are enough for min ISR."""
    present = tuple(broker for broker in row if broker in active)
    steady = tuple(broker for broker in present if broker not in held)
    return steady if len(steady) >= min(min_isr, len(row)) else present


def declared_elsewhere(topic: Topic, instead: str) -> Refusal | None:
    """Return a refusal if an object declares the topic, or None. `instead` says in the message what
    to do."""
    holder = topic.object
    if holder is None:
        return None
    return Refusal(
        reason=Reason.PolicyViolation,
        message=(
            f"Clients cannot change or delete topic {topic.name}, because the object Topic"
            f" {holder.namespace}/{holder.name} declares it; {instead}."
        ),
    )


def created(turn: DecisionContext, topic: Topic) -> TopicAnswer:
    return TopicAnswer(
        name=topic.name,
        topic_id=topic.id,
        partitions=topic.partitions,
        replication_factor=topic.replication_factor,
        min_isr=topic.min_isr,
    )


def refused(name: str, refusal: Refusal, topic_id: UUID | None = None) -> TopicAnswer:
    return TopicAnswer(
        name=name,
        topic_id=topic_id,
        code=refusal.reason.code,
        reason=refusal.reason.name,
        message=refusal.message,
    )
