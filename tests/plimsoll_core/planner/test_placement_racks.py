"""Placement over racks: distinct racks are a hard rule, even failover comes next."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plimsoll_core.errors import Refusal
from plimsoll_core.planner.placement import Assignment, interleave, place

SHAPES = [(3, 3), (2, 2, 2), (3, 3, 3), (4, 4), (1, 1, 1), (2, 2), (5, 5), (4, 4, 4)]


def located(shape: tuple[int, ...]) -> list[tuple[int, str]]:
    """Broker ids count through the racks: (3, 3) is a: 0, 1, 2; b: 3, 4, 5."""
    racks = [chr(ord("a") + rack) for rack, size in enumerate(shape) for _ in range(size)]
    return list(enumerate(racks))


def rows_of(shape: tuple[int, ...], partitions: int, factor: int, **more: object) -> Assignment:
    rows = place(located(shape), partitions, factor, more.pop("layout", "RoundRobin"), **more)
    assert not isinstance(rows, Refusal)
    return rows


def test_owners_take_turns_between_racks() -> None:
    """Racks {a:0,1,2; b:3,4,5} → 0,3,1,4,2,5."""
    assert interleave(located((3, 3))) == [0, 3, 1, 4, 2, 5]
    assert [row[0] for row in rows_of((3, 3), 6, 2)] == [0, 3, 1, 4, 2, 5]


@given(
    st.lists(st.integers(1, 4), min_size=2, max_size=5).map(tuple),
    st.integers(1, 60),
    st.integers(1, 5),
    st.sampled_from(["RoundRobin", "Blocked"]),
)
def test_partition_uses_as_many_racks_as_it_can(
    shape: tuple[int, ...], partitions: int, factor: int, layout: str
) -> None:
    """Hard rule: distinct racks per partition = min(RF, racks)."""
    factor = min(factor, sum(shape))
    rack_of = dict(located(shape))
    for row in rows_of(shape, partitions, factor, layout=layout):
        assert len(set(row)) == factor
        assert len({rack_of[broker] for broker in row}) == min(factor, len(shape))


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("factor", [2, 3])
def test_dead_brokers_leaderships_spread_over_other_racks(
    shape: tuple[int, ...], factor: int
) -> None:
    """Failover skew ≤ 1 among candidate racks."""
    if factor > sum(shape):
        return
    brokers = located(shape)
    for partitions in range(1, 6 * len(brokers)):
        rows = rows_of(shape, partitions, factor)
        for dead, rack in brokers:
            heirs = Counter({broker: 0 for broker, other in brokers if other != rack})
            heirs.update(row[1] for row in rows if row[0] == dead)
            assert max(heirs.values()) - min(heirs.values()) <= 1


@pytest.mark.parametrize("shape", SHAPES)
def test_leaders_are_even_over_brokers(shape: tuple[int, ...]) -> None:
    counts = Counter(row[0] for row in rows_of(shape, 4 * sum(shape), 2))
    assert set(counts.values()) == {4}


@given(st.sampled_from(SHAPES), st.integers(1, 30), st.integers(1, 30))
def test_growth_continues_what_was_placed(shape: tuple[int, ...], before: int, more: int) -> None:
    factor = min(3, sum(shape))
    grown = rows_of(shape, before, factor) + rows_of(shape, more, factor, first=before)
    assert grown == rows_of(shape, before + more, factor)


def test_broker_without_rack_disables_racks() -> None:
    brokers = [(0, "a"), (1, "a"), (2, None)]
    plain = [(0, None), (1, None), (2, None)]
    assert place(brokers, 6, 2, "RoundRobin") == place(plain, 6, 2, "RoundRobin")
