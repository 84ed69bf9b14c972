"""Hashing, deadlines and codes that every coordinator shares."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plimsoll_core.coordination.deadlines import Deadlines
from plimsoll_core.coordination.hashing import java_hash, partition_of
from plimsoll_core.coordination.outcome import told
from plimsoll_core.errors import Code


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("", 0),
        ("a", 97),
        ("hello", 99162322),
        ("connect-cluster", 1440343063),
        ("polygenelubricants", -(2**31)),
        ("é", 233),
        ("😀", 1772899),  # a surrogate pair: two code units
    ],
)
def test_hash_is_javas_over_utf_16_code_units(text: str, value: int) -> None:
    assert java_hash(text) == value


def test_partition_of_hash_matches_kafka_absolute_value() -> None:
    assert partition_of("polygenelubricants", 50) == 0
    assert partition_of("hello", 50) == 99162322 % 50


@given(st.text(), st.integers(1, 1000))
def test_partition_is_one_of_those_that_there_are(key: str, partitions: int) -> None:
    assert 0 <= partition_of(key, partitions) < partitions


def test_reset_deadline_moves_and_cleared_deadline_never_fires() -> None:
    deadlines = Deadlines()
    deadlines.set("a", 10)
    deadlines.set("b", 20)
    deadlines.set("a", 30)
    assert (len(deadlines), "a" in deadlines, deadlines.earliest_ms()) == (2, True, 20)
    deadlines.clear("b")
    assert deadlines.take_due(29, 10) == []
    assert deadlines.take_due(30, 10) == ["a"]
    assert deadlines.earliest_ms() is None


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 50)), max_size=300), st.integers(1, 9))
def test_due_deadlines_come_in_order_and_once(sets: list[tuple[int, int]], at_most: int) -> None:
    deadlines, model = Deadlines(), {}
    for key, at_ms in sets:
        deadlines.set(key, at_ms)
        model[key] = at_ms
    taken: list[Any] = []
    while due := deadlines.take_due(25, at_most):
        assert len(due) <= at_most
        taken += due
    assert sorted(taken) == sorted(key for key, at_ms in model.items() if at_ms <= 25)
    assert [model[key] for key in taken] == sorted(model[key] for key in taken)
    assert len(deadlines) == len(model) - len(taken)


@pytest.mark.parametrize(
    ("replica", "client"),
    [(0, 0), (3, 15), (7, 15), (19, 15), (20, 15), (6, 16), (56, 16), (10, -1)],
)
def test_replicas_code_becomes_the_coordinators(replica: int, client: int) -> None:
    assert told(Code(replica)) == client


def test_unknown_replica_code_is_an_unknown_error() -> None:
    assert told(Code.CORRUPT_MESSAGE) is Code.UNKNOWN_SERVER_ERROR
