"""Makes a plan from the replicas before and after: moves, loads, relaxed rules, and the risk of the
plan.

Called at the end of every goal, so that all plans are described alike. `what_if` forecasts the
partitions that would fall below min ISR if a broker died now; it is called for a plan that awaits
approval and while one runs. A forecast is shown to users; no plan is refused for it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import msgspec

from plimsoll_core.cluster.model import PartitionKey
from plimsoll_core.ids import BrokerId
from plimsoll_core.phrasing import counted, first_few
from plimsoll_core.planner.outcome import BrokerLoad, Level, Move, Plan, Relaxation, Skipped
from plimsoll_core.planner.placement import racks_of
from plimsoll_core.planner.request import PlanPartition, effective_min_isr
from plimsoll_core.planner.survey import (
    Rows,
    Survey,
    leader_counts,
    replica_counts,
    shares,
)

EXAMPLES_MAX = 3


class WhatIf(msgspec.Struct, frozen=True, kw_only=True):
    """The number of partitions that would be below min ISR if this broker died now, and at most
    `EXAMPLES_MAX` of them."""

    broker: BrokerId
    under_min_isr: int
    examples: tuple[PartitionKey, ...] = ()


def what_if(partitions: Iterable[PlanPartition], brokers: Iterable[BrokerId]) -> tuple[WhatIf, ...]:
    """Return a forecast for each of the brokers, by ascending id: the partitions with the broker in
    their ISR that would be below min ISR if it died. Partitions that are below min ISR already
    count too."""
    hit: dict[BrokerId, list[PartitionKey]] = {broker: [] for broker in sorted(set(brokers))}
    for partition in partitions:
        if partition.isr_margin > 0:
            continue
        for member in partition.isr:
            if member in hit:
                hit[member].append(partition.key)
    return tuple(
        WhatIf(
            broker=broker,
            under_min_isr=len(keys),
            examples=tuple(sorted(keys)[:EXAMPLES_MAX]),
        )
        for broker, keys in hit.items()
    )


def lowest_isr_margin(moves: Iterable[Move], partitions: Iterable[PlanPartition]) -> int | None:
    """Return the least value of ISR size minus min ISR over the moved partitions: now, and when all
    target replicas are in sync. In between the ISR only grows. Return None if nothing moves."""
    now = {partition.key: partition for partition in partitions}
    margins = []
    for move in moves:
        partition = now[move.partition]
        size = len(move.after)
        margins.append(min(partition.isr_margin, size - effective_min_isr(partition.min_isr, size)))
    return min(margins, default=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanDraft:
    """The result of a goal, from which `conclude` makes the plan.

    `rows`: the replicas of each partition after the plan, in the order of `Survey.partitions`, the
    preferred leader first. `lower_bound`: the number of replicas that every plan for the goal has
    to move if racks are ignored. `urgent`: the positions of the partitions to move first. `evened`:
    the brokers that should differ by at most one replica and one leader; empty if the goal does not
    promise that. `data_moves`: False if the goal only reorders replicas. `relaxations`: rules of
    this goal alone that the draft does not keep. `why`: sentences that state its reasons.
    """

    rows: Rows
    lower_bound: int = 0
    urgent: frozenset[int] = frozenset()
    evened: Sequence[BrokerId] = ()
    data_moves: bool = True
    relaxations: tuple[Relaxation, ...] = ()
    why: tuple[str, ...] = ()
    skipped: tuple[Skipped, ...] = ()


def conclude(survey: Survey, draft: PlanDraft) -> Plan:
    after = [tuple(row) for row in draft.rows]
    moves: list[Move] = []
    reorders: list[Move] = []
    order = sorted(range(len(after)), key=lambda p: (p not in draft.urgent, p))
    for p in order:
        before, partition = survey.home[p], survey.partitions[p]
        if after[p] == before:
            continue
        assert len(set(after[p])) == len(after[p]) > 0, f"{survey.name(p)} was given {after[p]}"
        move = Move(
            partition=partition.key,
            before=before,
            after=after[p],
            size_bytes=partition.size_bytes,
        )
        (reorders if set(after[p]) == set(before) else moves).append(move)
    return Plan(
        moves=tuple(moves),
        reorders=tuple(reorders),
        loads=_loads(survey, draft.rows),
        lower_bound=draft.lower_bound,
        lowest_isr_margin=lowest_isr_margin(moves, survey.partitions),
        relaxations=(*draft.relaxations, *_relaxations(survey, draft)),
        skipped=draft.skipped,
        why=draft.why,
    )


def _loads(survey: Survey, rows: Rows) -> tuple[BrokerLoad, ...]:
    def measured(rows: Sequence[Sequence[BrokerId]]) -> Sequence[Counter[BrokerId]]:
        """Return bytes held, bytes in and bytes out per second, by broker."""
        sums: Sequence[Counter[BrokerId]] = (Counter(), Counter(), Counter())
        for row, partition in zip(rows, survey.partitions, strict=True):
            for broker, amounts in shares(partition, row):
                for total, amount in zip(sums, amounts, strict=True):
                    total[broker] += round(amount)
        return sums

    replicas = replica_counts(survey.home), replica_counts(rows)
    leaders = leader_counts(survey.home), leader_counts(rows)
    held, came, went = zip(measured(survey.home), measured(rows), strict=True)
    return tuple(
        BrokerLoad(
            broker=broker,
            replicas=_change(*replicas, broker),
            leaders=_change(*leaders, broker),
            size_bytes=_change(*held, broker),
            bytes_in=_change(*came, broker),
            bytes_out=_change(*went, broker),
        )
        for broker in sorted({*survey.known, *replicas[0], *replicas[1]})
    )


def _change(before: Counter[BrokerId], after: Counter[BrokerId], broker: BrokerId) -> Level:
    return Level(before=before[broker], after=after[broker])


def _relaxations(survey: Survey, draft: PlanDraft) -> tuple[Relaxation, ...]:
    found = []
    if draft.data_moves and (gap := _gap(replica_counts(draft.rows), draft.evened)):
        message = (
            f"The plan leaves some brokers with more replicas than others: {gap}. {_why(survey)}"
        )
        found.append(Relaxation(rule="ReplicaBalance", message=message))
    if gap := _gap(leader_counts(draft.rows), draft.evened):
        message = (
            f"The plan leaves some brokers with more preferred leaders than others: {gap}. "
            "It cannot be more even, because only a broker with a replica of a partition can lead "
            "that partition; nothing needs to be done."
        )
        found.append(Relaxation(rule="LeaderBalance", message=message))
    if message := _lost_racks(survey, draft.rows):
        found.append(Relaxation(rule="Racks", message=message))
    return tuple(found)


def _gap(counts: Counter[BrokerId], brokers: Sequence[BrokerId]) -> str:
    if not brokers:
        return ""
    fullest = min(brokers, key=lambda broker: (-counts[broker], broker))
    emptiest = min(brokers, key=lambda broker: (counts[broker], broker))
    if counts[fullest] - counts[emptiest] <= 1:
        return ""
    return f"broker {fullest} would have {counts[fullest]}, broker {emptiest} {counts[emptiest]}"


def _why(survey: Survey) -> str:
    """Return a sentence that says why brokers differ by more than one replica. The only reasons are
    racks and Explicit topics."""
    reasons = []
    if survey.racks is not None:
        reasons.append("every partition keeps its racks")
    if not all(survey.free):
        reasons.append("topics with Explicit placement stay where they are")
    return f"The numbers of replicas stay uneven, because {' and '.join(reasons)}."


def _lost_racks(survey: Survey, rows: Rows) -> str:
    racks = survey.racks
    if racks is None:
        return ""
    poorer = [
        p
        for p, row in enumerate(rows)
        if racks_of(row, racks) < min(len(row), racks_of(survey.home[p], racks))
    ]
    if not poorer:
        return ""
    return (
        f"{counted(len(poorer), 'partition')} would be in fewer racks than now"
        f" ({first_few([survey.name(p) for p in poorer])}). The plan allows that, since fewer racks"
        " are left or the request names the replicas. Bring up or name brokers of another rack to"
        " avoid it."
    )
