"""The goals about topics: another replication factor, off some brokers, exactly these replicas.

A Reassignment is planned as a whole, and moves only the partitions that it names. A replica that is
added or has to leave becomes a vacancy, and vacancies are filled so that brokers end up even.
Source: the protocol's rules for placement with racks and for moving with the fewest copies.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import assert_never

from plimsoll_core.errors import Reason, Refusal
from plimsoll_core.ids import BrokerId, TopicId
from plimsoll_core.phrasing import NAMED_AT_MOST, brokers_text, counted, replicas_text
from plimsoll_core.planner.draft import PlanDraft
from plimsoll_core.planner.outcome import Skipped
from plimsoll_core.planner.placement import EXPLICIT, Row, racks_of
from plimsoll_core.planner.replica_layout import spread, vacancy
from plimsoll_core.planner.request import (
    ChangeTopics,
    MoveOff,
    SetReplicas,
    SetReplicationFactor,
    TopicChange,
)
from plimsoll_core.planner.survey import Rows, Survey, replica_counts, skipped


@dataclass(slots=True, kw_only=True)
class _Draft:
    """The replicas of all partitions (`rows`) after the changes applied so far, and the number of
    replicas on each broker (`load`). `touched` are the changed partitions, `chosen` those for which
    the request names the replicas, `barred` the brokers that a partition may not go to."""

    rows: Rows
    load: dict[BrokerId, int]
    touched: set[int] = field(default_factory=set)
    chosen: set[int] = field(default_factory=set)
    barred: dict[int, frozenset[BrokerId]] = field(default_factory=dict)
    skipped: list[Skipped] = field(default_factory=list)


def change(survey: Survey, goal: ChangeTopics) -> PlanDraft | Refusal:
    draft = _Draft(rows=survey.rows(), load=dict(replica_counts(survey.home)))
    members: dict[TopicId, dict[int, int]] = {topic.id: {} for topic in survey.topics}
    for p, partition in enumerate(survey.partitions):
        members[partition.topic_id][partition.index] = p
    for one in goal.changes:
        named = _named(survey, members, one)
        refusal = named if isinstance(named, Refusal) else _apply(survey, draft, one, named)
        if refusal:
            return refusal
    nothing_else = [False] * len(draft.rows)
    layout = survey.layout(
        draft.rows, receivers=survey.usable, free=nothing_else, barred=draft.barred
    )
    bound = spread(layout)
    leadership = survey.leadership(draft.rows, free=nothing_else)
    for p in sorted(draft.touched - draft.chosen):
        leadership.succeed(p, survey.home[p])
    return PlanDraft(
        rows=draft.rows,
        lower_bound=bound + _copies(survey, draft),
        skipped=tuple(draft.skipped),
    )


def _copies(survey: Survey, draft: _Draft) -> int:
    """Return the number of new replicas in partitions for which the request names the replicas."""
    return sum(len(set(draft.rows[p]) - set(survey.home[p])) for p in draft.chosen)


def _named(
    survey: Survey, members: dict[TopicId, dict[int, int]], one: TopicChange
) -> list[int] | Refusal:
    """Return the positions of the partitions that a change names, or a Refusal if one does not
    exist."""
    of_topic = members.get(one.topic_id)
    if of_topic is None:
        return Refusal(
            reason=Reason.UnknownTopicId,
            message=(
                f"There is no topic with id {one.topic_id}; it may have been deleted. Leave that "
                "topic out of the request."
            ),
        )
    indexes = sorted(of_topic) if one.partitions is None else one.partitions
    if unknown := [index for index in indexes if index not in of_topic]:
        topic = next(topic.name for topic in survey.topics if topic.id == one.topic_id)
        return Refusal(
            reason=Reason.UnknownTopicOrPartition,
            message=(
                f"The request names partition {unknown[0]} of topic {topic}, which has only "
                f"{counted(len(of_topic), 'partition')}."
            ),
        )
    return [of_topic[index] for index in indexes]


def _apply(survey: Survey, draft: _Draft, one: TopicChange, named: Sequence[int]) -> Refusal | None:
    for p in named:
        if p in draft.touched:
            return Refusal(
                reason=Reason.InvalidRequest,
                message=f"Partition {survey.name(p)} is named twice; name it once.",
            )
        draft.touched.add(p)
    topic = next(topic for topic in survey.topics if topic.id == one.topic_id)
    if topic.strategy == EXPLICIT and not isinstance(one, SetReplicas):
        draft.skipped.append(skipped(topic))
        return None
    for p in named:
        match one:
            case SetReplicationFactor():
                refusal = _set_factor(survey, draft, p, one.replication_factor)
            case MoveOff():
                refusal = _move_off(survey, draft, p, one)
            case SetReplicas():
                refusal = _set_replicas(survey, draft, p, one.replicas)
            case _:
                assert_never(one)
        if refusal:
            return refusal
    return None


# --- replication factor ------------------------------------------------------------------------


def _set_factor(survey: Survey, draft: _Draft, p: int, factor: int) -> Refusal | None:
    row = draft.rows[p]
    if factor < 1:
        return Refusal(
            reason=Reason.InvalidReplicationFactor,
            message=f"The replication factor must be at least 1, not {factor}.",
        )
    available = len({*survey.usable, *row})
    if factor > max(available, len(row)):
        return Refusal(
            reason=Reason.NotEnoughBrokers,
            message=(
                f"Replication factor {factor} for {survey.name(p)} needs {factor} brokers, but only"
                f" {available} can hold its replicas now. Add brokers, or ask for {available}."
            ),
        )
    while len(row) > factor:
        loser = _least_missed(survey, draft, p, factor)
        draft.load[loser] -= 1
        row.remove(loser)
    row.extend(vacancy(slot) for slot in range(len(row), factor))
    return None


def _least_missed(survey: Survey, draft: _Draft, p: int, factor: int) -> BrokerId:
    """Return the replica to remove from a partition of which `factor` are to stay: one without
    which the racks suffice; among these an out-of-sync replica, then one on an unusable broker,
    then a follower, then the one on the fullest broker."""
    row, racks, isr = draft.rows[p], survey.racks or {}, survey.partitions[p].isr
    need = min(factor, racks_of(survey.home[p], racks))

    def missed(broker: BrokerId) -> tuple[bool, bool, bool, bool, int, BrokerId]:
        others = [other for other in row if other != broker]
        return (
            racks_of(others, racks) < need,
            broker in isr,
            broker in survey.usable,
            broker == row[0],
            -draft.load[broker],
            broker,
        )

    return min(row, key=missed)


# --- other brokers -----------------------------------------------------------------------------


def _move_off(survey: Survey, draft: _Draft, p: int, one: MoveOff) -> Refusal | None:
    row, off = draft.rows[p], frozenset(one.brokers)
    left = {broker for broker in (*survey.usable, *row) if broker not in off}
    if off.isdisjoint(row):
        return None
    if len(row) > len(left):
        return Refusal(
            reason=Reason.NotEnoughBrokers,
            message=(
                f"{survey.name(p)} has {counted(len(row), 'replica')}, but without"
                f" {brokers_text(off, NAMED_AT_MOST)} only {counted(len(left), 'broker')} can hold"
                " them. Add brokers, or lower its replication factor."
            ),
        )
    draft.barred[p] = off
    row[:] = [vacancy(n) if broker in off else broker for n, broker in enumerate(row)]
    return None


def _set_replicas(survey: Survey, draft: _Draft, p: int, replicas: Row) -> Refusal | None:
    if problem := _problem(survey, replicas):
        return Refusal(
            reason=Reason.InvalidReplicaAssignment,
            message=(
                f"The replicas on brokers {replicas_text(replicas)}, which the request states "
                f"for partition {survey.name(p)}, {problem}."
            ),
        )
    draft.rows[p][:] = replicas
    draft.chosen.add(p)
    return None


def _problem(survey: Survey, replicas: Row) -> str | None:
    unknown = [broker for broker in sorted(replicas) if broker not in survey.known]
    if not replicas:
        return "name no broker"
    if len(set(replicas)) != len(replicas):
        return "name a broker twice"
    if unknown:
        return f"name {brokers_text(unknown, NAMED_AT_MOST)}, not registered in this cluster"
    if survey.rack_policy != "Required" or survey.racks is None or len(replicas) < 2:
        return None
    if len({survey.racks[broker] for broker in survey.usable}) < 2:
        return None
    if racks_of(replicas, survey.racks) < 2:
        return "would be in one rack though racks are required; choose brokers of two racks"
    return None
