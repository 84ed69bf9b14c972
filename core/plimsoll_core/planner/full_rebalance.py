"""The full rebalance: places every partition by the placement formula, and keeps replicas that fit.

Each topic gets the rows that `placement.place` gives to a new topic on these brokers, turned so
that most replicas can stay, and permuted over its partitions for the same reason: which partition
of a topic has which row is no matter.  The formula evens out each topic by itself; what the topics
add up to is then evened out over brokers as for added brokers.
A rebalance that would make nothing better moves nothing.
Source: the protocol's rule for the full rebalance.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace

from plimsoll_core.errors import Reason, Refusal
from plimsoll_core.ids import BrokerId
from plimsoll_core.phrasing import NAMED_AT_MOST, brokers_text, counted, is_or_are
from plimsoll_core.planner.draft import PlanDraft
from plimsoll_core.planner.matching import permute
from plimsoll_core.planner.placement import Located, Row, interleave, place, racks_of, start_of
from plimsoll_core.planner.replica_layout import lower_bound, spread, targets_of
from plimsoll_core.planner.survey import (
    Rows,
    Survey,
    leader_counts,
    new_copies,
    replica_counts,
)

ROUNDS_MAX = 8
"""The most times that a rebalance is repeated on its own outcome. Tests with tens of thousands of
random clusters needed six at most."""
COPIES_PER_FAULT_MAX = 4
"""The most copies that are made to reduce the last of the `Faults`, the poor spread, by one."""

Faults = tuple[int, int, int, int]


def rebalance(survey: Survey) -> PlanDraft | Refusal:
    """Return the draft of a full rebalance, or a Refusal if replicas that it may move are on
    unusable brokers. It is repeated on its own outcome until that gains nothing, so that a second
    rebalance of the same cluster moves nothing."""
    if refusal := _unusable(survey):
        return refusal
    start = survey.layout(survey.rows(), receivers=survey.usable, free=survey.free)
    bound = lower_bound(start, targets_of(start))
    reached, faults = survey, _faults(survey, survey.home)
    for _ in range(ROUNDS_MAX):
        rows = _once(reached)
        less = _faults(survey, rows)
        if not _worth_it(faults, less, new_copies(reached.home, rows)):
            break
        reached, faults = replace(reached, home=[tuple(row) for row in rows]), less
    return PlanDraft(
        rows=reached.rows(), lower_bound=bound, evened=survey.usable, skipped=survey.skipped()
    )


def _once(survey: Survey) -> Rows:
    desired = _formula(survey)
    rows = [list(row) for row in desired]
    spread(survey.layout(rows, receivers=survey.usable, free=survey.free, needs_of=desired))
    survey.leadership(rows, free=survey.free).even_out()
    return rows


def _worth_it(faults: Faults, less: Faults, copies: int) -> bool:
    """Return True if the new faults `less` justify this number of copies. Any number is justified
    by fewer missing racks, or more even brokers or leaders; a better spread justifies
    `COPIES_PER_FAULT_MAX` per fault."""
    if less[:-1] != faults[:-1]:
        return less < faults
    gain = faults[-1] - less[-1]
    return gain > 0 and gain * COPIES_PER_FAULT_MAX >= copies


def _unusable(survey: Survey) -> Refusal | None:
    """Refuse if replicas that the plan may move are on unusable brokers. All of them would be
    copied elsewhere, although such a broker may return within a minute."""
    usable, counts = frozenset(survey.usable), Counter[BrokerId]()
    for row, free in zip(survey.home, survey.free, strict=True):
        counts.update(broker for broker in row if free and broker not in usable)
    if not counts:
        return None
    return Refusal(
        reason=Reason.InvalidRequest,
        message=(
            "The full rebalance is not planned: it would copy "
            f"{counted(counts.total(), 'replica')} off {brokers_text(counts, NAMED_AT_MOST)}, "
            f"which {is_or_are(len(counts))} not running or being drained. Create the Rebalance "
            "again when every broker runs and none is drained, or remove these brokers first."
        ),
    )


def _formula(survey: Survey) -> list[Row]:
    """Return the replicas that the placement formula gives to each partition. Partitions of
    Explicit topics keep theirs."""
    rows = list(survey.home)
    groups: dict[tuple[int, int], list[int]] = {}
    for p, row in enumerate(survey.home):
        if survey.free[p]:
            groups.setdefault((survey.topic_of[p], len(row)), []).append(p)
    racks = survey.racks or {}
    located = [(broker, racks.get(broker)) for broker in survey.usable]
    led = leader_counts([row for row, free in zip(rows, survey.free, strict=True) if not free])
    for (topic, factor), members in groups.items():
        assert factor <= len(located), "more replicas than brokers, though all are on usable ones"
        usual = start_of(located, len(members), led)
        placed = _topic(survey, located, members, topic, usual)
        led.update(row[0] for row in placed)
        for p, row in zip(members, permute([survey.home[p] for p in members], placed), strict=True):
            rows[p] = row
    return rows


def _topic(
    survey: Survey, located: Sequence[Located], members: Sequence[int], topic: int, usual: int
) -> Sequence[Row]:
    """Return the rows that the placement formula gives to a topic's partitions, started at the
    broker with which most replicas stay where they are."""
    current = [survey.home[p] for p in members]
    strategy = survey.topics[topic].strategy

    def turned(start: int) -> Sequence[Row]:
        rows = place(located, len(members), len(current[0]), strategy, start=start)
        assert not isinstance(rows, Refusal), rows.message
        return rows

    rows = turned(usual)
    ring = interleave(located) if survey.racks is not None else sorted(survey.usable)
    turns = _best_turn(rows, current, ring)
    return rows if turns == 0 else turned((usual + turns) % len(ring))


def _best_turn(rows: Sequence[Row], current: Sequence[Row], ring: Sequence[BrokerId]) -> int:
    """Return by how many positions to turn the ring of brokers so that most replicas stay where
    they are, then most leaders. Among equals it is the least number."""
    position = {broker: at for at, broker in enumerate(ring)}

    def kept(have: Counter[BrokerId], get: Counter[BrokerId]) -> list[int]:
        """Return, for each turn of the ring, the number of replicas that stay where they are."""
        sums = [0] * len(ring)
        for broker, count in have.items():
            for other, share in get.items():
                sums[position[broker] - position[other]] += min(count, share)
        return sums

    replicas = kept(replica_counts(current), replica_counts(rows))
    leaders = kept(leader_counts(current), leader_counts(rows))
    return max(range(len(ring)), key=lambda turn: (replicas[turn], leaders[turn], -turn))


# --- how good a placement is -------------------------------------------------------------------


def _faults(survey: Survey, rows: Sequence[Sequence[BrokerId]]) -> Faults:
    """Return the faults of a placement as four numbers, the most important first: missing racks,
    unevenness of replicas per broker, of leaders per broker, and poor spread of each topic and of
    the first followers of each leader. Smaller numbers are better."""
    n, racks = len(survey.usable), survey.racks
    poor = 0
    if racks is not None:
        most = len({racks[broker] for broker in survey.usable})
        poor = sum(min(len(row), most) - racks_of(row, racks) for row in rows)
    return (
        poor,
        _unevenness(survey, replica_counts(rows)),
        _unevenness(survey, leader_counts(rows)),
        sum(_excess(counts.values(), shares) for counts, shares in _groups(survey, rows, n)),
    )


def _unevenness(survey: Survey, counts: Counter[BrokerId]) -> int:
    usable = [counts[broker] for broker in survey.usable]
    return max(0, max(usable, default=0) - min(usable, default=0) - 1)


def _groups(
    survey: Survey, rows: Sequence[Sequence[BrokerId]], n: int
) -> Iterable[tuple[Counter[BrokerId], int]]:
    """Yield the counts per broker that should be even, each with the number of brokers that share
    them: each topic's replicas, each topic's leaders, and the first followers of each leader."""
    replicas: dict[int, Counter[BrokerId]] = {}
    leaders: dict[int, Counter[BrokerId]] = {}
    heirs: dict[BrokerId, Counter[BrokerId]] = {}
    for p, row in enumerate(rows):
        if not survey.free[p]:
            continue
        replicas.setdefault(survey.topic_of[p], Counter()).update(row)
        leaders.setdefault(survey.topic_of[p], Counter())[row[0]] += 1
        if len(row) > 1:
            heirs.setdefault(row[0], Counter())[row[1]] += 1
    for counts in (*replicas.values(), *leaders.values()):
        yield counts, n
    for counts in heirs.values():
        yield counts, n - 1


def _excess(counts: Iterable[int], shares: int) -> int:
    values = list(counts)
    most = -(-sum(values) // shares)
    return sum(max(0, value - most) for value in values)
