"""The verdict follows from the counts."""

import msgspec
import pytest

from plimsoll_spark.settings import Check, Produce, Settings, Verify
from plimsoll_spark.values import Counts, Example
from plimsoll_spark.verdict import Reason, judge, judge_partly, judge_unreadable

CLEAN = Counts(sent=200, acked=198, unknown=2, read=199)


def asked(*checks: Check, **produce: object) -> Settings:
    settings = Settings(
        name="soak",
        bootstrap="b",
        topic="t",
        produce=msgspec.convert({"records": 200, **produce}, Produce),
    )
    return msgspec.structs.replace(settings, verify=Verify(checks=checks)) if checks else settings


def test_stopped_run_says_what_was_judged() -> None:
    counts = msgspec.structs.replace(CLEAN, sent=190)
    verdict = judge(
        asked(), counts, stopped="x died", recreated=False, because=Reason.OUT_OF_MEMORY
    )
    assert (verdict.verdict, verdict.reason) == ("Inconclusive", Reason.OUT_OF_MEMORY)
    assert "190 of 200 records were sent: x died; all " in verdict.message


def test_checks_out_of_time_report_what_they_found() -> None:
    assert judge_partly(asked(), CLEAN, recreated=False).reason is Reason.DEADLINE_EXCEEDED
    counts = msgspec.structs.replace(CLEAN, lost=1)
    lossy = judge_partly(asked(), counts, recreated=False)
    assert (lossy.verdict, lossy.reason) == ("Violated", Reason.RECORDS_LOST)
    assert judge_partly(asked(), counts, recreated=True).reason is Reason.TOPIC_RECREATED
    assert "before everything had been examined" in lossy.message


def test_clean_counts_pass_and_report_unanswered() -> None:
    verdict = judge(asked(), CLEAN, stopped=None, recreated=False)
    assert (verdict.verdict, verdict.reason) == ("Passed", Reason.ALL_CHECKS_PASSED)
    assert "2 records got no answer" in verdict.message


@pytest.mark.parametrize(
    ("count", "reason"),
    [
        ("lost", Reason.RECORDS_LOST),
        ("mismatched", Reason.RECORDS_CHANGED),
        ("misplaced", Reason.RECORDS_MISPLACED),
        ("duplicated", Reason.RECORDS_DUPLICATED),
        ("out_of_order", Reason.RECORDS_OUT_OF_ORDER),
        ("gaps", Reason.OFFSETS_MISSING),
    ],
)
def test_violation_names_the_failed_check(count: str, reason: Reason) -> None:
    counts = msgspec.structs.replace(CLEAN, **{count: 1})
    verdict = judge(asked(), counts, stopped=None, recreated=False)
    assert (verdict.verdict, verdict.reason) == ("Violated", reason)


def test_unrequested_check_cannot_fail_run() -> None:
    counts = msgspec.structs.replace(CLEAN, out_of_order=3)
    verdict = judge(asked("NoLoss", "NoGap"), counts, stopped=None, recreated=False)
    assert verdict.verdict == "Passed"


def test_duplicates_of_non_idempotent_producer_are_allowed() -> None:
    counts = msgspec.structs.replace(CLEAN, duplicated=3)
    verdict = judge(asked(idempotent=False), counts, stopped=None, recreated=False)
    assert verdict.verdict == "Passed"


def test_uncounted_copies_are_no_check_that_held() -> None:
    counts = msgspec.structs.replace(CLEAN, duplicated=3)
    some = judge(
        asked("NoDuplicate", "Order", idempotent=False), counts, stopped=None, recreated=False
    )
    assert some.message.startswith("Order held over 199 records that were read back; 3 extra")
    assert "NoDuplicate" not in some.message
    alone = judge(asked("NoDuplicate", idempotent=False), counts, stopped=None, recreated=False)
    assert (alone.verdict, alone.reason) == ("Inconclusive", Reason.NOT_JUDGED)
    assert "NoDuplicate cannot be judged, since the producers were not idempotent" in alone.message


@pytest.mark.parametrize("acks", ["All", "Leader"])
def test_checks_of_an_empty_log_prove_nothing(acks: str) -> None:
    """It lost every record, and loss is not checked."""
    counts = Counts(sent=200, acked=200)
    verdict = judge(asked("Order", "NoGap", acks=acks), counts, stopped=None, recreated=False)
    assert (verdict.verdict, verdict.reason) == ("Inconclusive", Reason.NOT_JUDGED)
    assert "the log has none of the 200 acked records" in verdict.message


def test_shortened_run_never_passes_but_reports_loss() -> None:
    short = msgspec.structs.replace(CLEAN, sent=190)
    stopped = "the deadline came"
    verdict = judge(asked(), short, stopped=stopped, recreated=False)
    assert (verdict.verdict, verdict.reason) == ("Inconclusive", Reason.DRIVE_INCOMPLETE)
    assert "190 of 200" in verdict.message
    lossy = msgspec.structs.replace(short, lost=1)
    assert judge(asked(), lossy, stopped=stopped, recreated=False).verdict == "Violated"


def test_records_removed_by_retention_leave_the_question_open() -> None:
    counts = msgspec.structs.replace(CLEAN, expired=10)
    verdict = judge(asked(), counts, stopped=None, recreated=False)
    assert (verdict.verdict, verdict.reason) == ("Inconclusive", Reason.RECORDS_EXPIRED)


def test_recreated_topic_is_not_blamed() -> None:
    counts = msgspec.structs.replace(CLEAN, lost=98)
    verdict = judge(asked(), counts, stopped=None, recreated=True)
    assert (verdict.verdict, verdict.reason) == ("Inconclusive", Reason.TOPIC_RECREATED)


def test_run_without_a_single_ack_proves_nothing() -> None:
    counts = Counts(sent=200, unknown=200)
    verdict = judge(asked(), counts, stopped=None, recreated=False)
    assert (verdict.verdict, verdict.reason) == ("Inconclusive", Reason.NOTHING_ACKED)


def test_passed_names_the_checks_that_ran() -> None:
    passed = judge(asked("NoLoss", "Order"), CLEAN, stopped=None, recreated=False)
    assert (
        "all 198 acknowledged records were read back; the checks NoLoss, Order held"
        in passed.message
    )


def test_passed_without_noloss_claims_no_record() -> None:
    """Only half of them were read: nobody asked whether the others are there."""
    counts = msgspec.structs.replace(CLEAN, read=80)
    passed = judge(asked("NoDuplicate"), counts, stopped=None, recreated=False)
    assert passed.verdict == "Passed"
    assert passed.message.startswith(
        "NoDuplicate held over 80 records that were read back; loss was not checked"
    )


@pytest.mark.parametrize(("acked", "passes"), [(198, True), (197, False), (1, False)])
def test_run_with_few_acks_is_inconclusive(acked: int, passes: bool) -> None:
    counts = Counts(sent=200, acked=acked, unknown=200 - acked, read=200)
    verdict = judge(asked(), counts, stopped=None, recreated=False)
    expected = ("Passed", Reason.ALL_CHECKS_PASSED)
    refused = ("Inconclusive", Reason.TOO_FEW_ACKED)
    assert (verdict.verdict, verdict.reason) == (expected if passes else refused)


def test_run_without_acks_is_not_asked_for_any() -> None:
    counts = Counts(sent=200, unknown=200, read=200)
    verdict = judge(asked(acks="None"), counts, stopped=None, recreated=False)
    assert verdict.verdict == "Passed"


@pytest.mark.parametrize(
    ("checks", "read"), [((), 0), (("NoLoss",), 200), (("NoLoss", "Order"), 200)]
)
def test_run_that_checked_nothing_never_passes(checks: tuple[Check, ...], read: int) -> None:
    """Without acks no record can be known to be lost."""
    counts = Counts(sent=200, unknown=200, read=read)
    verdict = judge(asked(*checks, acks="None"), counts, stopped=None, recreated=False)
    assert (verdict.verdict, verdict.reason) == ("Inconclusive", Reason.NOTHING_ACKED)


def test_loss_under_acks_leader_is_allowed() -> None:
    counts = msgspec.structs.replace(CLEAN, lost=3)
    assert judge(asked(acks="Leader"), counts, stopped=None, recreated=False).verdict == "Passed"
    stated = msgspec.structs.replace(asked(acks="Leader"), verify=Verify(checks=("NoLoss",)))
    assert judge(stated, counts, stopped=None, recreated=False).verdict == "Violated"


def test_unreadable_batch_is_a_violation_with_its_place() -> None:
    places = tuple(Example(topic="t", partition=p, offset=7, kind="unreadable") for p in (1, 4))
    verdict = judge_unreadable(places)
    assert (verdict.verdict, verdict.reason) == ("Violated", Reason.RECORDS_UNREADABLE)
    assert "t-1 at offset 7, t-4 at offset 7" in verdict.message
