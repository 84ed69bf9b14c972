"""An index is opened again by its name: that of a removed file belongs to no log. A full disk
leaves no part of an entry in it."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest
from tests.plimsoll_broker.storage.test_bad_disk import FailingDisk

from plimsoll_broker.storage.disk import Disk, StorageError
from plimsoll_broker.storage.index import (
    AbortedTransaction,
    TimeIndex,
    TransactionIndex,
    decode_transactions,
)


def test_index_with_missing_file_is_not_emptied(tmp_path: Path) -> None:
    """An empty one in its place, or another topic's, was read as if it had the entries."""
    path = tmp_path / "00000000000000000000.timeindex"
    index = TimeIndex(Disk(), path, 0)
    index.add(1_000, 7)
    index.close()
    assert index.last == (1_000, 7)
    index.release()
    path.unlink()
    with pytest.raises(StorageError):
        index.entry_for(1_000)
    assert not path.exists()


def test_truncated_time_index_compares_with_remaining_entry(tmp_path: Path) -> None:
    index = TimeIndex(Disk(), tmp_path / "00000000000000000000.timeindex", 0)
    index.add(1_000, 7)
    index.add(2_000, 9)
    index.add(2_000, 11)
    assert index.last == (2_000, 9)
    index.truncate_to(9)
    assert index.last == (1_000, 7)
    index.add(1_500, 8)
    assert index.last == (1_500, 8)
    index.drop(1)
    assert index.last == (1_000, 7)
    index.write()
    index.drop(0)
    assert index.last is None


FIRST = AbortedTransaction(7, 0, 1, 0)
LATER = [AbortedTransaction(7, 2 * number, 2 * number + 1, 0) for number in range(1, 4)]


def a_torn_index(disk: FailingDisk, path: Path) -> TransactionIndex:
    """The disk took 40 of the 102 bytes of its last three entries."""
    disk.suffix = path.suffix
    index = TransactionIndex(disk, path)
    index.add(FIRST)
    index.write()
    for each in LATER:
        index.add(each)
    disk.code, disk.room = errno.ENOSPC, 40
    with pytest.raises(StorageError):
        index.write()
    disk.code = None
    assert path.stat().st_size == 34 + 40
    return index


def test_entries_are_exact_after_full_disk(tmp_path: Path) -> None:
    path = tmp_path / "00000000000000000000.txnindex"
    index = a_torn_index(FailingDisk(), path)
    assert index.between(0, 4) == [FIRST, *LATER]
    index.write()
    assert decode_transactions(path.read_bytes()) == [FIRST, *LATER]
    assert path.stat().st_size == 4 * 34
    index.add(last := AbortedTransaction(7, 8, 9, 0))
    index.close()
    assert decode_transactions(path.read_bytes()) == [FIRST, *LATER, last]


@pytest.mark.parametrize("offset", [0, 2])
def test_truncation_removes_torn_entries_too(tmp_path: Path, offset: int) -> None:
    path = tmp_path / "00000000000000000000.txnindex"
    index = a_torn_index(FailingDisk(), path)
    index.truncate_to(offset)
    index.close()
    assert decode_transactions(path.read_bytes()) == [FIRST][: offset // 2]
    assert path.stat().st_size == offset // 2 * 34


@pytest.mark.parametrize("room", [0, 12, 20])
def test_entry_is_dropped_once_disk_has_room(tmp_path: Path, room: int) -> None:
    path, disk = tmp_path / "00000000000000000000.timeindex", FailingDisk()
    index = TimeIndex(disk, path, 0)
    for number in range(4):
        index.add(1_000 + number, number)
    index.write()
    disk.suffix, disk.code, disk.room = path.suffix, errno.ENOSPC, room
    with pytest.raises(StorageError):
        index.drop(0)
    disk.code = None
    assert [index[at][0] for at in range(len(index))] == [1_001, 1_002, 1_003]
    index.close()
    again = TimeIndex(disk, path, 0)
    assert [again[at][0] for at in range(len(again))] == [1_001, 1_002, 1_003]
