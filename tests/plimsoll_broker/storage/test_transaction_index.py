"""The index of aborted transactions: Kafka's format, cuts, losses, damage, removal."""

from __future__ import annotations

import struct

import pytest
from tests.plimsoll_broker.storage.conftest import a_batch
from tests.plimsoll_broker.storage.simulated import ORDERS, ROOT, Cut, Machine

from plimsoll_broker.storage import aborted_search
from plimsoll_broker.storage.aborted_search import AbortedSearch
from plimsoll_broker.storage.log import Log
from plimsoll_broker.storage.log_config import LogConfig
from plimsoll_broker.storage.segment import SearchUnfinished
from plimsoll_core.replica.producer_states import EXPIRATION_MS
from plimsoll_core.replica.transactions import last_stable_offset
from plimsoll_wire.batches import TRANSACTIONAL, parse_header, stamp
from plimsoll_wire.control_records import EndMarker, write_end_marker

FOLDER = ROOT / "orders-3"
ENTRY = struct.Struct(">hqqqq")


def write(log: Log, pid: int, sequence: int = 0, **fields: int) -> int:
    base = log.log_end_offset
    data = a_batch(
        base, 1, producer_id=pid, producer_epoch=0, base_sequence=sequence,
        attributes=fields.pop("attributes", TRANSACTIONAL), **fields,
    )  # fmt: skip
    log.append(data, [parse_header(data)])
    return base


def end(log: Log, pid: int, *, commits: bool = False, epoch: int = 0) -> int:
    base = log.log_end_offset
    data = write_end_marker(pid, epoch, EndMarker(commits, 0), 1_000)
    stamp(data, 0, base, 0)
    log.append(data, [parse_header(data)])
    return base


def aborted(log: Log, offset: int = 0, to: int | None = None) -> list[tuple[int, int]]:
    return log.aborted_transactions(offset, log.log_end_offset if to is None else to)


def index_of(machine: Machine, base: int = 0) -> bytearray:
    entry = machine.volume.folder(FOLDER).entries[f"{base:020d}.txnindex"]
    return entry.data  # type: ignore[union-attr]


def three_segments(machine: Machine) -> Log:
    """A transaction aborted in each, one that is open over all of them, and one that commits."""
    log = machine.log()
    write(log, 8)  # 0
    for number in range(3):
        write(log, 7, number)  # 1, 3, 5
        end(log, 7)  # 2, 4, 6
        if number < 2:
            log.roll()
    write(log, 9)
    end(log, 9, commits=True)  # 8
    return log


ALL = [(7, 1), (7, 3), (7, 5)]


def test_index_has_kafkas_format() -> None:
    machine = Machine()
    log = machine.log()
    write(log, 7)
    write(log, 8)
    end(log, 7)
    end(log, 8)
    end(log, 9)
    log.flush(checkpoint=True)
    entries = [ENTRY.unpack_from(index_of(machine), at) for at in (0, ENTRY.size)]
    assert entries == [(0, 7, 0, 2, 1), (0, 8, 1, 3, 4)]
    assert len(index_of(machine)) == 2 * 34


def test_log_without_transactions_has_no_index() -> None:
    machine = Machine()
    log = machine.log()
    write(log, 7, attributes=0)
    log.roll()
    assert not log.transactional
    assert machine.store.close(7, {ORDERS: 0})
    assert not [name for name in machine.names() if name.endswith(".txnindex")]


def test_empty_index_stays_open() -> None:
    """Each batch of a transaction looks whether its segment has one."""
    log = Machine().log()
    write(log, 7)
    index = log.segments[-1].aborted
    assert index is not None
    assert not len(index)
    write(log, 7, 1)
    end(log, 7, commits=True)
    assert log.segments[-1].aborted is index
    end(log, 8)
    write(log, 8)
    end(log, 8)
    assert log.segments[-1].aborted is index
    assert len(index) == 1


def test_aborted_transactions_are_found_over_segments() -> None:
    log = three_segments(Machine())
    assert aborted(log) == ALL
    assert aborted(log, 3) == ALL[1:]
    assert aborted(log, 0, 3) == ALL[:1]
    assert aborted(log, 7) == []


@pytest.mark.parametrize("clean", [True, False])
def test_restart_finds_the_same_transactions(clean: bool) -> None:
    machine = Machine()
    three_segments(machine)
    if clean:
        assert machine.store.close(7, {ORDERS: 9})
    log = machine.log()
    assert aborted(log) == ALL
    assert log.producers.transactions.open == {8: 0}
    assert last_stable_offset(9, 0, log.producers.transactions) == 0


def test_cut_removes_aborted_transactions_behind_it() -> None:
    log = three_segments(Machine())
    log.truncate_to(3)
    assert aborted(log) == ALL[:1]
    log.truncate_to(2)
    assert aborted(log) == []
    assert list(log.producers.transactions.open) == [8, 7]
    write(log, 9)
    log.truncate_to(1)
    write(log, 9)
    assert (end(log, 9), aborted(log)) == (2, [(9, 1)]), "not what was there before"


def test_uncut_index_is_not_believed() -> None:
    machine = Machine()
    log = machine.log()
    for number in range(3):
        write(log, 7, number)
        end(log, 7)
    log.flush(checkpoint=True)
    old = bytes(index_of(machine))
    log.truncate_to(0)
    write(log, 8)
    end(log, 8)
    log.flush()
    index_of(machine)[:] = old
    assert aborted(machine.log()) == [(8, 0)]


@pytest.mark.parametrize("base", [0, 3, 5])
@pytest.mark.parametrize("clean", [True, False])
def test_lost_index_is_made_again(base: int, clean: bool) -> None:
    machine = Machine()
    log = three_segments(machine)
    if clean:
        assert machine.store.close(7, {ORDERS: 9})
    else:
        log.flush(checkpoint=True)
        machine.store.checkpoint_recovery_points()
    del machine.volume.folder(FOLDER).entries[f"{base:020d}.txnindex"]
    assert aborted(machine.log()) == ALL
    assert aborted(machine.log()) == ALL, "and is there"


@pytest.mark.parametrize("base", [0, 3, 5])
def test_index_made_again_survives_power_cut(base: int) -> None:
    machine = Machine()
    three_segments(machine)
    assert machine.store.close(7, {ORDERS: 9})
    machine.volume.write_back()
    del machine.volume.folder(FOLDER).entries[f"{base:020d}.txnindex"]
    machine.log().flush()
    machine.lose_power(Cut(content=False, entries=False))
    assert aborted(machine.log()) == ALL


def forget_producers(log: Log) -> None:
    """All is decided, and the producers are idle for long."""
    log.producers.transactions.committed(log.log_end_offset)
    for now_ms in (0, EXPIRATION_MS):
        log.producers.expire(now_ms)
    assert not log.producers.transactional


def test_lost_index_of_forgotten_producers_is_made_again() -> None:
    """The segment before has one, so this one had one, too."""
    machine = Machine()
    log = machine.log()
    for number in range(2):
        write(log, 7, number)  # 0, 2
        end(log, 7)
        if number:
            forget_producers(log)
        log.roll()
    write(log, 8, attributes=0)
    assert machine.store.close(7, {ORDERS: 5})
    del machine.volume.folder(FOLDER).entries[f"{2:020d}.txnindex"]
    assert aborted(machine.log()) == [(7, 0), (7, 2)]


def test_segment_without_index_read_without_producers_is_indexed() -> None:
    machine = Machine()
    log = machine.log()
    write(log, 8, attributes=0)
    log.roll()
    write(log, 7)  # 1
    end(log, 7)
    forget_producers(log)
    log.roll()
    write(log, 8, attributes=0)
    log.flush()
    log.distrust(1)
    machine.store.checkpoint_recovery_points()
    names = machine.volume.folder(FOLDER).entries
    del names[f"{1:020d}.snapshot"]
    for base in (1, 3):
        del names[f"{base:020d}.txnindex"]
    log = machine.log()
    assert log.transactional
    assert aborted(log) == [(7, 1)]


@pytest.mark.parametrize(
    "entry",
    [(1, 7, 3, 4, 0), (0, 7, -3, 4, 0), (0, 7, 3, 40, 0), (0, 7, 5, 4, 0), (0, 7, 3, 4, 6)],
)
def test_index_that_contradicts_itself_is_made_again(entry: tuple[int, ...]) -> None:
    machine = Machine()
    three_segments(machine)
    assert machine.store.close(7, {ORDERS: 9})
    index_of(machine, 3)[:] = ENTRY.pack(*entry)
    assert aborted(machine.log()) == ALL


def test_torn_entry_is_cut_off() -> None:
    machine = Machine()
    three_segments(machine)
    assert machine.store.close(7, {ORDERS: 9})
    index_of(machine, 5).extend(b"torn")
    assert aborted(machine.log()) == ALL


def test_segment_read_without_producers_is_indexed() -> None:
    machine = Machine()
    log = three_segments(machine)
    machine.store.checkpoint_recovery_points()  # 0: all is read again
    log.flush()
    names = machine.volume.folder(FOLDER).entries
    log.distrust(3)
    machine.store.checkpoint_recovery_points()
    del names[f"{3:020d}.snapshot"]
    index_of(machine, 3).clear()
    assert aborted(machine.log()) == ALL


def test_index_goes_with_its_segment() -> None:
    machine = Machine()
    log = three_segments(machine)
    log.advance_log_start(4)
    machine.remove(synced=True)
    assert [name for name in machine.names() if name.endswith(".txnindex")] == [
        f"{base:020d}.txnindex" for base in (3, 5)
    ]
    assert aborted(log, 4) == ALL[1:]
    log.discard_to(20)
    log.settle()
    assert not [name for name in machine.names() if name.endswith(".txnindex")]
    assert aborted(log, 20) == []
    assert last_stable_offset(20, 20, log.producers.transactions) == 20


def test_retention_reaches_beyond_open_transactions() -> None:
    machine = Machine(LogConfig(segment_bytes=2_000, retention_bytes=1))
    log = three_segments(machine)
    assert machine.retain(9) == 5
    states = log.producers.transactions
    assert last_stable_offset(9, 5, states) == 5, "its other records are not decided"
    log = machine.log()
    assert log.producers.transactions.open == {8: 0}, "the snapshot knows of it"


def test_marker_above_high_watermark_is_undecided_after_restart() -> None:
    machine = Machine()
    log = machine.log()
    write(log, 7)
    end(log, 7, commits=True)
    write(log, 8, attributes=0)
    assert machine.store.close(7, {ORDERS: 1})
    states = machine.log().producers.transactions
    assert last_stable_offset(1, 0, states) == 0
    assert last_stable_offset(2, 0, states) == 2


def markers(log: Log) -> list[int]:
    """Of the transactions that may not be decided."""
    return [each.last_offset for each in log.producers.transactions.ended]


@pytest.mark.parametrize("clean", [True, False])
def test_decided_transactions_are_not_remembered_at_start(clean: bool) -> None:
    machine = Machine()
    log = three_segments(machine)
    assert markers(log) == [2, 4, 6, 8]
    if clean:
        assert machine.store.close(7, {ORDERS: 6})
    else:
        machine.store.checkpoint_high_watermarks({ORDERS: 6})
    log = machine.log()
    assert markers(log) == [6, 8]
    assert aborted(log) == ALL


def test_truncated_log_remembers_no_decided_transactions() -> None:
    log = three_segments(Machine())
    log.producers.transactions.committed(4)
    log.truncate_to(7)
    assert markers(log) == [4, 6]
    log.truncate_to(3)
    assert markers(log) == []
    write(log, 9)
    assert end(log, 9) == 4
    log.producers.transactions.committed(3)
    assert markers(log) == [4], "what was there before was decided"


def test_long_search_goes_on_where_it_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(aborted_search, "ENTRIES_AT_ONCE", 1)
    log = three_segments(Machine())
    search = AbortedSearch(log.segments)
    calls = 0
    while True:
        calls += 1
        try:
            assert search.find(0, 9) == ALL
            break
        except SearchUnfinished:
            assert search.end_of(0, 100) == 9
    assert calls == 4
    assert search.end_of(0, 100) == 100
    with pytest.raises(SearchUnfinished):
        search.find(0, 9)
    with pytest.raises(SearchUnfinished):
        search.find(0, 8)
    search.forget()
    assert search.end_of(0, 100) == 100


def test_many_long_searches_all_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(aborted_search, "ENTRIES_AT_ONCE", 1)
    log = three_segments(Machine())
    search = AbortedSearch(log.segments)
    waiting = [-number for number in range(40)]
    for _ in range(20):
        for offset in tuple(waiting):
            try:
                assert search.find(offset, 9) == ALL
                waiting.remove(offset)
            except SearchUnfinished:
                continue
    assert waiting == []


def test_given_up_searches_make_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(aborted_search, "ENTRIES_AT_ONCE", 1)
    log = three_segments(Machine())
    search = AbortedSearch(log.segments)
    for number in range(40):
        with pytest.raises(SearchUnfinished):
            search.find(-number - 1, 9)
    for _ in range(100):
        try:
            assert search.find(0, 9) == ALL
            return
        except SearchUnfinished:
            continue
    raise AssertionError("it never ends")


def test_long_search_finds_entries_in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(aborted_search, "ENTRIES_AT_ONCE", 1)
    log = Machine().log()
    write(log, 8)  # 0, open over both of the next
    index = log.segments[-1].aborted
    assert index is not None
    for number in range(2):
        write(log, 7, number)  # 1, 3
        end(log, 7)
    index.write()
    end(log, 8, commits=True)  # 5
    for number in range(2, 4):
        write(log, 7, number)  # 6, 8
        end(log, 7)
    found: list[tuple[int, int]] = []
    for _ in range(10):
        try:
            found = aborted(log)
            break
        except SearchUnfinished:
            continue
    assert found == [(7, 1), (7, 3), (7, 6), (7, 8)]
    assert [index.between(at, at + 1)[0].first_offset for at in range(4)] == [1, 3, 6, 8]
    assert [len(index.between(0, at)) for at in range(5)] == [0, 1, 2, 3, 4]
