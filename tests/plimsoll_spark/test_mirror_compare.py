"""A mirror that lacks a record, or holds another, is found; one that is only behind is not."""

from collections.abc import Iterator, Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from plimsoll_spark import mirror_compare
from plimsoll_spark.mirror import parts
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


def test_first_difference_of_each_kind_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """The verdict names a place of its kind."""
    monkeypatch.setattr(mirror_compare, "DIFFERENCES_MAX", 2)
    mirror = [5 if one in (103, 105, 107) else one for one in WHOLE if one != 120]
    found = compared(WHOLE, mirror)
    assert found.counts == {"altered": 3, "unmirrored": 1}
    assert [one.kind for one in found.differences] == ["altered", "altered", "unmirrored"]


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


def timed(contents: Sequence[int], cuts: Sequence[int] = ()) -> Iterator[Piece]:
    """A side whose records have timestamps. Retention deletes what comes before each of `cuts`."""
    for number, content in enumerate(contents):
        at, row = np.array([number]), np.array([content])
        yield Piece(at, row, time_ms=row // 3 * 3, cut=content in cuts)


def expired(
    source: Sequence[int], mirror: Sequence[int], cuts: Sequence[int] = (), *, begin: bool = True
) -> MirrorResult:
    ours, theirs = timed(source, cuts), timed(mirror, cuts)
    return compare_mirror(ours, theirs, source_begins=begin, mirror_begins=begin)


@pytest.mark.parametrize("window", [4, 20_000])
@pytest.mark.parametrize("lacks", [True, False])
def test_both_starts_deleted_far_apart_are_aligned(
    monkeypatch: pytest.MonkeyPatch, window: int, lacks: bool
) -> None:
    """Else nothing at all was compared, and the mirror passed."""
    monkeypatch.setattr(mirror_compare, "WINDOW", window)
    late, lacking = WHOLE[18:], [one for one in WHOLE[18:] if one != 120 or not lacks]
    found = expired(WHOLE[2:], lacking, begin=False)
    assert (found.counts, found.compared) == ({"unmirrored": 1} if lacks else {}, len(lacking))
    assert found.apart_from is None
    found = expired(late, WHOLE[2:], begin=False)
    assert (found.counts, found.compared, found.apart_from) == ({}, len(late), None)


def test_sides_without_common_record_were_not_compared() -> None:
    found = expired(WHOLE[:10], WHOLE[10:], begin=False)
    assert (found.compared, found.counts, found.apart_from) == (0, {}, 0)


@pytest.mark.parametrize("window", [4, 20_000])
@pytest.mark.parametrize("side", ["source", "mirror", "both"])
@pytest.mark.parametrize("first", [1, 5, 10])
def test_records_deleted_while_read_are_no_difference(
    monkeypatch: pytest.MonkeyPatch, window: int, side: str, first: int
) -> None:
    monkeypatch.setattr(mirror_compare, "WINDOW", window)
    left = WHOLE[:first] + WHOLE[20:]
    found = expired(WHOLE if side == "mirror" else left, WHOLE if side == "source" else left, [120])
    assert (found.counts, found.compared, found.extra) == ({}, len(left), 0)
    assert found.apart_from is None


def test_loss_behind_deleted_records_is_found() -> None:
    left = WHOLE[:5] + WHOLE[20:]
    found = expired(WHOLE, [one for one in left if one != 125], [120])
    assert (found.counts, found.compared) == ({"unmirrored": 1}, len(left) - 1)


def test_piece_is_cut_where_retention_deleted_records() -> None:
    offset = np.array([3, 4, 9, 10])
    piece = Piece(offset, offset + 100, offset > 9, time_ms=offset * 2)
    found = list(parts(piece, [5, 10]))
    assert [one.offset.tolist() for one in found] == [[3, 4], [9], [10]]
    assert [one.cut for one in found] == [False, True, True]
    assert [one.cut for one in parts(piece, [])] == [False]


def test_empty_mirror_is_behind() -> None:
    assert compared(WHOLE, []) == MirrorResult(0, (), {}, 0, COUNT)
    assert compared([], WHOLE).extra == COUNT
