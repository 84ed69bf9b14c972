"""The verifier finds every fault that is put into a log, and nothing in a log without one."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from confluent_kafka import KafkaError
from tests.plimsoll_spark.tables import (
    KEYS,
    RUN,
    KnownLog,
    Read,
    Sent,
    agreeing,
    examined,
    foreign,
    moved,
    write_ledger,
)

from plimsoll_spark import ledger, partition_reader
from plimsoll_spark.ledger import ACKED, UNKNOWN
from plimsoll_spark.partition_reader import Reader
from plimsoll_spark.range_check import Span
from plimsoll_spark.records import key_of, salt_of
from plimsoll_spark.settings import Produce, Settings
from plimsoll_spark.values import Counts
from plimsoll_spark.verdict import Reason, judge

RANGES = {0: (0, 10), 1: (0, 10)}
Fault = Callable[[list[Sent], list[Read]], None]


def tally(directory: Path, fault: Fault) -> Counts:
    sent, read = agreeing()
    fault(sent, read)
    return examined(directory, sent, read, RANGES).counts


def test_agreeing_tables_show_no_fault(tmp_path: Path) -> None:
    found = examined(tmp_path, *agreeing(), RANGES)
    assert found.counts == Counts(sent=20, acked=20, read=20)
    assert found.examples == ()


def test_missing_acknowledged_record_is_lost(tmp_path: Path) -> None:
    found = tally(tmp_path, lambda sent, read: read.pop(3) and None)
    assert (found.lost, found.gaps, found.mismatched) == (1, 1, 0)


def test_other_content_at_offset_is_mismatch(tmp_path: Path) -> None:
    def corrupt(sent: list[Sent], read: list[Read]) -> None:
        read[3] = foreign(read[3])

    found = tally(tmp_path, corrupt)
    assert (found.mismatched, found.foreign, found.lost) == (1, 1, 0)


def test_changed_key_is_a_misplacement(tmp_path: Path) -> None:
    """The record is whole, so it is found; but not as it was acked."""

    def rename(sent: list[Sent], read: list[Read]) -> None:
        read[3] = replace(read[3], key=-1)

    assert tally(tmp_path, rename).misplaced == 1


def test_record_at_another_offset_is_misplaced(tmp_path: Path) -> None:
    def swap(sent: list[Sent], read: list[Read]) -> None:
        read[3], read[4] = moved(read[3], offset=4), moved(read[4], offset=3)

    assert tally(tmp_path, swap).misplaced == 2


def test_record_in_another_partition_is_misplaced(tmp_path: Path) -> None:
    sent, read = agreeing()
    read[3] = replace(read[3], partition=1, offset=10)
    counts = examined(tmp_path, sent, read, {0: (0, 10), 1: (0, 11)}).counts
    assert (counts.misplaced, counts.lost, counts.duplicated, counts.gaps) == (1, 0, 0, 1)


def test_record_below_log_start_has_expired(tmp_path: Path) -> None:
    sent, read = agreeing()
    counts = examined(tmp_path, sent, read[3:], {0: (3, 10), 1: (0, 10)}).counts
    assert (counts.expired, counts.lost, counts.gaps) == (3, 0, 0)


def test_record_beyond_the_log_end_is_lost(tmp_path: Path) -> None:
    """An unclean election shortened the log; what is gone there is no gap."""
    sent, read = agreeing()
    counts = examined(tmp_path, sent, read[:8] + read[10:], {0: (0, 8), 1: (0, 10)}).counts
    assert (counts.lost, counts.gaps) == (2, 0)


def test_ack_without_offset_is_kept_anywhere(tmp_path: Path) -> None:
    def forget(sent: list[Sent], read: list[Read]) -> None:
        sent[3] = replace(sent[3], offset=None)

    assert tally(tmp_path, forget) == Counts(sent=20, acked=20, read=20)


def test_lost_record_is_named_with_its_key(tmp_path: Path) -> None:
    sent, read = agreeing()
    (lost,) = examined(tmp_path, sent, read[:9] + read[10:], {0: (0, 9), 1: (0, 10)}).examples
    assert (lost.partition, lost.offset, lost.kind) == (0, 9, "lost")
    assert (lost.producer, lost.sequence) == (sent[9].producer, sent[9].sequence)
    assert (lost.key or "").startswith("k")


def test_ack_without_offset_or_record_is_lost(tmp_path: Path) -> None:
    def lose(sent: list[Sent], read: list[Read]) -> None:
        sent[3] = replace(sent[3], offset=None)
        read[3] = foreign(read[3])

    assert tally(tmp_path, lose).lost == 1


@pytest.mark.parametrize("partition", [0, 1])
def test_duplicates_are_copies_after_the_first(tmp_path: Path, partition: int) -> None:
    """In the same partition, and in another one."""
    sent, read = agreeing()
    copies = [replace(read[3], partition=partition, offset=offset) for offset in (10, 11)]
    found = examined(tmp_path, sent, read + copies, {0: (0, 10), 1: (0, 10), partition: (0, 12)})
    places = [(one.partition, one.offset) for one in found.examples if one.kind == "duplicated"]
    assert places == [(partition, 10), (partition, 11)]
    assert {(one.producer, one.sequence) for one in found.examples} == {
        (read[3].producer, read[3].sequence)
    }
    assert (found.counts.duplicated, found.counts.out_of_order) == (2, 0)


def test_record_behind_later_one_counts_once(tmp_path: Path) -> None:
    sent, read = agreeing()
    read[2], read[8] = moved(read[2], offset=8), moved(read[8], offset=2)
    found = examined(tmp_path, sent, read, RANGES)
    places = [one.offset for one in found.examples if one.kind == "outOfOrder"]
    assert (found.counts.out_of_order, places) == (6, [3, 4, 5, 6, 7])


def test_order_within_a_key_ignores_other_keys(tmp_path: Path) -> None:
    sent, read = agreeing()
    read = [replace(one, key=one.sequence % 2) for one in read]
    read[3], read[4] = moved(read[3], offset=4), moved(read[4], offset=3)
    assert examined(tmp_path, sent, read, RANGES, order_by_key=True).counts.out_of_order == 0


def test_healthy_log_is_read_once(tmp_path: Path) -> None:
    sent, read = agreeing()
    log = KnownLog(read)
    examined(tmp_path, sent, read, RANGES, log=log)
    assert len(log.spans) == len(set(log.spans)) == 8


def test_gaps_are_found_inside_and_at_both_ends(tmp_path: Path) -> None:
    sent, read = agreeing()
    kept = [r for r in read if r.partition == 1 or 2 <= r.offset <= 4 or 6 <= r.offset <= 8]
    found = examined(tmp_path, sent, kept, RANGES)
    places = [(one.partition, one.offset) for one in found.examples if one.kind == "gap"]
    assert (found.counts.gaps, places) == (3, [(0, 0), (0, 5), (0, 9)])


def test_markers_of_transactions_are_no_gaps(tmp_path: Path) -> None:
    sent, read = agreeing()
    kept = [r for r in read if r.offset not in (4, 5, 7)]
    found = examined(tmp_path, sent, kept, RANGES, markers=[5]).counts
    assert (found.gaps, found.markers, found.lost) == (4, 2, 6)


def test_partition_that_lost_everything_is_one_gap(tmp_path: Path) -> None:
    sent, read = agreeing()
    kept = [r for r in read if r.partition == 1]
    assert examined(tmp_path, sent, kept, RANGES).counts.gaps == 1


def test_records_deleted_during_read_are_expired(tmp_path: Path) -> None:
    """The start was 0 when the reading began, and is 7: offsets 3 to 6 were gone before."""
    sent, read = agreeing()
    left = [r for r in read if r.partition == 1 or not 3 <= r.offset < 7]
    counts = examined(tmp_path, sent, left, RANGES, starts={0: 7}).counts
    assert (counts.expired, counts.lost, counts.gaps) == (4, 0, 0)


class Polled:
    """A message, as `confluent_kafka.Message` shows it."""

    def __init__(self, offset: int, value: bytes | None, key: bytes | None, error: int = 0) -> None:
        self._shown = (offset, value, key, KafkaError(error) if error else None)

    def offset(self) -> int:
        return self._shown[0]

    def value(self) -> bytes | None:
        return self._shown[1]

    def key(self) -> bytes | None:
        return self._shown[2]

    def error(self) -> KafkaError | None:
        return self._shown[3]


class Polling:
    """A consumer of some messages."""

    def __init__(self, messages: list[Polled]) -> None:
        self._messages = messages

    def assign(self, partitions: list[object]) -> None:
        pass

    def consume(self, count: int, timeout: float) -> list[Polled]:
        taken, self._messages = self._messages, []
        return taken


def reader_of(monkeypatch: pytest.MonkeyPatch, messages: list[Polled]) -> Reader:
    monkeypatch.setattr(partition_reader, "Consumer", lambda _: Polling(messages))
    return Reader(bootstrap="b", topic="t", login={}, salt=salt_of(RUN), keys=KEYS, until_s=2.0**40)


def test_records_identify_run_and_completeness(monkeypatch: pytest.MonkeyPatch) -> None:
    mine = Sent(producer=1, sequence=2**33, partition=0, offset=0)
    key = key_of(1, 2**33, KEYS).encode()
    broken = mine.value[:-1] + bytes([mine.value[-1] ^ 1])
    values = [(mine.value, key), (mine.value, b"k"), (broken, key), (b"short", key), (None, None)]
    messages = [Polled(offset, value, name) for offset, (value, name) in enumerate(values)]
    span = Span(partition=0, first=0, end=5)
    log, unreadable = reader_of(monkeypatch, messages).read(span, lambda _: None)
    assert log.ours.tolist() == [True, True, False, False, False]
    assert (log.producer[0], log.sequence[0], f"k{log.key[0]}".encode()) == (1, 2**33, key)
    assert (log.key[1], unreadable) == (-1, None)


def test_batch_with_wrong_crc_ends_the_range(monkeypatch: pytest.MonkeyPatch) -> None:
    good = Sent(producer=0, sequence=0, partition=0, offset=0)
    messages = [Polled(0, good.value, b"k0"), Polled(4, None, None, KafkaError._BAD_MSG)]
    span = Span(partition=0, first=0, end=9)
    log, unreadable = reader_of(monkeypatch, messages).read(span, lambda _: None)
    assert (log.offset.tolist(), unreadable) == ([0], 4)


def test_ledger_counts_outcomes_and_offset_ranges(tmp_path: Path) -> None:
    sent, _ = agreeing()
    sent[3] = replace(sent[3], offset=None)
    sent[5] = replace(sent[5], outcome=UNKNOWN, partition=None, offset=None)
    sent.append(replace(sent[6], sequence=20, partition=2, offset=None))
    write_ledger(tmp_path / "ledger", sent)
    found = ledger.index(tmp_path / "ledger")
    assert found.outcomes == {ACKED: 20, UNKNOWN: 1}
    assert found.acked == {0: (0, 10), 1: (0, 10)}
    assert sum(len(ledger.read((group,))) for group in found.unplaced) == 3


def test_unfinished_ledger_file_is_ignored(tmp_path: Path) -> None:
    write_ledger(tmp_path / "ledger", agreeing()[0])
    (tmp_path / "ledger" / "_producer-0-000009.parquet").write_bytes(b"PAR1 and then nothing")
    assert ledger.index(tmp_path / "ledger").outcomes == {ACKED: 20}


def test_foreign_log_is_lost_not_duplicated(tmp_path: Path) -> None:
    sent, read = agreeing()
    counts = examined(tmp_path, sent, [foreign(one) for one in read], RANGES).counts
    assert (counts.read, counts.foreign, counts.duplicated, counts.mismatched) == (0, 20, 0, 20)


def test_simultaneous_faults_are_counted_and_judged(tmp_path: Path) -> None:
    sent, read = agreeing()
    read[4], read[5] = moved(read[4], offset=5), moved(read[5], offset=4)
    read.append(moved(read[12], offset=10))
    del read[7]
    found = examined(tmp_path, sent, read, {0: (0, 10), 1: (0, 11)})
    counts = found.counts
    assert (counts.sent, counts.acked, counts.read) == (20, 20, 20)
    assert (counts.lost, counts.misplaced, counts.duplicated) == (1, 2, 1)
    assert (counts.out_of_order, counts.gaps, counts.foreign) == (1, 1, 0)
    assert {e.kind for e in found.examples} == {
        *("lost", "misplaced", "duplicated", "outOfOrder", "gap")
    }
    asked = Settings(name="faults", bootstrap="b", topic="t", produce=Produce(records=20))
    verdict = judge(asked, counts, stopped=None, recreated=False)
    assert (verdict.verdict, verdict.reason) == ("Violated", Reason.RECORDS_LOST)
