"""A file gets its name only when it is complete."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from plimsoll_spark.whole_files import put_whole, whole_file


def test_content_replaces_the_earlier_file(tmp_path: Path) -> None:
    for content in (b"one", b"another"):
        put_whole(tmp_path / "a.json", content)
        assert (tmp_path / "a.json").read_bytes() == content
    assert [one.name for one in tmp_path.iterdir()] == ["a.json"]


def test_failed_write_leaves_the_earlier_file(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    put_whole(path, b"one")

    def half() -> None:
        with whole_file(path) as partial:
            partial.write_bytes(b"half")
            raise RuntimeError

    with pytest.raises(RuntimeError):
        half()
    assert path.read_bytes() == b"one"
    assert [one.name for one in tmp_path.glob("*.json")] == ["a.json"]


def test_durable_file_and_its_name_are_synced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a.state"
    synced: list[tuple[bool, bool]] = []

    def fsync(file: int) -> None:
        synced.append((path.exists(), stat.S_ISDIR(os.fstat(file).st_mode)))

    monkeypatch.setattr(os, "fsync", fsync)
    put_whole(path, b"state", durable=True)
    assert synced == [(False, False), (True, True)]
    assert path.read_bytes() == b"state"
