"""Compaction of a log with transactions: aborted records, markers, the index, crashes."""

from __future__ import annotations

import pytest
from tests.plimsoll_broker.storage.cleaning import (
    COMPACT,
    a_machine,
    batches,
    keyed_batch,
    latest,
    sealed_segments,
    swap,
    whole,
)
from tests.plimsoll_broker.storage.simulated import ORDERS, Cut, Machine
from tests.plimsoll_broker.storage.test_transaction_index import aborted, end
from tests.plimsoll_broker.storage.transactional_lives import shown

from plimsoll_broker.storage.cleaner.newest_keys import SegmentRange
from plimsoll_broker.storage.cleaner.round import CleaningJob, Round
from plimsoll_broker.storage.cleaner.segment_swap import SegmentSwap
from plimsoll_broker.storage.log import Log
from plimsoll_core.compaction.plan import groups
from plimsoll_core.replica.transactions import last_stable_offset
from plimsoll_sim.engine.process import ProcessDied
from plimsoll_wire.batches import TRANSACTIONAL, iter_headers

DAY_MS = 86_400_000


def put(log: Log, pid: int, key: bytes, value: bytes | None, sequence: int = 0) -> int:
    base = log.log_end_offset
    data = keyed_batch(
        base, [(key, value)], producer_id=pid, producer_epoch=0, base_sequence=sequence,
        attributes=TRANSACTIONAL,
    )  # fmt: skip
    log.append(data, list(iter_headers(data)))
    return base


def clean(machine: Machine, log: Log, now_ms: int | None = 10_000, upto: int | None = None) -> None:
    """A round up to the end of the sealed segments, or up to `upto`."""
    log.flush()
    index = log.segments[-1].aborted
    if index is not None:
        index.write()
    sealed = sealed_segments(log)
    if upto is not None:
        sealed = [each for each in sealed if each.end_offset <= upto]
    job = CleaningJob(
        directory=str(log.directory),
        segments=tuple(SegmentRange(one.base_offset, one.end_offset) for one in sealed),
        first_dirty=0,
        end=sealed[-1].end_offset,
        now_ms=now_ms,
        delete_retention_ms=1_000,
        buffer_bytes=2**20,
        index_interval_bytes=log.config.index_interval_bytes,
        transactional=log.transactional,
    )
    work = Round(machine.store.disk, job, lambda size: None)
    by_base = {segment.base_offset: segment for segment in log.segments}
    done = work.measure()
    for group in groups(sealed, done, log.config.segment_bytes):
        made = SegmentSwap(log, machine.store.disk, [by_base[one.base_offset] for one in group])
        if work.clean(made.bases).changed:
            swap(log, made)


def left(log: Log) -> list[tuple[int, int, bool]]:
    """Of each batch with records: base offset, producer, and whether it is a marker."""
    return [(h.base_offset, h.producer_id, h.is_control) for h, _ in batches(log) if h.count]


def some_transactions(machine: Machine) -> Log:
    """a: committed, then aborted; b: aborted in a segment, its marker in the next."""
    log = machine.log()
    put(log, 7, b"a", b"good")  # 0
    end(log, 7, commits=True)  # 1
    put(log, 7, b"a", b"bad", 1)  # 2
    put(log, 8, b"b", b"bad")  # 3
    end(log, 7)  # 4
    log.roll()
    put(log, 9, b"c", b"good")  # 5
    end(log, 8)  # 6
    end(log, 9, commits=True)  # 7
    log.roll()
    put(log, 9, b"d", b"last", 1)  # 8
    return log


def test_aborted_records_go_and_supersede_nothing() -> None:
    machine = a_machine()
    log = some_transactions(machine)
    clean(machine, log)
    whole(log)
    kept = {key: at[0] for key, at in latest(log).items() if not key.startswith(b"\0")}
    assert kept == {b"a": 0, b"c": 5, b"d": 8}
    markers = [(1, 7, True), (4, 7, True), (6, 8, True), (7, 9, True)]
    assert [each for each in left(log) if each[2]] == markers
    assert aborted(log) == [(8, 3)], "the segment of its marker is as it was"
    assert log.producers.transactions.open == {9: 8}


def test_markers_go_a_delete_horizon_after_their_records() -> None:
    machine = a_machine()
    log = some_transactions(machine)
    clean(machine, log, now_ms=None)
    clean(machine, log, now_ms=10_000)  # those of aborted ones get their horizon
    assert [each[0] for each in left(log) if each[2]] == [1, 4, 6, 7]
    clean(machine, log, now_ms=10_500)
    assert [each[0] for each in left(log) if each[2]] == [1, 4, 6, 7]
    clean(machine, log, now_ms=11_000)
    assert [each[0] for each in left(log) if each[2]] == [1, 7], "records of these are left"
    whole(log)
    machine.log()
    assert aborted(machine.log()) == []


def test_marker_stays_while_clock_is_distrusted() -> None:
    machine = a_machine()
    log = some_transactions(machine)
    for _ in range(3):
        clean(machine, log, now_ms=None)
    assert [each[0] for each in left(log) if each[2]] == [1, 4, 6, 7]


def test_transaction_beyond_round_end_stays_in_index() -> None:
    machine = a_machine()
    log = some_transactions(machine)
    put(log, 9, b"e", b"bad", 2)  # 9
    end(log, 9)  # 10
    clean(machine, log, upto=5)
    assert aborted(log) == [(8, 3), (9, 8)], "its marker is behind what was cleaned"
    assert (3, 8, False) not in left(log)
    assert aborted(machine.log()) == [(9, 8)], "read again, none of its records is left"


def test_fresh_copy_of_cleaned_log_decides_the_same() -> None:
    machine = a_machine()
    log = some_transactions(machine)
    for now_ms in (10_000, 20_000, 30_000):
        clean(machine, log, now_ms=now_ms)
    other = Machine(COMPACT)
    copied = other.log()
    for header, data in batches(log):
        copied.append(data, [header])
    assert copied.producers.transactions.open == {9: 8}
    assert last_stable_offset(9, 0, copied.producers.transactions) == 8
    assert aborted(copied) == aborted(log) == []


@pytest.mark.parametrize("power", [False, True])
@pytest.mark.parametrize("crash", range(40))
def test_crash_during_cleaning_keeps_transactions(crash: int, power: bool) -> None:
    machine = a_machine()
    log = some_transactions(machine)
    log.flush()
    machine.store.checkpoint_recovery_points()
    machine.volume.crash_in = crash
    try:
        clean(machine, log, upto=5)
    except ProcessDied:
        pass
    finally:
        machine.volume.crash_in = None
    if power:
        machine.lose_power(Cut(content=False, entries=False))
    log = machine.log()
    if power and log.log_end_offset < 8:
        return
    told = shown_to(log, min(8, log.log_end_offset))
    assert told == [0, 5], "what a reader of committed transactions sees"
    assert machine.store.close(7, {ORDERS: 8})
    assert shown_to(machine.log(), 8) == [0, 5]


def shown_to(log: Log, stable: int) -> list[int]:
    """The batches that a reader up to the last stable offset does not leave out."""
    below = [each for each in batches(log) if each[0].base_offset < stable and each[0].count]
    return shown(below, log.aborted_transactions(0, stable))
