"""Whatever ends a broker's life, the next one finds a log that is whole and says what it lost."""

import shutil

import pytest
from tests.plimsoll_broker.storage.conftest import found_at

from plimsoll_broker.storage import checkpoint_formats
from plimsoll_broker.storage.disk import Disk
from plimsoll_broker.storage.log_config import LogConfig
from plimsoll_broker.storage.producer_snapshots import ProducerSnapshots
from plimsoll_core.replica.producer_states import ProducerEntry, ProducerStates
from plimsoll_wire.batches import check_crc, iter_headers


def close_cleanly(volume, epoch=7):
    assert volume.store.close(epoch, {("orders", 3): 5})


def end_state(log):
    return log.log_start_offset, log.log_end_offset, log.epochs.entries, log.producers.snapshot()


def idempotent(volume, a_batch, batches=40):
    log = volume.log()
    for base in range(0, 10 * batches, 10):
        data = a_batch(base, epoch=base // 100, producer_id=7, producer_epoch=0, base_sequence=base)
        log.append(data, list(iter_headers(data)))
    return log


@pytest.mark.parametrize("clean", [True, False])
def test_log_is_the_same_in_the_next_life(volume, a_batch, read_all, clean):
    log = idempotent(volume, a_batch)
    before, data = end_state(log), read_all(log)
    if clean:
        close_cleanly(volume)
    again = volume.log()
    assert end_state(again) == before
    assert read_all(again) == data
    assert again.recovery_point == (400 if clean else 0)
    assert volume.store.high_watermark(again) == (5 if clean else 0)


def test_recovery_after_clean_stop_reads_the_tail(volume, fill):
    """A flipped bit in a record is not looked for: the marker says that all is well."""
    log = volume.log()
    fill(log, 40)
    close_cleanly(volume)
    path = volume.directory / "00000000000000000000.log"
    data = bytearray(path.read_bytes())
    data[80] ^= 1
    path.write_bytes(data)
    assert volume.log().log_end_offset == 400


def test_torn_last_segment_keeps_its_whole_batches(volume, fill, tmp_path):
    """kill -9 or a power cut at any byte: the torn batch goes, everything before stays."""
    volume.config = LogConfig(segment_bytes=900)
    log = volume.log()
    fill(log, 10)
    assert [segment.base_offset for segment in log.segments] == [0, 50]
    saved = tmp_path / "saved"
    shutil.copytree(volume.path, saved)
    last = "00000000000000000050.log"
    whole = (saved / "orders-3" / last).read_bytes()
    batch = len(whole) // 5
    for size in range(0, len(whole) + 1, 7):
        shutil.rmtree(volume.path)
        shutil.copytree(saved, volume.path)
        (volume.directory / last).write_bytes(whole[:size])
        log = volume.log()
        assert log.log_end_offset == 50 + 10 * (size // batch)
        assert (volume.directory / last).stat().st_size == batch * (size // batch)
        fill(log, 1)


@pytest.mark.parametrize("position", [0, 8, 12, 16, 17, 21, 27, 43, 60, 61, 100, 160])
def test_flipped_bit_cuts_the_log_at_its_batch(volume, fill, position):
    """In whichever field of the fourth batch of the second segment."""
    log = volume.log()
    fill(log, 40)
    path = volume.directory / "00000000000000000120.log"
    data = bytearray(path.read_bytes())
    batch = 161
    data[3 * batch + position] ^= 0x80
    path.write_bytes(data)
    again = volume.log()
    if position == 12:
        # The leader epoch is outside the CRC: an unlikely one is as good as another here.
        assert again.log_end_offset in (150, 400)
        return
    assert again.log_end_offset == 150
    assert [segment.base_offset for segment in again.segments] == [0, 120]
    assert again.epochs.entries == [(0, 0)]
    assert not list(volume.directory.glob("00000000000000000240.*"))


def test_recovery_does_not_read_below_the_recovery_point(volume, fill):
    log = volume.log()
    fill(log, 40)
    log.flush()
    volume.store.checkpoint_recovery_points()
    path = volume.directory / "00000000000000000120.log"
    data = bytearray(path.read_bytes())
    data[100] ^= 1
    path.write_bytes(data)
    assert volume.log().log_end_offset == 400


def test_hole_between_segments_ends_the_log(volume, fill):
    log = volume.log()
    fill(log, 40)
    (volume.directory / "00000000000000000120.log").unlink()
    again = volume.log()
    assert again.log_end_offset == 120
    assert not list(volume.directory.glob("00000000000000000240.*"))


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("damage", ["missing", "short", "garbage", "odd"])
def test_indexes_are_made_again(volume, a_batch, read_all, clean, damage):
    volume.config = LogConfig(segment_bytes=4_000, index_interval_bytes=300)
    log = idempotent(volume, a_batch)
    data = read_all(log)
    if clean:
        close_cleanly(volume)
    for path in [*volume.directory.glob("*.index"), *volume.directory.glob("*.timeindex")]:
        if damage == "missing":
            path.unlink()
        elif damage == "short":
            path.write_bytes(b"")
        elif damage == "garbage":
            path.write_bytes(b"\xff" * 24)
        else:
            path.write_bytes(path.read_bytes() + b"\x01")
    again = volume.log()
    assert again.log_end_offset == 400
    assert read_all(again) == data
    for offset in range(0, 400, 7):
        first = next(iter_headers(again.read(offset, 10, 400)))
        assert first.base_offset <= offset <= first.last_offset
    assert found_at(again, 1_250) == (1_250, 250)


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize(
    "text", [None, "", "0\n1\n", "0\n1\n9 0\n", "0\n2\n0 0\n1 77\n", "junk", "0\n2\n3 0\n1 100\n"]
)
def test_epochs_come_from_batches_when_file_is_wrong(volume, a_batch, clean, text):
    log = idempotent(volume, a_batch)
    entries = log.epochs.entries
    if clean:
        close_cleanly(volume)
    path = volume.directory / "leader-epoch-checkpoint"
    if text is None:
        path.unlink(missing_ok=True)
    else:
        path.write_text(text)
    again = volume.log()
    if text == "0\n2\n0 0\n1 77\n" and clean:
        return  # wrong inside a segment: only a scan could tell, and a clean stop had synced it
    assert again.epochs.entries == entries


def test_terms_behind_the_end_are_dropped(volume, fill):
    log = volume.log()
    fill(log, 5, epoch=2)
    log.epochs.assign(3, 50)
    close_cleanly(volume)
    assert volume.log().epochs.entries == [(2, 0)]


def test_emptied_log_knows_last_epoch_after_crash(volume, fill):
    log = volume.log()
    fill(log, 3, epoch=1)
    fill(log, 2, epoch=2)
    log.flush()
    log.advance_log_start(50)
    log.roll()
    starts = checkpoint_formats.encode_offsets({("orders", 3): 50})
    (volume.path / checkpoint_formats.LOG_STARTS).write_bytes(starts)
    log.remove_first(len(log.segments) - 1)
    again = volume.log()
    assert (again.log_start_offset, again.log_end_offset) == (50, 50)
    assert again.epochs.epoch_of_last(50) == 2
    fill(again, 1, epoch=2)
    assert again.epochs.epoch_of_last(60) == 2


def test_epochs_survive_a_flush_without_rereading(volume, fill):
    log = volume.log()
    for epoch in range(30):
        fill(log, 1, epoch=epoch)
    log.flush()
    volume.store.checkpoint_recovery_points()
    again = volume.log()
    assert again.epochs.entries == [(epoch, 10 * epoch) for epoch in range(30)]


@pytest.mark.parametrize("damage", ["missing", "garbage", "flipped"])
def test_producer_snapshots_are_made_good_by_the_batches(volume, a_batch, damage):
    log = idempotent(volume, a_batch)
    before = log.producers.snapshot()
    close_cleanly(volume)
    for path in volume.directory.glob("*.snapshot"):
        if damage == "missing":
            path.unlink()
        elif damage == "garbage":
            path.write_bytes(b"nonsense")
        else:
            data = bytearray(path.read_bytes())
            data[-1] ^= 1
            path.write_bytes(data)
    assert volume.log().producers.snapshot() == before


@pytest.mark.parametrize("other", ["log", "offset"])
def test_snapshot_of_another_log_is_not_trusted(volume, a_batch, other):
    """A batch that only the other log has would have been acknowledged as a retry, and be nowhere;
    as of another offset one that was cut, or the next one would have been refused."""
    log = idempotent(volume, a_batch)
    before = log.producers.snapshot()
    offset = log.log_end_offset
    foreign = ProducerStates([ProducerEntry(7, 0, 1_000, 5_000, 9, 0)])
    elsewhere = volume.directory.with_name("orders-4") if other == "log" else volume.directory
    elsewhere.mkdir(exist_ok=True)
    taken_at = offset if other == "log" else offset + 100
    snapshots = ProducerSnapshots(Disk(), elsewhere)
    close_cleanly(volume)
    snapshots.save(taken_at, foreign, sync=True)
    name = f"{offset:020d}.snapshot"
    (elsewhere / f"{taken_at:020d}.snapshot").rename(volume.directory / name)
    assert volume.log().producers.snapshot() == before


def test_leftovers_of_interrupted_steps_are_removed(volume, fill):
    log = volume.log()
    fill(log, 5)
    for name in (
        "leader-epoch-checkpoint.tmp",
        "00000000000000000900.index",
        "00000000000000000900.timeindex",
        "00000000000000000000.log.deleted",
    ):
        (volume.directory / name).write_bytes(b"x" * 8)
    again = volume.log()
    assert again.log_end_offset == 50
    left = {path.name for path in volume.directory.iterdir()}
    assert not [name for name in left if "900" in name or name.endswith((".tmp", ".deleted"))]


def test_log_start_beyond_end_means_empty_log(volume, fill):
    log = volume.log()
    fill(log, 5)
    starts = checkpoint_formats.encode_offsets({("orders", 3): 80})
    (volume.path / checkpoint_formats.LOG_STARTS).write_bytes(starts)
    again = volume.log()
    assert (again.log_start_offset, again.log_end_offset) == (80, 80)


def test_truncation_and_later_records_survive_a_crash(volume, fill, read_all):
    """S: the epoch file and the recovery point are older than the cut."""
    log = volume.log()
    fill(log, 30, epoch=1)
    fill(log, 10, epoch=2)
    log.flush()
    volume.store.checkpoint_recovery_points()
    log.truncate_to(200)
    fill(log, 25, epoch=5)
    data = read_all(log)
    again = volume.log()
    assert read_all(again) == data
    assert again.epochs.entries == [(1, 0), (5, 200)]


def test_everything_recovered_has_a_good_crc(volume, fill, read_all):
    log = volume.log()
    fill(log, 40)
    path = volume.directory / "00000000000000000240.log"
    path.write_bytes(path.read_bytes()[:-40])
    data = read_all(volume.log())
    position = 0
    for header in iter_headers(data):
        assert check_crc(data, position, header.length)
        position += header.length


def test_epoch_before_reread_part_keeps_its_start(volume, fill):
    log = volume.log()
    fill(log, 6, epoch=1)
    fill(log, 14, epoch=2)
    log.flush()
    volume.store.checkpoint_recovery_points()
    assert [segment.base_offset for segment in log.segments] == [0, 120]
    (volume.directory / "leader-epoch-checkpoint").write_text("0\n1\n1 0\n")
    assert volume.log().epochs.entries == [(1, 0), (2, 60)]
