"""Places a new topic's replicas on brokers, and adds the records of its creation.

Called for topics of clients and for declared ones.  `topic_names` and `topic_limits` check the
rest.  Source: the protocol's rules for topics; KIP-4.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from uuid import UUID

from plimsoll_core.cluster.model import PartitionKey, Topic, TopicObject
from plimsoll_core.cluster.records import PartitionsCreated, TopicCreated
from plimsoll_core.controller.brokers.broker_removal import all_stay
from plimsoll_core.controller.kernel.decision import DecisionContext
from plimsoll_core.controller.kernel.held_back_brokers import is_held_back
from plimsoll_core.controller.kernel.rack_rules import brokers_have_racks, check_spread, located
from plimsoll_core.controller.topics.topic_limits import check_partitions
from plimsoll_core.errors import Reason, Refusal
from plimsoll_core.ids import BrokerId
from plimsoll_core.messages.requests import (
    TopicAnswer,
)
from plimsoll_core.planner import placement
from plimsoll_core.planner.placement import Assignment


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicPlan:
    """Everything that the records of a new topic state; `rows` are the replicas of its
    partitions."""

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
    refusal = check_partitions(turn, partitions)
    if refusal:
        return refusal
    if replication_factor < 1:
        return Refusal(
            reason=Reason.InvalidReplicationFactor,
            message=f"The replication factor must be at least 1, not {replication_factor}.",
        )

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
    return all(active & set(row) for row in rows) and check_spread(turn, rows) is None


def create(turn: DecisionContext, plan: TopicPlan, cause: str) -> Topic:
    """Add the records of a new topic and return it. Its id is derived from the offset of its first
    record and a secret key."""
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
    turn.add(
        PartitionsCreated(
            cause=cause,
            topic_id=topic_id,
            first=topic.partitions,
            replicas=rows,
            isr=tuple(_first_isr(row, active, held, topic.min_isr) for row in rows),
        )
    )


def _first_isr(
    row: Sequence[BrokerId],
    active: AbstractSet[BrokerId],
    held: AbstractSet[BrokerId],
    min_isr: int,
) -> tuple[BrokerId, ...]:
    """Return the first ISR of a new partition: its active replicas. Brokers that are held back
    after failures are left out if the others are enough for min ISR."""
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
            f"Topic {topic.name} is declared by the object Topic {holder.namespace}/{holder.name};"
            f" {instead}."
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
