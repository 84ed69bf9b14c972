"""Clusters for the planner's tests: builders, strategies, and the rules restated independently."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import permutations
from uuid import UUID

from hypothesis import strategies as st

from plimsoll_core.errors import Refusal
from plimsoll_core.planner.outcome import Plan
from plimsoll_core.planner.plan import plan
from plimsoll_core.planner.request import (
    Goal,
    PlanBroker,
    PlanPartition,
    PlanTopic,
    Request,
)

Row = tuple[int, ...]


def topic_id(number: int) -> UUID:
    return UUID(int=0x700 + number)


def topic(number: int = 0, strategy: str = "RoundRobin") -> PlanTopic:
    return PlanTopic(id=topic_id(number), name=f"t{number}", strategy=strategy)


def partition(row: Row, index: int = 0, number: int = 0, **fields: object) -> PlanPartition:
    values = {"isr": row, "min_isr": 2, "size_bytes": 100, **fields}
    return PlanPartition(topic_id=topic_id(number), index=index, replicas=row, **values)


def brokers(
    count: int, racks: Sequence[str] = (), unusable: Iterable[int] = ()
) -> list[PlanBroker]:
    """Ids 0 … count - 1, in these racks if there are any."""
    down = set(unusable)
    return [
        PlanBroker(id=b, rack=racks[b] if racks else None, usable=b not in down)
        for b in range(count)
    ]


def cluster(
    rows: Sequence[Row] | Sequence[Sequence[Row]],
    members: Sequence[PlanBroker],
    goal: Goal,
    *,
    strategies: Sequence[str] = (),
    rack_policy: str = "Preferred",
    **fields: object,
) -> Request:
    """A request over one topic's rows, or over a list of topics' rows."""
    topics = [rows] if not rows or isinstance(rows[0][0], int) else rows
    named = [*strategies, *["RoundRobin"] * (len(topics) - len(strategies))]
    return Request(
        brokers=tuple(members),
        topics=tuple(topic(n, strategy) for n, strategy in enumerate(named)),
        partitions=tuple(
            partition(row, index, n, **fields)
            for n, each in enumerate(topics)
            for index, row in enumerate(each)
        ),
        goal=goal,
        rack_policy=rack_policy,
    )


def planned(request: Request) -> Plan:
    answer = plan(request)
    assert isinstance(answer, Plan), answer
    return answer


def refused(request: Request) -> Refusal:
    answer = plan(request)
    assert isinstance(answer, Refusal), answer
    return answer


def rows_after(request: Request, answer: Plan) -> list[Row]:
    """What every partition ends with, in the order of the request."""
    changed = {move.partition: move for move in (*answer.moves, *answer.reorders)}
    after = []
    for each in request.partitions:
        move = changed.get(each.key)
        assert move is None or move.before == each.replicas
        after.append(move.after if move else each.replicas)
    return after


def applied(request: Request, answer: Plan, goal: Goal | None = None) -> Request:
    """The cluster when the plan is done."""
    after = rows_after(request, answer)
    partitions = tuple(
        PlanPartition(
            topic_id=each.topic_id,
            index=each.index,
            replicas=row,
            isr=row,
            min_isr=each.min_isr,
            size_bytes=each.size_bytes,
        )
        for each, row in zip(request.partitions, after, strict=True)
    )
    return Request(
        brokers=request.brokers,
        topics=request.topics,
        partitions=partitions,
        goal=goal or request.goal,
        rack_policy=request.rack_policy,
    )


# --- the rules, once more and simply -----------------------------------------------------------


def held(rows: Iterable[Row]) -> Counter[int]:
    return Counter(broker for row in rows for broker in row)


def led(rows: Iterable[Row]) -> Counter[int]:
    return Counter(row[0] for row in rows)


def gap(counts: Counter[int], members: Iterable[int]) -> int:
    values = [counts[broker] for broker in members]
    return max(values) - min(values)


def squares(counts: Counter[int], members: Iterable[int]) -> int:
    """Less is more even."""
    return sum(counts[broker] ** 2 for broker in members)


def targets(counts: Counter[int], members: Sequence[int], replicas: int) -> dict[int, int]:
    """t(b) ∈ {⌊R/n⌋, ⌈R/n⌉}, the ⌈⌉ slots given to the currently fullest brokers."""
    low, extra = divmod(replicas, len(members))
    fullest = sorted(members, key=lambda broker: (-counts[broker], broker))
    return {broker: low + (n < extra) for n, broker in enumerate(fullest)}


def diversity(row: Row, rack_of: dict[int, str | None]) -> int:
    return len({rack_of[broker] for broker in row} - {None})


def new_copies(before: Sequence[Row], after: Sequence[Row]) -> int:
    return sum(len(set(new) - set(old)) for old, new in zip(before, after, strict=True))


# --- strategies --------------------------------------------------------------------------------


@dataclass(frozen=True)
class Drawn:
    """Rows on brokers 0 … n - 1, in the order of topics, and their racks."""

    n: int
    topics: tuple[tuple[Row, ...], ...]
    racks: tuple[str, ...] = ()

    @property
    def rows(self) -> list[Row]:
        return [row for topic in self.topics for row in topic]

    @property
    def rack_of(self) -> dict[int, str | None]:
        return {b: self.racks[b] if self.racks else None for b in range(len(self.racks) or self.n)}


@cache
def rows_on(n: int, factor: int) -> list[Row]:
    """All there are."""
    return list(permutations(range(n), factor))


@st.composite
def drawn(
    draw: st.DrawFn,
    *,
    brokers_max: int = 7,
    partitions_max: int = 20,
    one_factor: bool = False,
    more: int = 0,
) -> Drawn:
    """Any rows at all: skewed, mixed in their factors, leaders anywhere; `more` brokers are new."""
    n = draw(st.integers(1, brokers_max))
    factor = draw(st.integers(1, min(n, 4)))
    topics = []
    for _ in range(draw(st.integers(1, 3))):
        if not one_factor:
            factor = draw(st.integers(1, min(n, 4)))
        row = st.sampled_from(rows_on(n, factor))
        topics.append(tuple(draw(st.lists(row, min_size=1, max_size=partitions_max))))
    return Drawn(n=n + more, topics=tuple(topics))


@st.composite
def with_racks(draw: st.DrawFn, shape: Drawn) -> Drawn:
    count = draw(st.integers(1, 4))
    racks = draw(st.lists(st.sampled_from("abcd"[:count]), min_size=shape.n, max_size=shape.n))
    return Drawn(n=shape.n, topics=shape.topics, racks=tuple(racks))
