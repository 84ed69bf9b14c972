"""A copy that its producer wrote again is told from one that the log made."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from tests.plimsoll_spark.tables import Read, agreeing, examined

from plimsoll_spark.batches import Batch, rows
from plimsoll_spark.copies import rewritten
from plimsoll_spark.settings import Produce, Settings
from plimsoll_spark.verdict import Reason, judge

ID, OTHER, NONE = 7000, 7001, -1


def batch(
    offset: int, sequence: int, *, producer: int = ID, epoch: int = 0, size: int = 2
) -> Batch:
    last = offset + size - 1
    return Batch(offset, last, 100, 3, offset, 0, 0, 0, producer, epoch, sequence, size)


FIRST = (batch(0, 0), batch(2, 2))


@pytest.mark.parametrize(
    ("copy", "is_rewritten"),
    [
        (batch(4, 0, epoch=1), True),
        (batch(4, 2), False),  # the log appended one batch twice
        (batch(4, 4), False),  # no later epoch
        (batch(4, 0, producer=OTHER, epoch=1), False),  # another writer
        (batch(4, NONE, producer=NONE, epoch=NONE), False),
    ],
)
def test_copy_under_later_epoch_is_its_producers(copy: Batch, is_rewritten: bool) -> None:
    told = rewritten(rows([*FIRST, copy]), np.array([4, 5]))
    assert told.tolist() == [is_rewritten, is_rewritten]


def test_batch_of_later_epoch_twice_is_logs(tmp_path: Path) -> None:
    """The first copy under the later epoch is the producer's, the second the log's; neither can be
    told from its number alone, so both count against the log."""
    again = [batch(4, 0, epoch=1), batch(6, 0, epoch=1)]
    told = rewritten(rows([*FIRST, *again]), np.array([4, 5, 6, 7]))
    assert not told.any()


def test_copies_of_batch_within_larger_are_found() -> None:
    held = [batch(0, 0, epoch=0), batch(2, 0, epoch=1, size=6), batch(8, 2, epoch=1)]
    assert rewritten(rows(held), np.array([2, 8])).tolist() == [False, False]


def test_copy_in_no_batch_is_logs() -> None:
    assert rewritten(rows([*FIRST]), np.array([9])).tolist() == [False]
    assert rewritten(rows([]), np.array([9])).tolist() == [False]


@pytest.mark.parametrize(
    ("epoch", "verdict", "reason"),
    [
        (1, "Inconclusive", Reason.PRODUCER_EPOCH_RAISED),
        (0, "Violated", Reason.RECORDS_DUPLICATED),
    ],
)
def test_verdict_blames_log_for_its_copies_alone(
    tmp_path: Path, epoch: int, verdict: str, reason: Reason
) -> None:
    sent, read = agreeing()
    copies = [replace(read[3], offset=10), replace(read[4], offset=11)]
    held = rows([batch(0, 0, size=10), batch(10, 3, epoch=epoch)])
    found = examined(tmp_path, sent, [*read, *copies], {0: (0, 12), 1: (0, 10)}, batches={0: held})
    counts = found.counts
    assert (counts.duplicated, counts.rewritten) == ((0, 2) if epoch else (2, 0))
    assert {one.kind for one in found.examples} == {"rewritten" if epoch else "duplicated"}
    settings = Settings(name="v", bootstrap="b", topic="t", produce=Produce(records=20))
    told = judge(settings, counts, stopped=None, recreated=False)
    assert (told.verdict, told.reason) == (verdict, reason)


def test_copy_of_log_among_rewritten_has_place(tmp_path: Path) -> None:
    sent, read = agreeing()
    again = [replace(one, offset=10 + one.offset) for one in read[:8]]
    copies = [*again, Read(partition=0, offset=18, producer=0, sequence=9)]
    held = rows([batch(0, 0, size=10), batch(10, 0, epoch=1, size=8), batch(18, 9, size=1)])
    found = examined(tmp_path, sent, [*read, *copies], {0: (0, 19), 1: (0, 10)}, batches={0: held})
    assert (found.counts.duplicated, found.counts.rewritten) == (1, 8)
    assert [one.offset for one in found.examples if one.kind == "duplicated"] == [18]
