"""A checkpoint: what came before it is not read again after a crash, and nothing else changes."""

import pytest
from tests.plimsoll_broker.storage.conftest import Volume, a_batch, fill, found_at, read_all

from plimsoll_broker.storage.disk import Disk, StorageError, StorageFault
from plimsoll_broker.storage.log import Log
from plimsoll_broker.storage.log_config import LogConfig
from plimsoll_broker.storage.segment import Segment
from plimsoll_core.replica.producer_states import ProducerStates
from plimsoll_wire.batches import iter_headers

FIRST = "00000000000000000000"


def write(log: Log, batches: int) -> None:
    """By one producer, a term every ten batches."""
    for _ in range(batches):
        base = log.log_end_offset
        data = a_batch(base, epoch=base // 100, producer_id=7, producer_epoch=0, base_sequence=base)
        log.append(data, list(iter_headers(data)))


def checkpoint(volume: Volume, log: Log) -> None:
    log.flush(checkpoint=True)
    volume.store.checkpoint_recovery_points()
    log.prune_snapshots()


def everything(log: Log) -> tuple:
    return (
        log.log_end_offset,
        log.epochs.entries,
        log.producers.snapshot(),
        found_at(log, None),
        [found_at(log, at) for at in range(1_000, 1_000 + log.log_end_offset, 7)],
        [
            next(iter_headers(log.read(at, 1, 10**9))).base_offset
            for at in range(0, log.log_end_offset, 7)
        ],
        read_all(log),
    )


@pytest.fixture
def one_segment(volume: Volume) -> Volume:
    volume.config = LogConfig(segment_bytes=10**9, index_interval_bytes=300)
    return volume


def spoil(volume: Volume, position: int) -> None:
    path = volume.directory / f"{FIRST}.log"
    data = bytearray(path.read_bytes())
    data[position] ^= 1
    path.write_bytes(data)


def test_log_reads_on_from_its_checkpoint(one_segment: Volume) -> None:
    log = one_segment.log()
    write(log, 40)
    checkpoint(one_segment, log)
    write(log, 25)
    before = everything(log)
    spoil(one_segment, 5 * 161 + 100)
    again = one_segment.log()
    assert again.log_end_offset == 650, "a flipped bit before the checkpoint is not looked for"
    spoil(one_segment, 5 * 161 + 100)
    assert everything(again) == before
    write(again, 30)
    before = everything(again)
    assert everything(one_segment.log()) == before


def test_flipped_bit_after_the_checkpoint_cuts_there(one_segment: Volume) -> None:
    log = one_segment.log()
    write(log, 40)
    checkpoint(one_segment, log)
    write(log, 25)
    spoil(one_segment, 50 * 161 + 100)
    again = one_segment.log()
    assert again.log_end_offset == 500
    assert again.producers.snapshot()[-1].last_offset == 499
    write(again, 15)
    assert everything(again)[2:4] == everything(one_segment.log())[2:4]


@pytest.mark.parametrize("name", ["index", "timeindex", "snapshot"])
@pytest.mark.parametrize("damage", ["missing", "empty", "zeros", "swapped", "shorter", "longer"])
def test_recovery_with_damaged_index_restores_same_log(
    one_segment: Volume, name: str, damage: str
) -> None:
    log = one_segment.log()
    write(log, 40)
    checkpoint(one_segment, log)
    write(log, 25)
    before = everything(log)
    stem = f"{400:020d}" if name == "snapshot" else FIRST
    path = one_segment.directory / f"{stem}.{name}"
    data = path.read_bytes()
    entry = 8 if name == "index" else 12
    if damage == "missing":
        path.unlink()
    else:
        path.write_bytes(
            {
                "empty": b"",
                "zeros": data[: len(data) // 2] + bytes(len(data) - len(data) // 2),
                "swapped": data[entry : 2 * entry] + data[:entry] + data[2 * entry :],
                "shorter": data[: -3 * entry],
                "longer": data + b"\x7f" * entry,
            }[damage]
        )
    assert everything(one_segment.log()) == before


def test_index_that_points_between_batches_is_not_believed(one_segment: Volume) -> None:
    log = one_segment.log()
    write(log, 40)
    checkpoint(one_segment, log)
    before = everything(log)
    path = one_segment.directory / f"{FIRST}.index"
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    assert everything(one_segment.log()) == before


def test_truncation_during_checkpoint_leaves_no_stale_snapshot(
    one_segment: Volume,
) -> None:
    log = one_segment.log()
    write(log, 40)
    flush = log.begin_flush(checkpoint=True)
    log.truncate_to(200)
    flush.sync()
    fill(log, 30, epoch=9)
    log.flushed(flush)
    one_segment.store.checkpoint_recovery_points()
    assert not [path.name for path in one_segment.directory.iterdir() if "400" in path.name]
    before = everything(log)
    assert everything(one_segment.log()) == before


def test_cut_below_a_checkpoint_forgets_it(one_segment: Volume) -> None:
    log = one_segment.log()
    write(log, 40)
    checkpoint(one_segment, log)
    log.truncate_to(200)
    fill(log, 30, epoch=9)
    before = everything(log)
    assert everything(one_segment.log()) == before


def test_log_keeps_only_its_newest_checkpoint(one_segment: Volume) -> None:
    log = one_segment.log()
    for _ in range(4):
        write(log, 10)
        checkpoint(one_segment, log)
    assert [path.name for path in one_segment.directory.glob("*.snapshot*")] == [
        "00000000000000000400.snapshot"
    ]


def test_checkpoint_without_written_recovery_point_is_distrusted(
    one_segment: Volume,
) -> None:
    log = one_segment.log()
    write(log, 40)
    flush = log.begin_flush(checkpoint=True)
    flush.sync()
    log.flushed(flush)
    spoil(one_segment, 5 * 161 + 100)
    assert one_segment.log().log_end_offset == 50


def test_full_disk_costs_the_snapshot_and_nothing_else(
    one_segment: Volume, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = one_segment.log()
    write(log, 40)
    replace = Disk.replace

    def full(self: Disk, path, data: bytes, *, sync: bool) -> None:
        if ".snapshot" in path.name:
            raise StorageError(StorageFault.FULL, path, "no space left on device")
        replace(self, path, data, sync=sync)

    monkeypatch.setattr(Disk, "replace", full)
    checkpoint(one_segment, log)
    assert (log.recovery_point, log.fault) == (400, None)
    before = everything(log)
    assert everything(one_segment.log()) == before


def test_flush_reduces_unflushed_bytes_and_truncation_resets_them(volume: Volume) -> None:
    log = volume.log()
    assert log.unflushed_bytes == 0
    fill(log, 40)
    assert log.unflushed_bytes == log.size == 40 * 161
    flush = log.begin_flush(checkpoint=True)
    fill(log, 20)
    flush.sync()
    log.flushed(flush)
    assert log.unflushed_bytes == 20 * 161
    log.truncate_to(300)
    assert log.unflushed_bytes == log.size, "a cut starts it over"
    volume.store.close(7, {})
    assert volume.log().unflushed_bytes == 0


@pytest.mark.parametrize("checkpoints", [1, 3])
def test_cut_is_not_read_from_segments_start(
    one_segment: Volume, monkeypatch: pytest.MonkeyPatch, checkpoints: int
) -> None:
    """The event loop waits for it: a leader that was cut off wrote for long behind what was
    committed, or what was not yet committed lay around a checkpoint."""
    log = one_segment.log()
    write(log, 20)
    checkpoint(one_segment, log)
    for _ in range(checkpoints):
        write(log, 20)
        log.flush(checkpoint=True)
        log.prune_snapshots(250)
    began: list[int] = []
    replay = Segment.replay

    def noted(self: Segment, offset: int, producers: ProducerStates) -> None:
        began.append(offset)
        replay(self, offset, producers)

    monkeypatch.setattr(Segment, "replay", noted)
    log.truncate_to(350)
    assert began == [200]
    assert [each.last_offset for each in log.producers.snapshot()] == [309, 319, 329, 339, 349]
