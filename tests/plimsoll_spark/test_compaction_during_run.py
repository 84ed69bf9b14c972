"""A topic that becomes compacted during a run: what its cleaner removed is no loss, what is missing
besides is one."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from unittest import mock

import msgspec
import pytest
from confluent_kafka.cimpl import Consumer
from tests.plimsoll_spark.tables import KEYS, KnownLog, Read, Sent, examined, foreign

from plimsoll_spark import fold, partition_reader
from plimsoll_spark.checks import Cleaner
from plimsoll_spark.partition_reader import Reader
from plimsoll_spark.records import key_number, key_of
from plimsoll_spark.settings import Produce, Settings, Verify
from plimsoll_spark.values import Counts, Findings
from plimsoll_spark.verdict import Cleaned, Reason, judge

RECORDS = 40
CLEAN = Counts(sent=200, acked=200, read=150)
ASKED = Settings(name="soak", bootstrap="b", topic="t", produce=Produce(records=200))


def written(partition: int = 0) -> tuple[list[Sent], list[Read]]:
    """Records of one producer, each with the key that the producer gives it."""
    sent = [
        Sent(producer=0, sequence=number, partition=partition, offset=number)
        for number in range(RECORDS)
    ]
    keyed = [replace(Read.of(one), key=key_number(0, one.sequence, KEYS)) for one in sent]
    return sent, keyed


def cleaned(read: list[Read], until: int = RECORDS) -> list[Read]:
    """What a cleaner leaves that has reached this offset: of each key the newest, and what is
    later."""
    newest = {one.key: one.offset for one in read}
    return [one for one in read if one.offset >= until or newest[one.key] == one.offset]


def found(directory: Path, sent: list[Sent], read: list[Read], **more: object) -> Findings:
    cleaner = more.pop("cleaner", Cleaner.ON)
    assert isinstance(cleaner, Cleaner)
    return examined(directory, sent, read, {0: (0, RECORDS)}, cleaner=cleaner)


@pytest.mark.parametrize("until", [7, 30, RECORDS])
def test_what_the_cleaner_removed_is_not_lost(tmp_path: Path, until: int) -> None:
    sent, read = written()
    left = cleaned(read, until)
    result = found(tmp_path, sent, left)
    assert (result.counts.lost, result.counts.gaps, result.examples) == (0, 0, ())
    assert result.cleaned == RECORDS - len(left) > 0
    assert result.cleaned_gaps > 0


def test_lost_newest_record_of_a_key_is_found(tmp_path: Path) -> None:
    sent, read = written()
    left = cleaned(read)
    gone = left.pop(1)
    result = found(tmp_path, sent, left)
    count = sum(one.key == gone.key for one in read)
    assert result.counts.lost == count, "no record of the key is left"
    assert result.cleaned == RECORDS - len(left) - count
    assert {one.kind for one in result.examples} == {"lost"}
    assert {one.key for one in result.examples} == {key_of(0, gone.sequence, KEYS)}


def test_lost_end_of_a_compacted_log_is_found(tmp_path: Path) -> None:
    """An unclean election behind the cleaner."""
    sent, read = written()
    result = examined(tmp_path, sent, cleaned(read[:-5], 20), {0: (0, RECORDS)}, cleaner=Cleaner.ON)
    assert result.counts.lost == 5
    assert result.cleaned > 0


def test_newer_record_of_another_writer_removes_too(tmp_path: Path) -> None:
    sent, read = written()
    gone = read.pop()
    other = replace(foreign(gone), offset=RECORDS, key=gone.key)
    result = examined(
        tmp_path, sent, [*cleaned(read), other], {0: (0, RECORDS + 1)}, cleaner=Cleaner.ON
    )
    assert result.counts.lost == 0


def test_many_removed_records_are_no_loss(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fold, "STRAYS_MAX", 3)
    sent, read = written()
    result = found(tmp_path, sent, cleaned(read))
    assert (result.counts.lost, result.cleaned) == (0, RECORDS - len(cleaned(read)))


def test_same_records_are_lost_without_compaction(tmp_path: Path) -> None:
    sent, read = written()
    left = cleaned(read)
    result = found(tmp_path, sent, left, cleaner=Cleaner.OFF)
    assert result.counts.lost == RECORDS - len(left)


def test_complete_partition_is_not_read_again(tmp_path: Path) -> None:
    sent, read = written()
    log = KnownLog(read)
    examined(tmp_path, sent, read, {0: (0, RECORDS)}, cleaner=Cleaner.ON, log=log)
    assert len(log.spans) == len(set(log.spans))


@pytest.mark.parametrize(
    ("checks", "what", "verdict"),
    [
        (("NoLoss", "NoGap"), Cleaned(50, 9), "Inconclusive"),
        (("NoLoss",), Cleaned(0, 9), "Passed"),
        (("NoGap",), Cleaned(50, 0), "Passed"),
        (("Order",), Cleaned(50, 9), "Passed"),
        (("NoLoss",), Cleaned(0, 0), "Passed"),
    ],
)
def test_verdict_says_that_the_topic_was_compacted(
    checks: tuple[str, ...], what: Cleaned, verdict: str
) -> None:
    asked = msgspec.structs.replace(ASKED, verify=msgspec.convert({"checks": checks}, Verify))
    told = judge(asked, CLEAN, stopped=None, recreated=False, cleaned=what)
    assert told.verdict == verdict
    if verdict == "Inconclusive":
        assert told.reason is Reason.TOPIC_COMPACTED
        assert "50 acked records are missing of which the log has a newer one" in told.message


def test_loss_beside_the_cleaner_is_violated() -> None:
    counts = msgspec.structs.replace(CLEAN, lost=1)
    told = judge(ASKED, counts, stopped=None, recreated=False, cleaned=Cleaned(50, 9))
    assert (told.verdict, told.reason) == ("Violated", Reason.RECORDS_LOST)


@pytest.mark.parametrize(
    ("key", "number"),
    [(b"k3", 3), (b"k0", 0), (b"k4", -1), (b"k03", -1), (b"order", -1), (b"", -1), (None, -1)],
)
def test_key_of_another_writer_is_known(key: bytes | None, number: int) -> None:
    with mock.patch.object(partition_reader, "Consumer", autospec=Consumer):
        reader = Reader(bootstrap="b", topic="t", login={}, salt=b"s", keys=KEYS, until_s=0.0)
    message = mock.Mock()
    message.value.return_value = b"x" * 40
    message.key.return_value = key
    assert reader._identity(message) == (-1, -1, number)
