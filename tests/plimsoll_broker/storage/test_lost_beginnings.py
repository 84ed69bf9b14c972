"""A log that was noted to begin earlier than its first file does has lost its beginning, after any
end of the broker; no log that is whole is ever accused."""

from __future__ import annotations

import contextlib

import pytest
from tests.plimsoll_broker.storage.conftest import (
    CLUSTER_ID,
    Volume,
    fill,
    read_all,
)
from tests.plimsoll_broker.storage.simulated import (
    ORDERS,
    TOPIC_ID,
    Cut,
    Machine,
    a_flushed_log,
)

from plimsoll_broker.storage.checkpoint_formats import UNSYNCED_BEGINNINGS
from plimsoll_broker.storage.disk import StorageError
from plimsoll_broker.storage.log_config import LogConfig
from plimsoll_core.replica import follower
from plimsoll_sim.engine.process import ProcessDied

FIRST, SECOND = f"{0:020d}", f"{120:020d}"
WRITES = 40
"""More than any step here takes."""


def lose(volume: Volume, *bases: str) -> None:
    """On a real disk, whatever is called so."""
    for base in bases:
        for path in volume.directory.glob(f"{base}.*"):
            path.unlink()


def take(machine: Machine, base: str) -> None:
    entries = machine.volume.folder(machine.store.directory / "orders-3").entries
    for name in [each for each in entries if each.startswith(base)]:
        del entries[name]


# --- what is lost is noticed ----------------------------------------------------------------------


@pytest.mark.parametrize("gone", [(FIRST,), (FIRST, SECOND)])
@pytest.mark.parametrize("chore", [True, False])
def test_log_without_first_files_after_kill_lost_beginning(
    volume: Volume, gone: tuple[str, ...], chore: bool
) -> None:
    """Also where no chore has noted anything: its second file came after a note."""
    log = volume.log()
    fill(log, 40)
    data = read_all(log)
    assert volume.store is not None
    if chore:
        volume.store.checkpoint_log_starts()
    lose(volume, *gone)
    for _ in range(2):  # a start accepts nothing
        log = volume.log()
        assert log.beginning_lost
        assert log.log_start_offset == 120 * len(gone)
        assert data.endswith(read_all(log))
        assert follower.position(5, log) == (5, 400, None)


def test_lost_beginning_is_known_after_power_cut() -> None:
    """Its note, written before the second file, was on no disk when the process was killed."""
    machine = a_flushed_log()
    take(machine, FIRST)
    assert machine.log().beginning_lost
    machine.lose_power(Cut(content=False, entries=True))
    assert machine.log().beginning_lost


def test_unsynced_note_endangers_no_synced_one() -> None:
    machine = a_flushed_log()
    machine.store.checkpoint_log_starts()
    other = machine.store.open_log("others", TOPIC_ID, 0, machine.config, 0)
    fill(other, 20)
    machine.lose_power(Cut(content=False, entries=True))
    take(machine, FIRST)
    assert machine.log().beginning_lost


def test_outdated_unsynced_note_accuses_no_log() -> None:
    """A power cut brings back its file, which was removed after the note was saved."""
    machine = a_flushed_log()
    machine.retain(400)
    machine.lose_power(Cut(content=True, entries=True, back=(UNSYNCED_BEGINNINGS,)))
    log = machine.log()
    assert (log.beginning_lost, log.log_start_offset) == (False, 240)


def test_lost_beginning_is_known_after_clean_stops(volume: Volume) -> None:
    fill(volume.log(), 40)
    lose(volume, FIRST)
    for _ in range(3):
        assert volume.log().beginning_lost
        assert volume.store is not None
        volume.store.checkpoint_log_starts()
        assert volume.store.close(7, {("orders", 3): 400})


def test_beginning_lost_after_clean_stop_is_reported(
    volume: Volume,
) -> None:
    fill(volume.log(), 40)
    assert volume.store is not None
    assert volume.store.close(7, {("orders", 3): 400})
    lose(volume, FIRST)
    with pytest.raises(StorageError, match="the log began at"):
        volume.log()
    assert volume.log().beginning_lost


def test_start_within_the_first_file_is_the_note(volume: Volume) -> None:
    log = volume.log()
    fill(log, 40)
    log.advance_log_start(30)
    assert volume.store is not None
    volume.store.checkpoint_log_starts()
    lose(volume, FIRST)
    assert volume.log().beginning_lost


def test_retry_of_what_is_lost_is_no_retry(volume: Volume) -> None:
    """A leader would have acknowledged it, and nobody has it."""
    log = volume.log()
    fill(log, 12, producer_id=7, producer_epoch=0, base_sequence=0)
    fill(log, 13, producer_id=8, producer_epoch=0, base_sequence=0)
    log.flush(checkpoint=True)
    assert volume.store is not None
    volume.store.checkpoint_recovery_points()
    assert log.producers.newest(7) is not None
    lose(volume, FIRST)
    again = volume.log()
    assert again.producers.newest(7) is None
    assert again.producers.newest(8) is not None


def test_reopened_log_has_still_lost_its_beginning(volume: Volume) -> None:
    fill(volume.log(), 40)
    lose(volume, FIRST)
    log = volume.log()
    assert volume.store is not None
    volume.store.beginnings.begin_forget_all()()
    again = volume.store.begin_reopen(log)()
    volume.store.reopened(log, again)
    assert again.beginning_lost


# --- what ends it ---------------------------------------------------------------------------------


def test_log_that_begins_again_is_whole(volume: Volume) -> None:
    fill(volume.log(), 40)
    lose(volume, FIRST)
    log = volume.log()
    log.discard_to(20)
    log.settle()
    assert not log.beginning_lost
    fill(log, 40)
    again = volume.log()
    assert (again.beginning_lost, again.log_start_offset) == (False, 20)


def test_accepted_beginning_is_whole_after_next_kill(volume: Volume) -> None:
    fill(volume.log(), 40)
    lose(volume, FIRST)
    log = volume.log()
    log.notes.begins(log.log_start_offset)
    assert not volume.log().beginning_lost


# --- what is whole is not accused -----------------------------------------------------------------


@pytest.mark.parametrize("power", [False, True])
@pytest.mark.parametrize("writes", range(0, WRITES, 3))
def test_log_is_not_accused_wherever_retention_is_interrupted(writes: int, power: bool) -> None:
    machine = a_flushed_log()
    machine.store.checkpoint_log_starts()
    machine.volume.crash_in = writes
    with contextlib.suppress(ProcessDied):
        machine.retain(400)
    machine.volume.crash_in = None
    if power:
        machine.lose_power(Cut(content=True, entries=writes % 2 == 0, back=(SECOND,)))
    for _ in range(2):
        log = machine.log()
        assert not log.beginning_lost
        assert log.log_end_offset == 400


@pytest.mark.parametrize("offset", [30, 200, 900])
@pytest.mark.parametrize("writes", range(0, WRITES, 3))
def test_interrupted_restart_of_log_accuses_nobody(writes: int, offset: int) -> None:
    machine = a_flushed_log()
    machine.retain(400)
    machine.volume.crash_in = writes
    with contextlib.suppress(ProcessDied):
        machine.store.logs[ORDERS].discard_to(offset)
    machine.volume.crash_in = None
    log = machine.log()
    assert not log.beginning_lost
    fill(log, 40)
    log = machine.log()
    assert not log.beginning_lost
    machine.store.checkpoint_log_starts()  # a note of a discard that never came may be too late
    if log.segments[1:]:
        take(machine, f"{log.segments[0].base_offset:020d}")
        assert machine.log().beginning_lost


def test_full_disk_drops_oldest_note_and_accuses_nobody() -> None:
    machine = Machine(LogConfig(segment_bytes=2_000, retention_bytes=2_000))
    log = machine.log()
    fill(log, 40)
    log.flush()
    machine.store.checkpoint_recovery_points()
    machine.store.checkpoint_log_starts()
    machine.volume.full = True
    log.apply_retention(0, 400)
    with pytest.raises(StorageError):
        machine.store.checkpoint_log_starts()
    log.unsynced.sync_names()
    assert len(machine.remove_oldest()) == 1
    machine.lose_power(Cut(content=True, entries=False, back=(FIRST,)))
    machine.volume.full = False
    log = machine.log()
    assert not log.beginning_lost
    # From then on it is noted again.
    machine.store.checkpoint_log_starts()
    take(machine, f"{log.segments[0].base_offset:020d}")
    assert machine.log().beginning_lost


def test_pending_note_does_not_outlive_full_removal() -> None:
    machine = a_flushed_log()
    log = machine.store.logs[ORDERS]
    late = machine.store.beginnings.begin_note([(ORDERS, log)])
    machine.store.beginnings.begin_forget_all()()
    late()
    take(machine, FIRST)
    assert not machine.log().beginning_lost


def test_new_log_does_not_inherit_older_notes(
    volume: Volume,
) -> None:
    fill(volume.log(), 40)
    assert volume.store is not None
    volume.store.delete_log(volume.store.logs["orders", 3], 0)
    log = volume.store.open_log("orders", CLUSTER_ID, 3, volume.config, 0)
    log.discard_to(500)
    log.settle()
    fill(log, 1)
    again = volume.start().open_log("orders", CLUSTER_ID, 3, volume.config, 0)
    assert (again.beginning_lost, again.log_start_offset) == (False, 500)


def test_log_without_a_note_is_believed(volume: Volume) -> None:
    """As a full disk leaves it, which takes no note."""
    fill(volume.log(), 40)
    (volume.path / UNSYNCED_BEGINNINGS).unlink()
    lose(volume, FIRST)
    assert not volume.log().beginning_lost
