"""Cuts, rolls, retention and discards: what the next power cut may undo, and what it may not."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.plimsoll_broker.storage.conftest import fill, read_all
from tests.plimsoll_broker.storage.simulated import ORDERS, Cut, Machine, a_flushed_log

from plimsoll_broker.storage import checkpoint_formats
from plimsoll_broker.storage.log_config import LogConfig
from plimsoll_wire.batches import iter_headers

NOTHING = Cut(content=False, entries=False)


@pytest.fixture
def machine() -> Machine:
    return Machine()


def terms(data: bytes) -> list[int]:
    return [header.leader_epoch for header in iter_headers(data)]


# --- log starts -----------------------------------------------------------------------------------


def a_log_cut_below_its_start(machine: Machine) -> None:
    """Retention had moved its start to 240 and saved it; an unclean election cut it to 30."""
    machine.config = replace(machine.config, retention_bytes=2_000)
    log = machine.log()
    fill(log, 40)
    assert machine.retain(400) == 240
    log.truncate_to(30)
    assert (log.log_start_offset, log.log_end_offset) == (30, 30)


def test_log_start_does_not_outlive_its_records(machine: Machine) -> None:
    a_log_cut_below_its_start(machine)
    fill(machine.store.logs[ORDERS], 25)  # beyond the old start
    again = machine.log()
    assert (again.log_start_offset, again.log_end_offset) == (30, 280)
    assert len(read_all(again)) == 25 * 161


def test_log_ending_below_old_start_is_kept(machine: Machine) -> None:
    a_log_cut_below_its_start(machine)
    fill(machine.store.logs[ORDERS], 2)
    again = machine.log()
    assert (again.log_start_offset, again.log_end_offset) == (30, 50)


def test_discarded_log_has_no_start_after_power_cut(machine: Machine) -> None:
    a_log_cut_below_its_start(machine)
    log = machine.store.logs[ORDERS]
    fill(log, 2)
    log.flush()
    machine.lose_power(NOTHING)
    again = machine.log()
    assert (again.log_start_offset, again.log_end_offset) == (30, 50)


def test_start_stated_by_first_segment_is_not_saved(machine: Machine) -> None:
    """Only what nothing else says needs a file, and can be out of date."""
    machine.config = replace(machine.config, retention_bytes=2_000)
    log = machine.log()
    fill(log, 40)
    log.advance_log_start(70)
    machine.store.checkpoint_log_starts()
    path = machine.store.directory / checkpoint_formats.LOG_STARTS
    assert b"orders 3 70" in (machine.store.disk.read(path) or b"")
    machine.retain(400)
    machine.store.checkpoint_log_starts()
    assert b"orders 3 240" in (machine.store.disk.read(path) or b""), "names may come back"
    log.flush()
    machine.store.checkpoint_log_starts()
    assert b"orders" not in (machine.store.disk.read(path) or b"")
    assert machine.log().log_start_offset == 240


# --- cuts -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("batches", [12, 15])
def test_truncation_at_roll_survives_power_cut(machine: Machine, batches: int) -> None:
    """At a segment's end and within one: no later sync covers the file that was cut."""
    log = machine.log()
    fill(log, 20, epoch=5)
    log.flush()
    machine.store.checkpoint_recovery_points()
    log.truncate_to(10 * batches)
    log.config = replace(log.config, segment_bytes=161)  # the next batch begins another segment
    fill(log, 20 - batches, epoch=6)
    log.flush(checkpoint=True)
    machine.store.checkpoint_recovery_points()
    expected = terms(read_all(log))
    machine.lose_power(Cut(content=True, entries=True, uncut=True))
    again = machine.log()
    assert terms(read_all(again)) == expected == [5] * batches + [6] * (20 - batches)
    assert again.log_end_offset == 200


def test_tail_that_a_start_cut_stays_cut(machine: Machine) -> None:
    """Damage of the disk, then a roll right there, then another power cut."""
    log = machine.log()
    fill(log, 11, epoch=5)
    log.flush()
    machine.store.checkpoint_recovery_points()
    file = machine.volume.find(machine.store.directory / "orders-3" / f"{0:020d}.log")
    file.data[5 * 161 + 100] ^= 1
    log = machine.log()
    assert log.log_end_offset == 50
    log.config = replace(log.config, segment_bytes=161)
    fill(log, 3, epoch=6)
    log.flush(checkpoint=True)
    machine.store.checkpoint_recovery_points()
    machine.lose_power(Cut(content=True, entries=True, uncut=True))
    again = machine.log()
    assert terms(read_all(again)) == [5] * 5 + [6] * 3


# --- names ----------------------------------------------------------------------------------------


def test_flushed_batches_survive_a_power_cut_over_rolls(machine: Machine) -> None:
    """flush.messages: 1: what was acknowledged is on the disk, its file's name too."""
    log = machine.log()
    for _ in range(30):
        fill(log, 1)
        log.flush()
    machine.store.checkpoint_recovery_points()
    data = read_all(log)
    machine.lose_power(NOTHING)
    again = machine.log()
    assert again.log_end_offset == 300
    assert read_all(again) == data


def test_recovery_point_stays_below_named_segments(machine: Machine) -> None:
    log = machine.log()
    fill(log, 30)
    flush = log.begin_flush()
    flush.sync()
    fill(log, 12)  # rolls while the flush is under way
    log.flushed(flush)
    assert log.recovery_point == 300
    log.flush()
    assert log.recovery_point == 420
    machine.lose_power(NOTHING)
    assert machine.log().log_end_offset == 420


def test_segments_removed_by_retention_stay_removed() -> None:
    """Never synced, removed, and back with a torn end: the log behind it must not be cut."""
    machine = Machine(LogConfig(segment_bytes=2_000, retention_bytes=2_000))
    log = machine.log()
    fill(log, 1)
    log.flush()
    fill(log, 39)
    machine.retain(400)
    log.flush()
    machine.store.checkpoint_recovery_points()
    machine.lose_power(NOTHING)
    again = machine.log()
    assert (again.log_start_offset, again.log_end_offset) == (240, 400)


def a_flushed_log_that_retention_shortened() -> Machine:
    """Of the segments 0, 120, 240 and 360 the first two are gone, and no directory was synced."""
    machine = a_flushed_log()
    assert machine.retain(400) == 240
    return machine


@pytest.mark.parametrize("back", [f"{0:020d}", f"{120:020d}"])
def test_undone_removal_takes_nothing_with_it(back: str) -> None:
    """A gap below the log's start is no damage: what was flushed is there."""
    machine = a_flushed_log_that_retention_shortened()
    data = read_all(machine.store.logs[ORDERS])
    machine.lose_power(Cut(content=True, entries=True, back=(back,)))
    assert f"{back}.log" in machine.names()
    again = machine.log()
    assert (again.log_start_offset, again.log_end_offset) == (240, 400)
    assert read_all(again) == data
    assert not [name for name in machine.names() if name.startswith(back)]


def test_saved_start_stays_until_the_removals_are_synced() -> None:
    """Also over a start, and a second power cut."""
    machine = a_flushed_log_that_retention_shortened()
    machine.store.checkpoint_log_starts()
    machine.lose_power(Cut(content=True, entries=True, back=(f"{0:020d}",)))
    machine.log()
    machine.store.checkpoint_log_starts()
    machine.lose_power(Cut(content=True, entries=True, back=(f"{0:020d}",)))
    assert f"{0:020d}.log" in machine.names()
    again = machine.log()
    assert (again.log_start_offset, again.log_end_offset) == (240, 400)


def test_log_removes_no_segment_above_its_saved_start() -> None:
    machine = Machine(LogConfig(segment_bytes=2_000, retention_bytes=2_000))
    log = machine.log()
    fill(log, 40)
    assert log.apply_retention(0, 400) == 240
    assert machine.remove_below_saved_start(100) == []
    assert [segment.base_offset for segment in log.segments] == [0, 120, 240, 360]
    save = machine.store.begin_log_starts()
    log.advance_log_start(390)  # after the save began
    save()
    log.unsynced.sync_names()
    assert len(machine.remove_below_saved_start(1)) == 1, "no more at once"
    assert len(machine.remove_below_saved_start(100)) == 1
    assert [segment.base_offset for segment in log.segments] == [240, 360]


def a_log_that_is_to_begin_at_240() -> Machine:
    """Of the segments 0, 120, 240 and 360 only the first's name is on the disk."""
    machine = Machine(LogConfig(segment_bytes=2_000, retention_bytes=2_000))
    log = machine.log()
    fill(log, 40)
    assert log.apply_retention(0, 400) == 240
    machine.store.checkpoint_log_starts()
    return machine


def loses_only_the_name_of_240(machine: Machine) -> None:
    machine.lose_power(Cut(content=True, entries=True, back=(f"{240:020d}",)))


def test_segment_with_volatile_name_does_not_become_first() -> None:
    """The log was found to begin at 360: what had been there was gone, and nobody said so."""
    machine = a_log_that_is_to_begin_at_240()
    machine.remove_below_saved_start(100)
    loses_only_the_name_of_240(machine)
    again = machine.log()
    assert (again.log_start_offset, again.log_end_offset) == (240, 240)


def test_segment_made_first_keeps_its_name() -> None:
    machine = a_log_that_is_to_begin_at_240()
    machine.log()  # after a kill
    assert machine.names()[0].startswith(f"{240:020d}")
    loses_only_the_name_of_240(machine)
    again = machine.log()
    assert (again.log_start_offset, again.log_end_offset) == (240, 400)


def test_empty_log_of_killed_process_is_durable_first(machine: Machine) -> None:
    """What was flushed, and acknowledged with flush.messages: 1, went with its directory."""
    machine.log()
    log = machine.log()  # after a kill
    fill(log, 1)
    log.flush()
    machine.lose_power(NOTHING)
    again = machine.log()
    assert (again.log_start_offset, again.log_end_offset) == (0, 10)


def test_first_segment_made_at_start_keeps_name(machine: Machine) -> None:
    """The process died when a discard had removed the only one, and had made no other yet."""
    log = machine.log()
    log.discard_to(7)
    log.settle()
    machine.store.disk.remove(machine.store.directory / "orders-3" / f"{7:020d}.log")
    log = machine.log()
    fill(log, 1)
    machine.lose_power(Cut(content=True, entries=False))
    again = machine.log()
    assert (again.log_start_offset, again.log_end_offset) == (0, 10)


def test_segments_are_removed_up_to_durable_name() -> None:
    machine = a_log_that_is_to_begin_at_240()
    log = machine.store.logs[ORDERS]
    sync, renames = log.unsynced.begin_names()
    fill(log, 20)  # rolls after the sync began
    log.apply_retention(0, 600)
    machine.store.checkpoint_log_starts()
    sync()
    log.unsynced.names_synced(renames)
    assert len(machine.remove_below_saved_start(100)) == 3
    assert [segment.base_offset for segment in log.segments] == [360, 480]


def test_log_without_saved_start_removes_segments_singly() -> None:
    """On a full disk: each removal is on the disk before the next."""
    machine = Machine(LogConfig(segment_bytes=2_000, retention_bytes=2_000))
    log = machine.log()
    fill(log, 40)
    log.flush()
    machine.store.checkpoint_recovery_points()
    log.apply_retention(0, 400)
    assert len(machine.remove_oldest()) == 1
    sync, renames = log.unsynced.begin_names()
    assert machine.remove_oldest() == []
    sync()
    log.unsynced.names_synced(renames)
    assert len(machine.remove_oldest()) == 1
    machine.lose_power(Cut(content=True, entries=True, back=(f"{0:020d}",)))
    again = machine.log()
    assert (again.log_start_offset, again.log_end_offset) == (240, 400)


@pytest.mark.parametrize("entries", [True, False])
def test_torn_removed_segments_disable_no_log(entries: bool) -> None:
    machine = Machine(LogConfig(segment_bytes=2_000, retention_bytes=2_000))
    log = machine.log()
    fill(log, 40)
    machine.retain(400)
    machine.store.checkpoint_recovery_points()
    machine.lose_power(Cut(content=False, entries=entries))
    again = machine.log()
    assert again.log_end_offset <= 400
    fill(again, 5)
    assert len(read_all(again)) == 161 * (again.log_end_offset - again.log_start_offset) // 10


def test_torn_segment_below_recovery_point_truncates_log(machine: Machine) -> None:
    log = machine.log()
    fill(log, 40)
    log.flush()
    machine.store.checkpoint_recovery_points()
    folder = machine.volume.folder(machine.store.directory / "orders-3")
    del folder.entries[f"{120:020d}.log"].data[1_000:]
    del folder.entries[f"{120:020d}.timeindex"]
    again = machine.log()
    assert (again.log_end_offset, again.recovery_point) == (180, 180)
    assert [segment.base_offset for segment in again.segments] == [0, 120]
    fill(again, 30)
    assert len(read_all(machine.log())) == 48 * 161


def test_segments_ending_below_log_start_are_ignored(machine: Machine) -> None:
    """Torn, and back after retention had removed them: the log behind them stays."""
    log = machine.log()
    fill(log, 40)
    log.flush()
    machine.store.checkpoint_recovery_points()
    log.advance_log_start(250)
    machine.store.checkpoint_log_starts()
    folder = machine.volume.folder(machine.store.directory / "orders-3")
    del folder.entries[f"{120:020d}.log"].data[1_000:]
    again = machine.log()
    assert (again.log_start_offset, again.log_end_offset) == (250, 400)
    assert f"{120:020d}.log" not in machine.names()


def test_producer_of_removed_batches_is_known_after_crash() -> None:
    machine = Machine(LogConfig(segment_bytes=2_000, retention_bytes=2_000))
    log = machine.log()
    fill(log, 1, producer_id=7, producer_epoch=0, base_sequence=0)
    fill(log, 39)
    assert machine.retain(400) == 240
    assert [entry.producer_id for entry in machine.log().producers.snapshot()] == [7]


def test_truncated_records_do_not_hide_later_ones(machine: Machine) -> None:
    """As a broker before the cuts were synced may have left them: they end behind the place where
    the next segment begins."""
    log = machine.log()
    fill(log, 20, epoch=5)
    old = bytes(machine.volume.find(machine.store.directory / "orders-3" / f"{120:020d}.log").data)
    log.truncate_to(150)
    log.config = replace(log.config, segment_bytes=161)
    fill(log, 5, epoch=6)
    log.flush()
    machine.store.checkpoint_recovery_points()
    machine.volume.find(machine.store.directory / "orders-3" / f"{120:020d}.log").data[:] = old
    assert terms(read_all(machine.log())) == [5] * 15 + [6] * 5


def test_indexes_rolled_during_flush_are_not_trusted() -> None:
    """The flush covers its records, but not its indexes: half a time index would let retention
    delete it too early."""
    config = LogConfig(segment_bytes=2_000, index_interval_bytes=300, flush_messages=1)
    machine = Machine(config)
    log = machine.log()
    fill(log, 12)
    flush = log.begin_flush()
    log.roll()
    fill(log, 1)
    flush.sync()
    log.flushed(flush)
    machine.store.checkpoint_recovery_points()
    assert (log.recovery_point, log.countable_end, log.log_end_offset) == (0, 120, 130)
    log.flush()
    assert log.recovery_point == 130
    machine.lose_power(Cut(content=False, entries=True))
    again = machine.log()
    assert (again.log_end_offset, again.segments[0].max_timestamp) == (130, 1119)
