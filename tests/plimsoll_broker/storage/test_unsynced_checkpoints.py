"""What a start believes is on the disk, whatever the process before it had not synced yet."""

from __future__ import annotations

import random
from uuid import uuid5

import pytest
from tests.plimsoll_broker.storage.conftest import fill, read_all
from tests.plimsoll_broker.storage.simulated import ORDERS, TOPIC_ID, Cut, Machine, a_flushed_log

from plimsoll_broker.storage.disk import StorageError, StorageFault
from plimsoll_broker.storage.log import Log
from plimsoll_sim.engine.process import ProcessDied

LOG_STARTS = "log-start"


class NothingOfIt(random.Random):
    """Of the I/O in which the process is killed nothing happens."""

    def choice(self, seq):
        return seq[0]


@pytest.fixture
def machine() -> Machine:
    """The log's segments 0, 120, 240 and 360 are flushed; retention begins at 240."""
    return a_flushed_log()


def killed_at_io(machine: Machine, number: int) -> None:
    machine.volume._rng = NothingOfIt()
    machine.volume.crash_in = number


def test_reopened_log_removes_nothing_below_unsaved_start(
    machine: Machine,
) -> None:
    """Several went at once below a start that only the memory knew: a power cut brought back one,
    and what lay behind the gap was dropped."""
    log = machine.store.logs[ORDERS]
    machine.volume.full = True
    with pytest.raises(StorageError):
        fill(log, 1)
    assert log.apply_retention(0, 400) == 240
    with pytest.raises(StorageError):
        machine.store.checkpoint_log_starts()
    machine.volume.full = False
    again = machine.store.begin_reopen(log)()
    machine.store.reopened(log, again)
    assert (again.log_start_offset, again.log_end_offset) == (240, 400)
    machine.lose_power(Cut(content=True, entries=True, back=(f"{0:020d}",)))
    assert machine.log().log_end_offset == 400


def test_log_start_trusted_at_start_survives_power_cut(machine: Machine) -> None:
    """The process before was killed between the checkpoint's rename and its directory's sync."""
    log = machine.store.logs[ORDERS]
    machine.store.checkpoint_log_starts()
    log.apply_retention(0, 400)
    machine.store.beginnings.begin_note([(ORDERS, log)])()  # comes before
    killed_at_io(machine, 1)
    with pytest.raises(ProcessDied):
        machine.store.checkpoint_log_starts()
    assert machine.log().log_start_offset == 240
    machine.lose_power(Cut(content=True, entries=True, back=(f"{0:020d}", LOG_STARTS)))
    again = machine.log()
    assert (again.log_start_offset, again.log_end_offset) == (240, 400)


def test_lowered_log_start_survives_kill_and_power_cut(
    machine: Machine,
) -> None:
    """The next life read the lowered start, saved nothing, and wrote below the old one."""
    log = machine.store.logs[ORDERS]
    machine.retain(400)
    machine.store.checkpoint_log_starts()
    killed_at_io(machine, 3)  # after the recovery points and the rename of the log starts
    with pytest.raises(ProcessDied):
        log.truncate_to(30)
    log = machine.log()
    log.truncate_to(30)
    log.settle()
    fill(log, 25, epoch=9)
    log.flush()
    machine.lose_power(Cut(content=True, entries=True, back=(LOG_STARTS,)))
    again = machine.log()
    assert (again.log_start_offset, again.log_end_offset) == (30, 280)
    assert len(read_all(again)) == 25 * 161


# --- a new log whose sync fails -------------------------------------------------------------------


@pytest.fixture
def broken(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of partitions whose directories fail the next sync, once each."""
    names: list[str] = []
    disk = machine.store.disk
    plain = type(disk).sync

    def sync(self, path):
        if path.parent.name in names:
            names.remove(path.parent.name)
            raise StorageError(StorageFault.IO, path, "input/output error")
        plain(self, path)

    monkeypatch.setattr(type(disk), "sync", sync)
    return names


def a_new_log(machine: Machine, topic: str) -> Log:
    topic_id = uuid5(TOPIC_ID, topic)
    return machine.store.open_log(topic, topic_id, 0, machine.config, 0)


def test_new_log_with_failed_sync_takes_no_record(machine: Machine, broken: list[str]) -> None:
    bad = a_new_log(machine, "bad")
    broken.append("bad-0")
    make_durable = machine.store.begin_new()
    assert make_durable is not None
    make_durable()
    assert broken == []
    with pytest.raises(StorageError):
        fill(bad, 1)
    assert bad.fault is not None


def test_new_log_with_failed_sync_blocks_no_other(machine: Machine, broken: list[str]) -> None:
    a_new_log(machine, "bad")
    good = a_new_log(machine, "good")
    broken.append("bad-0")
    make_durable = machine.store.begin_new()
    assert make_durable is not None
    make_durable()
    assert machine.store.begin_new() is None, "it is not tried again"
    assert machine.store.new_logs.among([("good", 0)]) == []
    fill(good, 1)
    good.flush()
    machine.lose_power(Cut(content=True, entries=False))
    machine.start()
    again = machine.store.open_log("good", good.topic_id, 0, machine.config, 0)
    assert again.log_end_offset == 10
