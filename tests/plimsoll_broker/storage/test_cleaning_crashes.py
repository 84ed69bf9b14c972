"""A cleaned segment that takes the place of others: what every crash and every change leaves."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from tests.plimsoll_broker.storage.cleaning import (
    COMPACT,
    a_machine,
    clean,
    latest,
    overwritten,
    put,
    records,
    whole,
)
from tests.plimsoll_broker.storage.simulated import Cut, Cuts, Machine

from plimsoll_broker.storage.cleaner.newest_keys import SegmentRange
from plimsoll_broker.storage.cleaner.round import CleaningJob, Round
from plimsoll_broker.storage.cleaner.segment_swap import SegmentSwap
from plimsoll_broker.storage.log import Log
from plimsoll_sim.engine.process import ProcessDied

# --- crashes --------------------------------------------------------------------------------------


def crashed_at(step: int, seed: int) -> Machine | None:
    """A round whose process ends at that write, sync or rename; None: it comes to its end."""
    machine = Machine(COMPACT, random.Random(seed))
    log = overwritten(machine, 8)
    machine.volume.crash_in = step
    try:
        clean(log, machine.store.disk)
    except ProcessDied:
        return machine
    machine.volume.crash_in = None
    return None


def shapes(log: Log) -> list[tuple[int, int]]:
    """Base offset and size of each segment."""
    return [(segment.base_offset, segment.size) for segment in log.segments]


def every_step() -> int:
    step = 0
    while crashed_at(step, 0) is not None:
        step += 1
    return step


STEPS = every_step()


def test_there_are_steps_to_crash_at() -> None:
    assert STEPS > 40


@pytest.mark.slow
@pytest.mark.parametrize("step", range(STEPS))
def test_kill_during_round_leaves_old_or_new_groups(step: int) -> None:
    """K3."""
    check_crash(step, 0, None)


@pytest.mark.slow
@pytest.mark.parametrize("step", range(STEPS))
def test_power_cut_during_round_leaves_old_or_new(step: int) -> None:
    """K3."""
    for seed in range(8):
        check_crash(step, seed, frozenset({"names", "tear", "uncut"}))


def check_crash(step: int, seed: int, faults: frozenset[str] | None) -> None:
    machine = crashed_at(step, seed)
    assert machine is not None
    reference = Machine(COMPACT)
    before = overwritten(reference, 8)
    told, old = latest(before), set(shapes(before))
    everything = records(before)
    clean(before, reference.store.disk)
    new = set(shapes(before))
    if faults is not None:
        machine.lose_power(Cuts(random.Random(seed), faults))
    log = machine.log()
    assert latest(log) == told
    assert set(shapes(log)) <= old | new
    whole(log)
    left = [name for name in machine.names() if "swap" in name or "cleaned" in name]
    assert left == []
    assert set(records(log)) <= set(everything)
    put(log, (b"a", b"after"))
    clean(log, machine.store.disk)
    assert latest(log) == {**told, b"a": (24, 1024, False)}


# --- what happens between the steps of a swap -----------------------------------------------------


def a_swap(machine: Machine, log: Log) -> SegmentSwap:
    """Of the first two segments, cleaned and written."""
    disk, group = machine.store.disk, log.segments[:2]
    ends = [following.base_offset for following in log.segments[1:]]
    job = CleaningJob(
        directory=str(log.directory),
        segments=tuple(map(SegmentRange, [each.base_offset for each in log.segments], ends)),
        first_dirty=0,
        end=log.segments[-1].base_offset,
        now_ms=0,
        delete_retention_ms=0,
        buffer_bytes=2**16,
        index_interval_bytes=4096,
    )
    work, made = Round(disk, job, lambda size: None), SegmentSwap(log, disk, group)
    work.measure()
    assert work.clean(made.bases).changed
    return made


def steps_of(made: SegmentSwap, log: Log, count: int) -> None:
    steps = [
        made.commit,
        log.unsynced.sync_names,
        made.install,
        log.unsynced.sync_names,
        made.finish,
        log.unsynced.sync_names,
    ]
    for step in steps[:count]:
        step()


@pytest.mark.parametrize("count", range(7))
@pytest.mark.parametrize("power", [False, True])
def test_log_restarted_during_swap_stays_empty(count: int, power: bool) -> None:
    machine = a_machine()
    log = overwritten(machine)
    steps_of(a_swap(machine, log), log, count)
    log.discard_to(100)
    log.settle()
    put(log, (b"new", b"1"))
    log.flush()
    if power:
        machine.lose_power(Cut(content=True, entries=False))
    again = machine.log()
    assert (again.log_start_offset, again.log_end_offset) == (100, 101)
    assert latest(again) == {b"new": (100, 1100, False)}
    assert [name for name in machine.names() if "swap" in name or "cleaned" in name] == []


@pytest.mark.parametrize("count", range(7))
def test_append_and_flush_go_on_amid_a_swap(count: int) -> None:
    machine = a_machine()
    log = overwritten(machine)
    steps_of(a_swap(machine, log), log, count)
    for _ in range(6):
        put(log, (b"new", b"x" * 80))
    log.flush(checkpoint=True)
    machine.store.checkpoint_recovery_points()
    told = latest(log)
    machine.lose_power(Cut(content=True, entries=False))
    again = machine.log()
    assert latest(again) == told
    whole(again)


@pytest.mark.parametrize("count", range(7))
def test_retention_during_swap_leaves_the_rest(count: int) -> None:
    """compact,delete."""
    machine = a_machine()
    log = overwritten(machine)
    made = a_swap(machine, log)
    steps_of(made, log, count)
    told = {key: at for key, at in latest(log).items() if at[0] >= 30}
    log.advance_log_start(30)
    machine.remove(synced=True)
    machine.lose_power(Cut(content=True, entries=False))
    again = machine.log()
    assert (again.log_start_offset, again.log_end_offset) == (30, 36)
    assert {key: at for key, at in latest(again).items() if at[0] >= 30} == told


def test_swap_is_void_after_truncation_or_policy_change() -> None:
    machine = a_machine()
    log = overwritten(machine)
    made = a_swap(machine, log)
    assert made.holds()
    log.configure(replace(log.config, compact=False))
    assert not made.holds()
    log.configure(replace(log.config, compact=True))
    log.truncate_to(35)
    assert not made.holds()
    made.give_up()
    assert [name for name in machine.names() if "swap" in name or "cleaned" in name] == []


def test_never_compacted_topic_takes_no_hole() -> None:
    machine = a_machine()
    log = overwritten(machine)
    clean(log, machine.store.disk)
    machine.config = replace(COMPACT, compact=False)  # it was, once
    told = latest(log)
    assert latest(machine.log()) == told
    machine.config = replace(COMPACT, compact=False, holes=False)
    assert machine.log().log_end_offset < 36, "the log is cut where its first hole is"


def test_cleaned_segment_has_newest_source_age(volume) -> None:
    """Of a topic that is compacted and deleted from, records without a time age by their file's:
    each round made them new, and they stayed for ever."""
    volume.config = replace(COMPACT, delete=True, retention_ms=1_000, segment_bytes=400)
    log = volume.log()
    for number in range(40):
        put(log, (b"k%d" % (number % 3), b"v" * 20), base_timestamp=-1, max_timestamp=-1)
    before, size = len(log.segments), log.size
    for age, segment in enumerate(reversed(log.segments)):
        segment._disk.set_modified(segment.path, 1_000_000 - age)
    clean(log, volume.store.disk)
    assert log.size < size
    times = [segment.modified_ms() for segment in log.segments]
    assert len(times) == before, "none is so small that it is put to another"
    assert times == [1_000_000 - age for age in reversed(range(before))]
    assert log.apply_retention(1_000_500, log.log_end_offset) == 0
    assert log.apply_retention(1_002_000, log.log_end_offset) == log.segments[-1].base_offset > 0
