"""A disk that is full or fails takes one partition out of service and tears nothing."""

import errno
import os
from types import SimpleNamespace

import pytest

from plimsoll_broker.replication.log_writer import LogWriter
from plimsoll_broker.replication.traffic import Traffic
from plimsoll_broker.storage import disk as disks
from plimsoll_broker.storage.disk import Disk, DiskFile, StorageError, StorageFault
from plimsoll_broker.storage.log_config import LogConfig
from plimsoll_broker.storage.log_store import LogStore
from plimsoll_wire.batches import iter_headers


class FailingFile(DiskFile):
    """Takes `room` bytes and then fails, having written a part."""

    __slots__ = ("disk",)

    def append(self, data):
        disk = self.disk
        if disk.code is not None and self.path.suffix == disk.suffix:
            taken = min(disk.room, len(data))
            disk.room -= taken
            super().append(memoryview(data)[:taken])
            if taken < len(data):
                raise self.error()
            return
        super().append(data)

    def fsync(self):
        if self.disk.fsync_fails:
            raise self.error(errno.EIO)
        super().fsync()

    def truncate(self, size):
        if self.disk.truncate_fails:
            raise self.error(errno.EIO)
        super().truncate(size)

    def error(self, code=None):
        code = code or self.disk.code
        fault = StorageFault.FULL if code == errno.ENOSPC else StorageFault.IO
        return StorageError(fault, self.path, os.strerror(code))


class FailingDisk(Disk):
    def __init__(self):
        self.code = None
        self.room = 0
        self.suffix = ".log"
        self.fsync_fails = False
        self.truncate_fails = False

    def open(self, path, *, make=True):
        file = super().open(path, make=make)
        failing = FailingFile(os.dup(file._fd), path, self)
        failing.disk = self
        return failing


@pytest.fixture
def disk():
    return FailingDisk()


@pytest.mark.parametrize(
    ("code", "fault"), [(errno.ENOSPC, StorageFault.FULL), (errno.EIO, StorageFault.IO)]
)
@pytest.mark.parametrize("room", [0, 1, 12, 60, 61, 160])
def test_partial_append_is_truncated_after_disk_error(
    volume, disk, fill, a_batch, read_all, code, fault, room
):
    log = volume.log(disk)
    fill(log, 5)
    data = read_all(log)
    disk.code, disk.room = code, room
    with pytest.raises(StorageError) as raised:
        fill(log, 1)
    assert raised.value.fault is fault
    assert log.log_end_offset == 50
    assert read_all(log) == data, "what is there can still be read"
    assert (volume.directory / "00000000000000000000.log").stat().st_size == len(data)


def test_failed_log_takes_nothing_even_with_room(volume, disk, fill):
    log = volume.log(disk)
    disk.code = errno.ENOSPC
    with pytest.raises(StorageError):
        fill(log, 1)
    disk.code = None
    with pytest.raises(StorageError):
        fill(log, 1)
    assert log.log_end_offset == 0


def test_other_logs_go_on(volume, disk, fill, a_batch):
    log = volume.log(disk)
    other = volume.store.open_log("other", log.topic_id, 0, LogConfig(), 0)
    disk.code = errno.ENOSPC
    with pytest.raises(StorageError):
        fill(log, 1)
    disk.code = None
    fill(other, 5)
    assert other.log_end_offset == 50


def test_volume_with_failed_log_is_not_marked_clean(volume, disk, fill):
    log = volume.log(disk)
    fill(log, 5)
    disk.code = errno.ENOSPC
    with pytest.raises(StorageError):
        fill(log, 1)
    disk.code = None
    assert volume.store.close(42, {}) is False
    assert not (volume.path / ".kafka_cleanshutdown").exists()
    assert volume.log().log_end_offset == 50


def test_untruncatable_tail_is_truncated_at_next_start(volume, disk, fill):
    log = volume.log(disk)
    fill(log, 5)
    disk.code, disk.room, disk.truncate_fails = errno.ENOSPC, 70, True
    with pytest.raises(StorageError):
        fill(log, 1)
    assert volume.log().log_end_offset == 50


def test_failed_flush_moves_no_recovery_point(volume, disk, fill):
    log = volume.log(disk)
    fill(log, 5)
    disk.fsync_fails = True
    with pytest.raises(StorageError):
        log.flush()
    assert log.recovery_point == 0
    disk.fsync_fails = False
    with pytest.raises(StorageError):
        fill(log, 1)
    assert volume.store.close(42, {}) is False


def test_flush_overtaken_by_truncation_moves_no_recovery_point(volume, fill):
    log = volume.log()
    fill(log, 10)
    flush = log.begin_flush()
    flush.sync()
    log.truncate_to(20)
    fill(log, 10)
    log.flushed(flush)
    assert log.recovery_point == 0


def test_flush_covers_what_was_there_when_it_began(volume, fill):
    log = volume.log()
    fill(log, 20)
    flush = log.begin_flush()
    fill(log, 5)
    flush.sync()
    log.flushed(flush)
    assert (log.recovery_point, log.log_end_offset) == (200, 250)


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT])
def test_real_full_disk_is_called_full(tmp_path, monkeypatch, code):
    def fail(fd, data):
        raise OSError(code, os.strerror(code))

    file = Disk().open(tmp_path / "file")
    monkeypatch.setattr(disks.os, "write", fail)
    with pytest.raises(StorageError, match="the disk is full") as raised:
        file.append(b"x")
    assert raised.value.fault is StorageFault.FULL


def test_short_write_is_carried_on(tmp_path, monkeypatch):
    written = os.write
    monkeypatch.setattr(disks.os, "write", lambda fd, data: written(fd, bytes(data)[:3]))
    file = Disk().open(tmp_path / "file")
    file.append(b"0123456789")
    assert (tmp_path / "file").read_bytes() == b"0123456789"


def test_replaced_file_is_old_or_new(tmp_path, monkeypatch):
    disk = Disk()
    path = tmp_path / "checkpoint"
    disk.replace(path, b"old", sync=True)

    def fail(old, new):
        raise OSError(errno.EIO, "no")

    monkeypatch.setattr(disks.os, "replace", fail)
    with pytest.raises(StorageError):
        disk.replace(path, b"new", sync=True)
    assert path.read_bytes() == b"old"


def test_last_append_before_full_disk_survives_restart(volume, disk, a_batch):
    log = volume.log(disk)
    disk.code, disk.room = errno.ENOSPC, 1_000
    written = 0

    def write_until_full():
        nonlocal written
        for base in range(0, 1000, 10):
            data = a_batch(base)
            log.append(data, list(iter_headers(data)))
            written = base + 10

    with pytest.raises(StorageError):
        write_until_full()
    assert 0 < written < 1000
    assert volume.log().log_end_offset == written
    assert isinstance(volume.store, LogStore)


def test_unopenable_log_was_not_closed_cleanly(volume, fill):
    fill(volume.log(), 5)
    (volume.directory / "00000000000000000050.log").mkdir()
    with pytest.raises(StorageError):
        volume.log()
    assert volume.store.close(42, {}) is False
    assert not (volume.path / ".kafka_cleanshutdown").exists()
    (volume.directory / "00000000000000000050.log").rmdir()
    assert volume.log().log_end_offset == 50


def test_log_whose_cut_failed_is_not_closed_cleanly(volume, disk, fill):
    """What is on the disk is neither the log before the cut nor the one after it."""
    log = volume.log(disk)
    fill(log, 5)
    failed = []
    replica = SimpleNamespace(fail=lambda: failed.append(log))
    disk.truncate_fails = True
    driver = LogWriter(SimpleNamespace(traffic=Traffic()))
    assert driver.truncate(SimpleNamespace(log=log, replica=replica), 20) is False
    disk.truncate_fails = False
    assert failed == [log]
    assert volume.store.close(42, {}) is False


def test_log_deleted_during_sync_is_no_disk_failure(volume):
    class DeletedMeanwhile(Disk):
        def sync(self, path):
            volume.store.delete_log(deleted, 0)
            super().sync(path)

    disk = DeletedMeanwhile()
    deleted = volume.log(disk)
    sync = volume.store.begin_new()
    sync()
    assert not deleted.directory.exists()
