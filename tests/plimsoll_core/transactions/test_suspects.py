"""Which open transactions of a log are asked about, and what the answers permit."""

import pytest

from plimsoll_core.errors import Code
from plimsoll_core.ids import ProducerLife, TopicPartition
from plimsoll_core.transactions.operations import TransactionFate
from plimsoll_core.transactions.suspects import (
    AGAIN_MS,
    QUIET_MS,
    UNKNOWN_MS,
    LostMarker,
    OpenTransaction,
    Suspects,
)

ONE = OpenTransaction(TopicPartition("orders", 0), 3, ProducerLife(7, 1), 10, 12)
UNKNOWN = Code.INVALID_PRODUCER_ID_MAPPING
SILENT = Code.COORDINATOR_NOT_AVAILABLE


def asked(suspects: Suspects, now_ms: int, *found: OpenTransaction) -> list[OpenTransaction]:
    return suspects.look(found, now_ms)


def test_quiet_transaction_is_asked_about_now_and_then() -> None:
    suspects = Suspects()
    assert asked(suspects, 0, ONE) == []
    assert asked(suspects, QUIET_MS, ONE) == [ONE]
    assert asked(suspects, QUIET_MS + AGAIN_MS - 1, ONE) == []
    assert asked(suspects, QUIET_MS + AGAIN_MS, ONE) == [ONE]


def test_growing_transaction_is_not_asked_about() -> None:
    suspects = Suspects()
    for last in range(10):
        assert asked(suspects, last * QUIET_MS, ONE._replace(last_offset=12 + last)) == []


@pytest.mark.parametrize(
    ("answers", "end"),
    [
        ([UNKNOWN, TransactionFate.COMMITTED], LostMarker.COMMIT),
        ([TransactionFate.ABORTED, SILENT], LostMarker.ABORT),
        ([TransactionFate.OPEN, UNKNOWN], None),
        ([TransactionFate.OPEN, TransactionFate.ABORTED], None),
        ([UNKNOWN, SILENT], None),
        ([UNKNOWN, UNKNOWN], None),
    ],
)
def test_transaction_ends_as_its_coordinator_says(
    answers: list[TransactionFate | Code], end: LostMarker | None
) -> None:
    suspects = Suspects()
    asked(suspects, 0, ONE)
    assert suspects.heard(ONE, answers, QUIET_MS) is end


@pytest.mark.parametrize(
    ("answers", "again_ms"),
    [
        ([TransactionFate.OPEN, SILENT], AGAIN_MS),
        ([UNKNOWN], AGAIN_MS),
        ([UNKNOWN, SILENT], QUIET_MS),
        ([TransactionFate.COMMITTED], QUIET_MS),
    ],
)
def test_unclear_answer_is_asked_for_soon(
    answers: list[TransactionFate | Code], again_ms: int
) -> None:
    suspects = Suspects()
    asked(suspects, 0, ONE)
    assert asked(suspects, QUIET_MS, ONE) == [ONE]
    suspects.heard(ONE, answers, QUIET_MS)
    assert asked(suspects, QUIET_MS + again_ms - 1, ONE) == []
    assert asked(suspects, QUIET_MS + again_ms, ONE) == [ONE]


def test_unknown_producer_is_given_up_after_a_minute() -> None:
    suspects = Suspects()
    asked(suspects, 0, ONE)
    assert suspects.heard(ONE, [UNKNOWN, UNKNOWN], 1) is None
    assert suspects.heard(ONE, [UNKNOWN, SILENT], 50_000) is None, "it counts anew from here"
    assert suspects.heard(ONE, [UNKNOWN], 60_000) is None
    assert suspects.heard(ONE, [UNKNOWN], 60_000 + UNKNOWN_MS - 1) is None
    assert suspects.heard(ONE, [UNKNOWN], 60_000 + UNKNOWN_MS) is LostMarker.ABORT


def test_transaction_that_has_ended_is_left_alone() -> None:
    suspects = Suspects()
    asked(suspects, 0, ONE)
    asked(suspects, 1)
    assert suspects.heard(ONE, [TransactionFate.ABORTED], 2) is None
