"""An index is opened again by its name: that of a removed file belongs to no log."""

from __future__ import annotations

from pathlib import Path

import pytest

from plimsoll_broker.storage.disk import Disk, StorageError
from plimsoll_broker.storage.index import TimeIndex


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
