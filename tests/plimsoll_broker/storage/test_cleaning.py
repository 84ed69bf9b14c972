"""A round of compaction on a log: what stays, and what goes."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.plimsoll_broker.storage.cleaning import (
    Pair,
    a_machine,
    a_record,
    batches,
    clean,
    latest,
    overwritten,
    put,
    records,
    whole,
)
from tests.plimsoll_broker.storage.conftest import found_at
from tests.plimsoll_broker.storage.simulated import Machine

from plimsoll_broker.storage.log import Log
from plimsoll_broker.storage.log_config import LogConfig
from plimsoll_core.replica.producer_states import ProducerStates
from plimsoll_wire.batches import BatchError, BatchHeader, iter_headers, seal


def size(log: Log) -> int:
    return sum(segment.size for segment in log.segments)


def test_cleaned_log_keeps_last_record_per_key() -> None:
    machine = a_machine()
    log = overwritten(machine)
    before, was = latest(log), size(log)
    clean(log, machine.store.disk)
    assert latest(log) == before
    assert size(log) < was / 2
    assert len(records(log)) < 10
    again = machine.log()
    assert latest(again) == before
    assert again.log_end_offset == 36


def test_segments_end_where_the_next_begin_after_cleaning() -> None:
    """So that a segment that is missing shows."""
    machine = a_machine()
    log = overwritten(machine)
    clean(log, machine.store.disk)
    ends = {header.next_offset for header, _ in batches(log)}
    assert {segment.base_offset for segment in log.segments[1:]} <= ends


def test_small_segments_become_one() -> None:
    machine = a_machine()
    log = overwritten(machine)
    clean(log, machine.store.disk)
    count = len(log.segments)
    assert count > 2
    clean(log, machine.store.disk, first_dirty=20)
    assert len(log.segments) < count
    assert [name for name in machine.names() if "swap" in name or "cleaned" in name] == []


def test_tombstone_stays_for_its_retention() -> None:
    machine = a_machine()
    log = machine.log()
    put(log, (b"a", b"1"))
    put(log, (b"a", None))
    while len(log.segments) < 3:
        put(log, (b"other", b"x" * 50))
    clean(log, machine.store.disk, now_ms=10_000, retention_ms=500)
    assert latest(log)[b"a"] == (1, 1001, True), "the record's own time is as it was"
    horizon = [h.delete_horizon_ms for h, _ in batches(log) if h.base_offset == 1]
    assert horizon == [10_500]
    clean(log, machine.store.disk, now_ms=10_499, retention_ms=500)
    assert b"a" in latest(log)
    clean(log, machine.store.disk, now_ms=10_500, retention_ms=500)
    assert b"a" not in latest(log)


def test_tombstones_stay_while_clock_is_distrusted() -> None:
    machine = a_machine()
    log = machine.log()
    put(log, (b"a", None))
    while len(log.segments) < 3:
        put(log, (b"other", b"x" * 50))
    clean(log, machine.store.disk, now_ms=10_000, retention_ms=0)
    clean(log, machine.store.disk, now_ms=None, retention_ms=0)
    assert b"a" in latest(log)


def test_first_batch_of_each_leader_epoch_stays() -> None:
    """A replica that copies the log, or makes its terms anew, knows where each began."""
    machine = a_machine()
    log = machine.log()
    for epoch in range(6):
        put(log, (b"a", b"x" * 60), epoch=epoch)
        put(log, (b"a", b"x" * 60), epoch=epoch)
    put(log, (b"b", b"x" * 300), epoch=6)
    log.flush()
    entries = log.epochs.entries
    clean(log, machine.store.disk)
    firsts: dict[int, int] = {}
    for header, _ in batches(log):
        firsts.setdefault(header.leader_epoch, header.base_offset)
    assert list(firsts.items()) == entries
    machine.store.disk.remove(log.directory / "leader-epoch-checkpoint")
    assert machine.log().epochs.entries == entries


def test_retries_of_a_producer_are_recognised_after_cleaning() -> None:
    machine = a_machine()
    log = machine.log()
    for number in range(12):
        put(log, (b"a", b"x" * 60), producer_id=7, producer_epoch=0, base_sequence=number)
    put(log, (b"b", b"x" * 300))
    log.flush()
    before = [entry[:5] for entry in log.producers.snapshot()]
    clean(log, machine.store.disk)
    for name in machine.names():
        if name.endswith(".snapshot"):
            machine.store.disk.remove(log.directory / name)
    assert [entry[:5] for entry in machine.log().producers.snapshot()] == before


def _known_below(log: Log, end: int) -> list[tuple[int, ...]]:
    """Of producers, by the batches below an offset, as a replica that was cut there knows them."""
    known = ProducerStates()
    for header, _ in batches(log):
        if header.next_offset <= end:
            known.update(header)
    return [entry[:5] for entry in known.snapshot()]


@pytest.mark.parametrize("snapshots", ["kept", "lost"])
def test_retries_are_recognised_after_cleaning_and_truncation(
    snapshots: str,
) -> None:
    """Profile cleaning of the simulator, seed 63: a leader wrote eight batches of a producer, of
    which three were committed; only the headers of the last five of all stayed."""
    machine = a_machine()
    log = machine.log()
    for number in range(16):
        put(log, (b"a", b"x" * 60), producer_id=7, producer_epoch=0, base_sequence=number)
    log.flush()
    end = log.segments[2].base_offset
    before = _known_below(log, end)
    assert before
    if snapshots == "lost":
        for name in machine.names():
            if name.endswith(".snapshot"):
                machine.store.disk.remove(log.directory / name)
    clean(log, machine.store.disk, end=end)
    assert _known_below(log, end) == before


def test_records_beyond_round_end_are_left_alone() -> None:
    """K2."""
    machine = a_machine()
    log = overwritten(machine)
    end = log.segments[3].base_offset
    above = [one for one in records(log) if one[0] >= end]
    last_below = {one[2]: one[0] for one in records(log) if one[0] < end}
    clean(log, machine.store.disk, end=end)
    assert [one for one in records(log) if one[0] >= end] == above
    assert {one[2]: one[0] for one in records(log) if one[0] < end} == last_below


def test_round_without_key_memory_continues_next_time() -> None:
    machine = a_machine()
    log = machine.log()
    for number in range(40):
        put(log, (b"%d" % (number % 15), b"x" * 60))
    log.flush()
    before = latest(log)
    end = clean(log, machine.store.disk, buffer_bytes=3_000)
    assert 0 < end < log.segments[-1].base_offset
    rounds = 1
    while end < log.segments[-1].base_offset and rounds < 30:
        end = clean(log, machine.store.disk, first_dirty=end, buffer_bytes=3_000)
        rounds += 1
    assert latest(log) == before
    assert len([one for one in records(log) if one[0] < log.segments[-1].base_offset]) <= 16


def test_batch_with_too_many_keys_is_skipped() -> None:
    machine = a_machine()
    log = machine.log()
    put(log, *[(b"%d" % n, b"1") for n in range(50)])
    for _ in range(8):
        put(log, (b"a", b"x" * 90))
    log.flush()
    end = clean(log, machine.store.disk, buffer_bytes=2_000)
    assert end == log.segments[-1].base_offset
    assert len([one for one in records(log) if one[0] < 50]) == 50


@pytest.mark.parametrize("codec", range(5))
def test_compressed_batches_keep_their_codec(codec: int) -> None:
    machine = a_machine()
    log = machine.log()
    for number in range(20):
        pairs: list[Pair] = [(b"%d" % (number % 3), b"x" * 70), (b"always", b"%d" % number)]
        put(log, *pairs, codec=codec)
    log.flush()
    before = latest(log)
    clean(log, machine.store.disk)
    assert latest(log) == before
    assert {header.codec for header, _ in batches(log) if header.count} == {codec}


def test_older_record_without_key_stays() -> None:
    machine = a_machine()
    log = machine.log()
    put(log, (None, b"1"), (b"a", b"1"))
    for _ in range(8):
        put(log, (b"a", b"x" * 90))
    clean(log, machine.store.disk)
    assert (0, 1000, None, False) in records(log)


@pytest.mark.parametrize("at", [7, 15, 30, 70, 84, 90, 350])
def test_damaged_segment_is_not_cleaned(at: int) -> None:
    """A new CRC, or another place, would hide what is wrong: also of what no CRC covers."""
    machine = a_machine()
    log = overwritten(machine)
    file = machine.volume.find(log.segments[1].path)
    file.data[at] ^= 1
    names, data = machine.names(), bytes(file.data)
    with pytest.raises(BatchError):
        clean(log, machine.store.disk)
    assert machine.names() == names
    assert bytes(file.data) == data


def test_read_continues_to_batch_with_a_record() -> None:
    """librdkafka reports an error where a reply has none."""
    machine = a_machine()
    log = machine.log()
    for _ in range(40):
        put(log, (b"a", b"x" * 70))
    log.flush()
    clean(log, machine.store.disk)
    assert len(log.segments) > 5
    data = log.read(0, 100, log.log_end_offset)
    assert [header.count for header in iter_headers(data)][-1] == 1
    data = log.read(1, 100, log.segments[-1].base_offset)
    assert list(iter_headers(data))[-1].next_offset == log.segments[-1].base_offset


# --- whatever is written --------------------------------------------------------------------------

KEYS = st.sampled_from([b"a", b"b", b"c", b"d", b""])
VALUES = st.sampled_from([None, b"", b"1", b"x" * 50])
BATCHES = st.lists(
    st.tuples(
        st.lists(st.tuples(KEYS, VALUES), min_size=1, max_size=4),
        st.integers(0, 4),
        st.booleans(),
    ),
    min_size=4,
    max_size=40,
)


@settings(max_examples=60, deadline=None)
@given(
    BATCHES,
    st.lists(st.integers(0, 3), min_size=1, max_size=4),
    st.integers(150, 900),
    st.sampled_from([2**20, 900, 1_500, 2_500]),
)
def test_cleaned_log_equals_the_log_by_its_keys(
    written: list[tuple[list[Pair], int, bool]],
    rounds: list[int],
    segment_bytes: int,
    buffer_bytes: int,
) -> None:
    """K1, K2: whatever was written, however often it is cleaned, and with however little memory."""
    machine = Machine(LogConfig(segment_bytes=segment_bytes, compact=True, holes=True))
    log = machine.log()
    epoch = 0
    for pairs, codec, new_epoch in written:
        epoch += new_epoch
        put(log, *pairs, codec=codec, epoch=epoch)
    log.flush()
    told, everything = latest(log), records(log)
    active = log.segments[-1].base_offset
    if len(log.segments) == 1:
        return
    for number, round_ in enumerate(rounds):
        end = log.segments[min(round_, len(log.segments) - 2) + 1].base_offset
        more = {"retention_ms": 100, "buffer_bytes": buffer_bytes}
        cleaned = clean(log, machine.store.disk, now_ms=10_000 + number, end=end, **more)
        assert latest(log) == told
        if cleaned < end:  # there was no memory for more
            clean(log, machine.store.disk, now_ms=10_000, first_dirty=cleaned, end=end, **more)
            assert latest(log) == told
        whole(log)
    assert [one for one in everything if one[0] >= active] == [
        one for one in records(log) if one[0] >= active
    ]
    terms = log.epochs.entries
    machine.store.disk.remove(log.directory / "leader-epoch-checkpoint")
    again = machine.log()
    assert (latest(again), again.epochs.entries) == (told, terms)
    again_headers: list[BatchHeader] = [header for header, _ in batches(again)]
    assert again_headers[-1].next_offset == again.log_end_offset


@pytest.mark.parametrize("base_ms", [1_000, 2**63 - 1, -(2**62)])
@pytest.mark.parametrize("delta_ms", [2**62, 2**63 - 1, -(2**63)])
def test_out_of_range_times_do_not_block_cleaning(base_ms: int, delta_ms: int) -> None:
    """Any client may write them; each round failed, and no other log was cleaned."""
    machine = a_machine()
    log = machine.log()
    for value in (b"old", b"v" * 300, None):
        pairs = ((b"a", value), (b"b", value), (b"c", value))
        data = b"".join(a_record(n, delta_ms, *pair) for n, pair in enumerate(pairs))
        at = log.log_end_offset
        header = BatchHeader(at, 0, 0, 2, 0, 0, 2, base_ms, 1_000, -1, -1, -1, 3)
        log.append(seal(header, data), list(iter_headers(seal(header, data))))
    put(log, (b"c", b"x" * 400))
    put(log, (b"z", b"z"))
    log.flush()
    machine.store.checkpoint_recovery_points()
    clean(log, machine.store.disk, now_ms=2_000)
    clean(log, machine.store.disk, now_ms=20_000)  # its tombstones have a horizon, and go
    assert {key for _, _, key, _ in records(log)} == {b"c", b"z"}
    assert found_at(log, 0) is not None
    assert machine.log().log_end_offset == 11
