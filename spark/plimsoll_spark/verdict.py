"""Judges the counts of a run. Called by `run`; pure.

Violated: the log broke a promise under test. Inconclusive: the evidence is incomplete. A violation
is reported even if the run was cut short; but not if the topic was deleted and recreated, since the
evidence is then of another log. Passed needs something that was examined, for every check that was
asked for: absence proves nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

from plimsoll_spark.settings import Settings
from plimsoll_spark.values import Counts, Example


class Reason(Enum):
    """Why a run got its verdict, or failed."""

    ALL_CHECKS_PASSED = "AllChecksPassed"
    RECORDS_UNREADABLE = "RecordsUnreadable"
    RECORDS_LOST = "RecordsLost"
    RECORDS_CHANGED = "RecordsChanged"
    RECORDS_MISPLACED = "RecordsMisplaced"
    RECORDS_DUPLICATED = "RecordsDuplicated"
    RECORDS_OUT_OF_ORDER = "RecordsOutOfOrder"
    OFFSETS_MISSING = "OffsetsMissing"
    REPLICA_UNREADABLE = "ReplicaUnreadable"
    REPLICAS_DIFFER = "ReplicasDiffer"
    EPOCHS_OUT_OF_ORDER = "EpochsOutOfOrder"
    MIRROR_DIFFERS = "MirrorDiffers"
    REPLICAS_NOT_READ = "ReplicasNotRead"
    TOPIC_RECREATED = "TopicRecreated"
    TOPIC_COMPACTED = "TopicCompacted"
    RECORDS_EXPIRED = "RecordsExpired"
    PRODUCER_EPOCH_RAISED = "ProducerEpochRaised"
    DRIVE_INCOMPLETE = "DriveIncomplete"
    NOTHING_ACKED = "NothingAcked"
    TOO_FEW_ACKED = "TooFewAcked"
    BUDGET_EXCEEDED = "BudgetExceeded"
    DRIVER_STARVED = "DriverStarved"
    NOT_JUDGED = "NotJudged"
    DEADLINE_EXCEEDED = "DeadlineExceeded"
    OUT_OF_MEMORY = "OutOfMemory"
    DISK_FULL = "DiskFull"
    RUN_BROKE = "RunBroke"


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """The verdict of a run: Passed, Violated or Inconclusive, with its reason and a sentence about
    it."""

    verdict: str
    reason: Reason
    message: str


class Cleaned(NamedTuple):
    """Acked records, and gaps in the offsets, that the cleaner of a compacted topic may have
    removed or made."""

    records: int
    gaps: int


NOTHING_CLEANED = Cleaned(0, 0)
_RECREATED = Verdict(
    verdict="Inconclusive",
    reason=Reason.TOPIC_RECREATED,
    message=(
        "the topic was deleted and created again during the Verification, so its records cannot "
        "be judged; create the Verification again"
    ),
)


def judge_unreadable(examples: Sequence[Example]) -> Verdict:
    """Return the verdict Violated for a log with batches that no consumer can read, since their
    records are lost. `examples`: the places of these batches."""
    places = ", ".join(f"{one.topic}-{one.partition} at offset {one.offset}" for one in examples)
    sentence = (
        "consumers cannot read record batches, because their bytes or CRC are wrong on disk: "
        f"{places}"
    )
    return Verdict(verdict="Violated", reason=Reason.RECORDS_UNREADABLE, message=sentence)


def judge(
    settings: Settings,
    counts: Counts,
    *,
    stopped: str | None,
    recreated: bool,
    because: Reason = Reason.DRIVE_INCOMPLETE,
    cleaned: Cleaned = NOTHING_CLEANED,
) -> Verdict:
    """Return Inconclusive if the topic was recreated during the run (`recreated`); else Violated
    for the most serious violation, else Inconclusive for the most serious doubt, else Passed.
    `stopped`: why a producer stopped early, or None; `because`: the reason of an Inconclusive
    verdict if not all records were sent; `cleaned`: what a cleaner may have removed."""
    if recreated:
        return _RECREATED
    for reason, count, sentence in _violations(settings, counts):
        if count:
            return Verdict(verdict="Violated", reason=reason, message=f"{count} {sentence}")
    doubts = (_compacted(settings, cleaned), *_doubts(settings, counts, stopped))
    for reason, applies, sentence in doubts:
        if applies:
            reason = because if reason is Reason.DRIVE_INCOMPLETE else reason
            return Verdict(verdict="Inconclusive", reason=reason, message=sentence)
    message = _what_held(settings, counts)
    if counts.unknown and settings.produce.acks != "None":
        message += f"; {counts.unknown} records got no answer in time and are not judged"
    if counts.unreported:
        message += (
            f"; {counts.unreported} records in the log are of producers that were lost before they"
            " reported, and are not judged"
        )
    return Verdict(verdict="Passed", reason=Reason.ALL_CHECKS_PASSED, message=message)


def judge_partly(settings: Settings, counts: Counts, *, recreated: bool) -> Verdict:
    """Return the verdict of a run when its checks ran out of time: Violated if they had found a
    violation, and the topic was not recreated (`recreated`), else Inconclusive. `counts`: of what
    they had examined."""
    if recreated:
        return _RECREATED
    for reason, count, sentence in _violations(settings, counts):
        if count:
            message = f"{count} {sentence}; the time was up before everything had been examined"
            return Verdict(verdict="Violated", reason=reason, message=message)
    message = (
        f"the time of the Verification was up when {counts.read} records had been read back and "
        f"compared, without a fault; {counts.acked} records were acknowledged"
    )
    return Verdict(verdict="Inconclusive", reason=Reason.DEADLINE_EXCEEDED, message=message)


def _effective(settings: Settings) -> list[str]:
    """Return the checks that this run can fail. A producer without sequence numbers may write
    records twice: its copies are counted, not judged."""
    exact = settings.produce.is_idempotent
    return [name for name in settings.checks if exact or name != "NoDuplicate"]


def _what_held(settings: Settings, counts: Counts) -> str:
    """Return the sentence of a passed run. It names the checks that ran, and claims of the records
    only what these checks prove."""
    names = _effective(settings)
    held = f"{', '.join(names)} held over {counts.read} records that were read back"
    if len(names) < len(settings.checks):
        held += (
            f"; {counts.duplicated} extra copies were counted and not judged, since the producers"
            " were not idempotent"
        )
    if "NoLoss" not in names:
        return f"{held}; loss was not checked"
    return f"all {counts.acked} acknowledged records were read back; the checks {held}"


def _violations(settings: Settings, counts: Counts) -> tuple[tuple[Reason, int, str], ...]:
    checks = _effective(settings)
    loss, order, gap = ("NoLoss" in checks, "Order" in checks, "NoGap" in checks)
    copies = "NoDuplicate" in checks
    return (
        (Reason.RECORDS_LOST, loss * counts.lost, "acked records are lost: the log lacks them"),
        (
            Reason.RECORDS_CHANGED,
            loss * counts.mismatched,
            "acked records are lost: the log has other content at their offsets",
        ),
        (
            Reason.RECORDS_MISPLACED,
            loss * counts.misplaced,
            "acked records are in the log at another offset than the one that was acked",
        ),
        (
            Reason.RECORDS_DUPLICATED,
            copies * counts.duplicated,
            "extra copies of records are in the log, although a producer wrote each only once",
        ),
        (
            Reason.RECORDS_OUT_OF_ORDER,
            order * counts.out_of_order,
            "records are out of order: the log has them after later records of their producer",
        ),
        (
            Reason.OFFSETS_MISSING,
            gap * counts.gaps,
            "gaps are in the offsets of the log, so records may be lost",
        ),
    )


def _compacted(settings: Settings, cleaned: Cleaned) -> tuple[Reason, bool, str]:
    judged = set(settings.checks)
    missing = ("NoLoss" in judged and cleaned.records > 0) or (
        "NoGap" in judged and cleaned.gaps > 0
    )
    sentence = (
        f"the topic was compacted during the Verification: {cleaned.records} acked records are"
        " missing of which the log has a newer one with the same key, and there are"
        f" {cleaned.gaps} gaps in the offsets; the cleaner may have removed these records, so their"
        " loss cannot be judged; use a topic with cleanup.policy delete"
    )
    return Reason.TOPIC_COMPACTED, missing, sentence


def _doubts(
    settings: Settings, counts: Counts, stopped: str | None
) -> tuple[tuple[Reason, bool, str], ...]:
    asked, least = settings.produce.total, settings.verify.min_acked_percent
    return (
        (
            Reason.PRODUCER_EPOCH_RAISED,
            "NoDuplicate" in settings.checks and counts.rewritten > 0,
            f"{counts.rewritten} extra copies of records are in the log because their producers"
            " wrote them again under a later producer epoch, by which no log can recognise them:"
            " librdkafka raises it when records time out, or when a leader changes; the log made no"
            f" copy itself; {counts.unknown} records got no answer",
        ),
        (
            Reason.DRIVE_INCOMPLETE,
            stopped is not None or counts.sent < asked,
            (
                f"only {counts.sent} of {asked} records were sent: "
                if asked
                else "not every record was written and listed: "
            )
            + f"{stopped or 'a producer ended early'}"
            + (f"; {_what_held(settings, counts)}" if counts.read and not counts.expired else ""),
        ),
        (
            Reason.RECORDS_EXPIRED,
            counts.expired > 0,
            f"{counts.expired} acked records are below the log's start; give the topic a longer"
            " retention than the run",
        ),
        (
            Reason.NOTHING_ACKED,
            counts.acked == 0 and (settings.produce.acks != "None" or "NoLoss" in settings.checks),
            "the cluster acked none of the records, so nothing could be checked",
        ),
        (
            Reason.NOTHING_ACKED,
            counts.read == 0 and settings.produce.acks == "None",
            "the log has none of the records, so nothing could be checked",
        ),
        (
            Reason.NOT_JUDGED,
            # A window may settle acknowledgements of records that were read before it.
            counts.read == 0 and counts.acked > 0 and settings.mode == "Once",
            f"the log has none of the {counts.acked} acked records, so {', '.join(settings.checks)}"
            " had nothing to examine; check NoLoss, too",
        ),
        (
            Reason.NOT_JUDGED,
            not _effective(settings),
            f"{', '.join(settings.checks)} cannot be judged, since the producers were not"
            f" idempotent: their {counts.duplicated} extra copies may be their own",
        ),
        (
            Reason.TOO_FEW_ACKED,
            settings.produce.acks != "None" and 100 * counts.acked < least * counts.sent,
            f"{counts.acked} of {counts.sent} records were acked, which is below"
            f" verify.minAckedPercent ({least}); the others got no answer and are not judged",
        ),
    )
