"""However many segments there are, logs open at most half of the process's descriptors."""

from __future__ import annotations

import errno
import gc
import os
from pathlib import Path

import pytest
from tests.plimsoll_broker.storage.conftest import TOPIC_ID, Volume, fill, found_at, read_all

from plimsoll_broker.storage.disk import Disk, StorageError
from plimsoll_broker.storage.log import Log


class FewDescriptors(Disk):
    """As a process with 40."""

    def descriptors_max(self) -> int:
        return 40


def logs_open(directory: Path) -> int:
    """How many descriptors of this process are of files of logs."""
    gc.collect()
    found = 0
    for name in os.listdir("/proc/self/fd"):
        try:
            link = os.readlink(f"/proc/self/fd/{name}")
        except FileNotFoundError:
            continue
        found += link.startswith(str(directory)) and link.endswith((".log", "index"))
    return found


def many_logs(volume: Volume, disk: Disk, number: int) -> list[Log]:
    store = volume.start(disk)
    return [store.open_log("orders", TOPIC_ID, index, volume.config, 0) for index in range(number)]


@pytest.mark.slow
def test_more_logs_than_descriptors_are_written_and_read(volume: Volume) -> None:
    logs = many_logs(volume, FewDescriptors(), 60)
    for _ in range(2):
        for log in logs:
            fill(log, 30)
            assert logs_open(volume.path) <= 20
    contents = [read_all(log) for log in logs]
    assert all(contents)
    assert logs_open(volume.path) <= 20

    del logs, log
    again = many_logs(volume, FewDescriptors(), 60)
    assert [read_all(log) for log in again] == contents, "after a crash"
    assert logs_open(volume.path) <= 20


def test_start_after_clean_stop_leaves_descriptors_for_others(volume: Volume) -> None:
    disk = FewDescriptors()
    for log in many_logs(volume, disk, 60):
        fill(log, 1)
    store = volume.store
    assert store is not None
    assert store.close(7, {})
    many_logs(volume, FewDescriptors(), 60)
    assert logs_open(volume.path) <= 20


def test_file_read_by_thread_is_closed_afterwards(volume: Volume) -> None:
    """It was handed the open file: neither another log's files nor a removal take it away."""
    first, *others = many_logs(volume, FewDescriptors(), 60)
    fill(first, 30)
    step = next(first.time_search(1_015))
    for log in others:
        fill(log, 30)
    first.discard_to(1_000)
    assert step() == (1_015, 15), "found in a file that is removed and was closed for others"
    assert found_at(first, 1_015) is None


def test_deleted_log_opens_no_file_of_its_name(volume: Volume) -> None:
    """A topic of the same name may have taken the directory."""
    first, *others = many_logs(volume, FewDescriptors(), 60)
    fill(first, 30)
    for log in others:
        fill(log, 30)
    assert volume.store is not None
    volume.store.delete_log(first, 0)
    anew = volume.store.open_log("orders", TOPIC_ID, 0, volume.config, 0)
    fill(anew, 1)
    with pytest.raises(StorageError):
        first.segments[0].file.pread(10, 0)


@pytest.mark.slow
def test_logs_return_descriptors_when_process_has_none(
    volume: Volume, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Other parts have taken them all: no log goes out of service for it."""
    logs = many_logs(volume, Disk(), 20)
    for log in logs:
        fill(log, 1)
        log.segments[0].let_go()
    allowed = logs_open(volume.path) + 3
    plain = os.open

    def opened(path: Path, flags: int, *rest: int) -> int:
        if str(path).endswith(".log") and logs_open(volume.path) >= allowed:
            raise OSError(errno.EMFILE, "too many open files")
        return plain(path, flags, *rest)

    monkeypatch.setattr(os, "open", opened)
    for log in logs:
        fill(log, 1)
    assert [log.fault for log in logs] == [None] * 20


def test_files_with_unsynced_writes_are_closed_last(volume: Volume) -> None:
    disk = FewDescriptors()
    logs = many_logs(volume, disk, 30)
    dirty, *others = logs
    fill(dirty, 1)
    for log in others:
        log.flush()
    for turn in range(3):
        for log in others:
            log.segments[0].file.size()
            assert dirty.segments[0].open_file is not None, turn
