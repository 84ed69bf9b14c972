"""The keys of a round of compaction, from the log's end to its beginning."""

from __future__ import annotations

from plimsoll_broker.storage.cleaner.newest_keys import (
    CHUNK_BYTES,
    KEY_BYTES,
    RECORDS_MAX,
    BatchKeys,
    ChunkMarks,
    NewestKeys,
)


def keys(*names: bytes | None) -> BatchKeys:
    return BatchKeys(names, False, any(len(name or b"") > 63 for name in names))


def test_last_record_of_each_key_is_marked() -> None:
    newest, marks = NewestKeys(2**16), ChunkMarks(7)
    assert newest.note(marks, 3, keys(b"a", b"b", b"a", b"c"))
    assert newest.note(marks, 0, keys(b"c", b"d", b"a"))
    assert (marks.live_of(3, 4), marks.live_of(0, 3)) == (0b1110, 0b010)
    assert newest.live_in(keys(b"a", b"x", b"d", b"x")) == 0b1010
    assert newest.live_in(keys(b"x", b"y")) == 0b11


def test_record_without_a_key_is_marked_always() -> None:
    newest, marks = NewestKeys(2**16), ChunkMarks(6)
    assert newest.note(marks, 3, keys(None, b"a", None))
    assert newest.note(marks, 0, keys(None, b"a", None))
    assert marks.live_of(0, 6) == 0b111101
    assert newest.live_in(keys(None, b"a")) == 0b01


def test_long_keys_are_told_apart() -> None:
    newest, marks = NewestKeys(2**16), ChunkMarks(4)
    long = bytes(5_000)
    assert newest.note(marks, 0, keys(long + b"1", long + b"2", long + b"1", b"a"))
    assert marks.live_of(0, 4) == 0b1110
    assert newest.live_in(keys(long + b"2", long + b"3", b"a")) == 0b010


def test_batch_without_room_for_keys_is_refused() -> None:
    newest = NewestKeys(CHUNK_BYTES + 2 + 3 * (KEY_BYTES + 1))
    marks = newest.marks(8)
    assert marks is not None
    assert newest.note(marks, 6, keys(b"a", b"b"))
    assert not newest.note(marks, 4, keys(b"c", b"d"))
    assert newest.note(marks, 2, keys(b"a", b"c")), "none of the batch before was taken"
    assert marks.live_of(0, 8) == 0b11001000
    assert newest.marks(1) is None


def test_chunk_with_too_many_records_gets_no_marks() -> None:
    assert NewestKeys(2**31 - 1).marks(RECORDS_MAX + 1) is None
