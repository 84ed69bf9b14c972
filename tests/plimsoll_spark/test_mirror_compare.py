"""A mirror that lacks a record, or holds another, is found; one that is only behind is not."""

from collections.abc import Iterator, Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from plimsoll_spark import mirror_compare
from plimsoll_spark.mirror_compare import Difference, MirrorResult, Piece, compare_mirror

COUNT = 30


def pieces(contents: Sequence[int], size: int = 4, begin: int = 0) -> Iterator[Piece]:
    """A side whose offsets have holes, as transactions leave them."""
    for at in range(0, len(contents), size):
        some = np.array(contents[at : at + size], np.int64)
        yield Piece(begin + 2 * np.arange(at, at + len(some), dtype=np.int64), some)


def compared(
    source: Sequence[int], mirror: Sequence[int], *, source_begins=True, mirror_begins=True
) -> MirrorResult:
    return compare_mirror(
        pieces(source),
        pieces(mirror, 3, begin=1000),
        source_begins=source_begins,
        mirror_begins=mirror_begins,
    )


WHOLE = list(range(100, 100 + COUNT))


def test_equal_records_at_other_offsets_are_equal() -> None:
    assert compared(WHOLE, WHOLE) == MirrorResult(COUNT, (), {}, 0, 0)


@given(st.integers(0, COUNT - 2), st.integers(1, 3))
def test_missing_records_are_found_with_offsets(first: int, count: int) -> None:
    count = min(count, COUNT - 1 - first)
    found = compared(WHOLE, WHOLE[:first] + WHOLE[first + count :])
    assert found.counts == {"unmirrored": count}
    assert found.differences[0].first == 2 * first
    assert found.differences[-1].last == 2 * (first + count - 1)


def test_altered_record_is_found_with_both_offsets() -> None:
    found = compared(WHOLE, [*WHOLE[:7], 5, *WHOLE[8:]])
    assert found.differences == (Difference("altered", 14, 14, 1014),)
    assert (found.counts, found.compared) == ({"altered": 1}, COUNT - 1)


def test_mirror_behind_is_no_difference() -> None:
    found = compared(WHOLE, WHOLE[:12])
    assert found == MirrorResult(12, (), {}, 0, COUNT - 12)


def test_records_copied_again_are_extra() -> None:
    """MirrorMaker 2 delivers at least once."""
    found = compared(WHOLE, WHOLE[:12] + WHOLE[8:])
    assert (found.differences, found.extra, found.behind) == ((), 4, 0)


@pytest.mark.parametrize("begins", [True, False])
def test_deleted_start_of_mirror_is_no_difference(begins: bool) -> None:
    found = compared(WHOLE, WHOLE[3:], mirror_begins=begins)
    assert found.counts == ({"unmirrored": 3} if begins else {})
    assert found.compared == COUNT - 3


@pytest.mark.parametrize("begins", [True, False])
def test_deleted_start_of_source_is_no_difference(begins: bool) -> None:
    found = compared(WHOLE[3:], WHOLE, source_begins=begins)
    assert (found.counts, found.extra) == ({}, 3 if begins else 0)


def test_far_apart_starts_are_aligned(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mirror_compare, "WINDOW", 4)
    found = compared(WHOLE[20:], WHOLE, source_begins=False)
    assert (found.counts, found.compared) == ({}, COUNT - 20)
    found = compared(WHOLE, WHOLE[20:], mirror_begins=False)
    assert (found.counts, found.compared) == ({}, COUNT - 20)


def test_empty_mirror_is_behind() -> None:
    assert compared(WHOLE, []) == MirrorResult(0, (), {}, 0, COUNT)
    assert compared([], WHOLE).extra == COUNT
