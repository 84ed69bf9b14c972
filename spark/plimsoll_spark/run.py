"""One verification from start to verdict: phases Producing, Verifying and Completed.

Called by `verification`. A worker thread waits for Spark; the main thread publishes progress
meanwhile, and cancels Spark's jobs when their time is up. Every wait is bounded by the deadline.
"""

from __future__ import annotations

import logging
import time
import uuid
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

import msgspec
from confluent_kafka import KafkaException
from pyspark.sql import SparkSession

from plimsoll_spark import (
    cgroup,
    checks,
    drive,
    evidence,
    executor_checks,
    executor_drive,
    executor_start,
    ledger,
    report,
    session,
)
from plimsoll_spark.attempts import UNORDERED
from plimsoll_spark.budget import budget_lines, judge_budget
from plimsoll_spark.capacity import search_rate
from plimsoll_spark.evidence import BegunMeanwhile, Evidence, KeptRun
from plimsoll_spark.existing_topics import ExistingTopics
from plimsoll_spark.facts import DRILL, facts
from plimsoll_spark.isr_watch import IsrWatch
from plimsoll_spark.job_watch import TimeUp, as_json, publish_progress, watch
from plimsoll_spark.login import librdkafka
from plimsoll_spark.publish import COMPACTED, Publisher
from plimsoll_spark.records import salt_of
from plimsoll_spark.settings import Refusal, Refused, Settings, check
from plimsoll_spark.topics import Ranges, TopicClient
from plimsoll_spark.values import (
    BudgetLine,
    Capacity,
    Counts,
    Findings,
    Kept,
    Outcome,
    Progress,
    Timing,
)
from plimsoll_spark.verdict import (
    Cleaned,
    Reason,
    Verdict,
    judge,
    judge_partly,
    judge_unreadable,
)

FINAL_WITHIN_S = 180.0  # longer than an API server that is being restarted is away
TOPIC_WITHIN_S = 60.0
LATE_WITHIN_S = 10.0  # for the topic's id after the deadline
CANCEL_WITHIN_S = 90.0
SETTLING_SHARE, DRIVING_SHARE = 0.5, 0.75
"""Shares of the time that is reserved for the checks: after the first, sent records without an
outcome become unknown; after the second, producers that still run are cancelled."""

log = logging.getLogger(__name__)
T = TypeVar("T")


class Unreadable(Exception):
    """The log holds a batch that no consumer can read, so the checks could not run. It is an error
    of the run, and no verdict, if the check NoLoss was not requested."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DriveEnd:
    """How the writing ended. `hung`: why not all producers ended in time, or None; `isr_seconds`:
    the longest time for which an ISR was not full, None if the budget has no limit for it."""

    hung: str | None
    isr_seconds: float | None


class Run:
    """One verification: writes records, checks the log, and publishes progress and verdict."""

    def __init__(
        self, settings: Settings, publisher: Publisher, work: Path, kept: Evidence
    ) -> None:
        """`work`: the directory of temporary files; `kept`: the evidence, which holds the
        ledger."""
        self._settings = settings
        self._publisher = publisher
        self._work = work
        self._evidence = kept
        self._claim = UNORDERED
        self._kept: KeptRun | None = None  # None: the run has not begun
        self._examination: checks.Examination | None = None  # None: the checks have not begun
        self._started_s = time.time()
        self._deadline_s = self._started_s + settings.deadline_seconds
        self._counts = Counts()
        self._topic_id: str | None = None
        self._compacted = False
        self._capacity: Capacity | None = None
        self._budget: tuple[BudgetLine, ...] = ()
        self._timing = Timing(start_time=rfc3339(self._started_s))

    def execute(self) -> Outcome:
        """Write the records, unless an earlier driver of this run did; check the log; publish the
        outcome and return it. At the deadline, the verdict is about what was checked until then.
        Raises `Refusal` if the run must not start, `Unreadable` if the log cannot be checked,
        KafkaException if the brokers do not answer, `PublishFailed` if the outcome cannot be
        stored, and `Superseded` if another driver works on the run now."""
        # First: what a driver sees after a later one has begun may be that one's work.
        self._claim = self._publisher.claim(
            within_s=FINAL_WITHIN_S, alone=not self._evidence.is_kept
        )
        check(self._settings)
        limits = cgroup.limits()
        refuse_little(limits)
        settings = self._settings
        client = TopicClient(settings.bootstrap, settings.topic, librdkafka(settings.login))
        cores = limits.tasks
        if settings.runner.executors:
            cores = settings.runner.executors * settings.runner.cores
            executor_start.refuse_pods(settings.name, settings.runner)
        self._progress("Producing")
        try:
            kept = self._begun(client)
            spark = session.build(
                name=settings.name,
                cores=cores,
                work=self._work,
                runner=settings.runner,
                jvm=session.Jvm(heap_mb=limits.heap_mb, events=self._evidence.events),
            )
            try:
                executor_start.wait(spark, settings)
                with self._isr_watch(client) as isr:
                    hung = self._drive(spark, cores) if kept.writes else None
                    findings = self._verify(spark, client, cores)
                    isr_seconds = self._isr_seconds(isr)
            except TimeUp:
                return self._publish_partly(client)
            finally:
                spark.stop()
            recreated = kept.topic_id != client.topic_id(TOPIC_WITHIN_S)
        finally:
            client.close()
        drive_ended = DriveEnd(hung=hung, isr_seconds=isr_seconds)
        return self._judged(kept, findings, drive_ended, recreated=recreated)

    def _begun(self, client: TopicClient) -> KeptRun:
        """Return the earlier run if there is evidence of it, else the run that begins now. Write
        its run file. Raises `Refusal`, `Superseded`."""
        try:
            return self._begin(client)
        except BegunMeanwhile:
            return self._begin(client)

    def _begin(self, client: TopicClient) -> KeptRun:
        settings = self._settings
        earlier = self._evidence.earlier()
        partitions = client.partitions(TOPIC_WITHIN_S)
        if earlier is None:
            topic_id = client.topic_id(TOPIC_WITHIN_S)  # first: what follows is about this one
            before = client.ranges(partitions, TOPIC_WITHIN_S)
            refuse_foreign(settings, before)
            run_id = f"{settings.name}-{uuid.uuid4().hex}"
            kept = evidence.begun(settings, run_id, topic_id, before)
        else:
            kept = evidence.resumed(earlier, settings)
            self._settings = msgspec.structs.replace(settings, produce=kept.produce)
            self._timing = Timing(start_time=rfc3339(kept.started_s))
            self._deadline_s = time.time() + settings.verify.timeout_seconds
            log.info(
                "an earlier driver pod of the Verification's run %s ended before the verdict; "
                "this one (number %d) writes no records, and judges those that the earlier one "
                "has listed as written",
                *(settings.run_name, kept.attempt),
            )
        kept = self._evidence.begin(kept, self._claim)
        self._kept, self._topic_id = kept, kept.topic_id
        return kept

    def _judged(
        self, kept: KeptRun, findings: Findings, ended: DriveEnd, *, recreated: bool
    ) -> Outcome:
        settings = self._settings
        told, stopped = drive.progress(self._evidence.directory / "progress")
        stopped, because = ended.hung or stopped, Reason.DRIVE_INCOMPLETE
        if stopped is None and (unlisted := told["sent"] - findings.counts.sent) > 0:
            stopped = f"the list of written records lacks {unlisted} of {told['sent']} records"
        if not kept.writes:
            findings, stopped = after_a_death(kept, findings, told)
            because = Reason(kept.reason) if kept.reason in _CAUSES else because
        if recreated:
            findings = without_fates(findings)
        if findings.unreadable and "NoLoss" not in settings.checks:
            raise Unreadable(judge_unreadable(findings.examples).message)
        if findings.unreadable:
            return self._publish_verdict(judge_unreadable(findings.examples), findings)
        verdict = judge(
            settings,
            findings.counts,
            stopped=stopped,
            recreated=recreated,
            because=because,
            cleaned=Cleaned(findings.cleaned, findings.cleaned_gaps),
        )
        held = drive.held(self._evidence.directory / "progress")
        # A later driver judges stalls and latencies by the ledger, and has watched no ISR.
        isr_seconds = ended.isr_seconds if kept.writes else None
        if kept.writes:
            self._budget = budget_lines(settings.budget, findings, held, isr_seconds)
        if verdict.verdict == "Passed":
            verdict = judge_budget(settings.budget, findings, held, isr_seconds) or verdict
        return self._publish_verdict(verdict, findings)

    def _publish_partly(self, client: TopicClient) -> Outcome:
        """Publish the verdict on the part that the checks had examined when their time was up;
        Inconclusive if there is none. Return the outcome."""
        examined = self._examination
        findings = None
        if examined is not None:
            compacted = self._is_compacted()
            findings = checks.partial_findings(examined, client, compacted=compacted)
        try:
            recreated = self._topic_id != client.topic_id(LATE_WITHIN_S)
        except KafkaException:
            findings, recreated = None, False
        if findings is None:
            sentence = (
                f"the time of the Verification was up before its {self._counts.acked} "
                "acknowledged records were read"
            )
            return self._publish_unfinished(Reason.DEADLINE_EXCEEDED, sentence, "Completed")
        findings = without_fates(findings) if recreated else findings
        verdict = judge_partly(self._settings, findings.counts, recreated=recreated)
        return self._publish_verdict(verdict, findings)

    @property
    def may_be_resumed(self) -> bool:
        """Return True if another driver will be started for this run should this one fail."""
        requested = self._settings.evidence
        return (
            requested is not None
            and self._kept is not None
            and self._kept.attempt < requested.attempts
        )

    def leave(self, reason: str, message: str) -> None:
        """Write to the run file why this driver ends without a verdict, for the next driver, which
        judges the ledger. Raises OSError."""
        assert self._kept is not None, "the run may be resumed"
        self._evidence.note_failure(self._kept, reason, message)

    def publish_broken(self, reason: str, message: str) -> None:
        """Publish the phase Failed with the verdict Inconclusive, since the run itself failed.
        Raises `PublishFailed`."""
        self._publish(self._inconclusive(reason, message), "Failed", None)

    def _isr_watch(self, client: TopicClient) -> AbstractContextManager[IsrWatch | None]:
        """Return the watch of the ISRs as a context manager, which gives None if the budget has no
        limit for them."""
        limit = self._settings.budget.isr_full_within_seconds
        return nullcontext() if limit is None else IsrWatch(client.missing_in_sync, limit)

    def _isr_seconds(self, isr: IsrWatch | None) -> float | None:
        """Wait until every ISR is full, the limit is exceeded, or the deadline of the run has come.
        Return the longest time, in seconds, for which an ISR was not full; None without a watch, or
        if that is not known."""
        if isr is None:
            return None
        isr.settle(time.monotonic() + max(0.0, self._deadline_s - time.time()))
        return isr.at_the_end()

    def _drive(self, spark: SparkSession, cores: int) -> str | None:
        """Write the records. Return why not all producers ended in time, or None."""
        settings = self._settings
        assert self._kept is not None, "the run has begun"
        reserve_s = min(settings.verify.timeout_seconds, settings.deadline_seconds / 2)
        stop_at_s = self._deadline_s - reserve_s
        planned = drive.Drive(
            run=self._kept.id,
            settings=settings,
            producers=min(cores, settings.produce.total or cores),
            stop_at_s=stop_at_s,
            settled_by_s=stop_at_s + SETTLING_SHARE * reserve_s,
            work=self._evidence.directory,
        )

        run_drive = executor_drive.run_drive if settings.runner.executors else drive.run_drive
        wish = None if settings.produce.load is None else settings.produce.load.find_max_rate

        def write() -> None:
            if wish is None:
                run_drive(spark, planned)
            else:
                self._capacity = search_rate(spark, planned, wish)

        def tell() -> None:
            counts, _ = drive.progress(planned.progress)
            self._counts = msgspec.structs.replace(self._counts, **counts)
            self._progress("Producing")

        until_s = stop_at_s + DRIVING_SHARE * reserve_s
        # Stored, and not just tried: a driver with a successor must not write to the topic.
        begins = as_json(self._state("Producing"))
        self._publisher.put({"progress.json": begins}, within_s=FINAL_WITHIN_S)
        try:
            self._watch(spark, write, tell, until_s)
        except TimeUp:
            return "a producer did not end in time"
        finally:
            tell()
        return None

    def _verify(self, spark: SparkSession, client: TopicClient, cores: int) -> Findings:
        settings, results, kept = self._settings, self._work / "results", self._kept
        assert kept is not None, "the run has begun"
        until_s = min(self._deadline_s, time.time() + settings.verify.timeout_seconds)

        def left_s() -> float:
            """Return the seconds until the checks must end, at least 1: the timeout of each
            request. Brokers that are away are waited for until then."""
            return max(1.0, until_s - time.time())

        def tell() -> None:
            self._progress("Verifying", read=checks.records_so_far(results))

        def examined() -> Findings:
            sent = ledger.index(self._evidence.directory / "ledger")
            acked = sent.acked
            begun = checks.with_added(kept.ranges, (*client.partitions(left_s()), *acked))
            ends = {p: max(r.log_end_offset, acked.get(p, (0, 0))[1]) for p, r in begun.items()}
            now = client.readable_ranges(ends, left_s())
            self._is_compacted()
            ranges = checks.expected(now, begun, acked)
            job = self._check_job(sent, results, until_s, kept)
            items = checks.work_items(sent, ranges, checks.readable(ranges, now))
            self._examination = checks.Examination(job=job, items=items, sent=sent, ranges=ranges)
            examine = executor_checks.examine if settings.runner.executors else checks.examine
            examine(spark, job, items, cores)
            starts = checks.starts_now(client, ranges, left_s())
            cleaner = checks.Cleaner.ON if self._is_compacted() else checks.Cleaner.OFF
            return checks.findings(job, items, sent, starts, cleaner=cleaner)

        return self._watch(spark, examined, tell, until_s)

    def _is_compacted(self) -> bool:
        """Return True if the topic is compacted, or was at an earlier call or by the operator's
        note: what is missing then may have been removed by the cleaner."""
        if not self._compacted:
            settings = self._settings
            topics = ExistingTopics(settings.bootstrap, librdkafka(settings.login))
            known = topics.compacted([settings.topic])[settings.topic]
            self._compacted = bool(known) or self._publisher.get(COMPACTED) is not None
        return self._compacted

    def _check_job(
        self, sent: ledger.LedgerIndex, results: Path, until_s: float, kept: KeptRun
    ) -> checks.CheckJob:
        settings = self._settings
        return checks.CheckJob(
            bootstrap=settings.bootstrap,
            topic=settings.topic,
            login=librdkafka(settings.login),
            salt=salt_of(kept.id),
            keys=settings.produce.keys,
            order_by_key=not settings.produce.is_idempotent,
            until_s=until_s,
            clock=checks.clock_of(sent),
            results=results,
        )

    def _watch(
        self, spark: SparkSession, job: Callable[[], T], tell: Callable[[], Any], until_s: float
    ) -> T:
        return watch(spark, job, tell, until_s=until_s, cancel_within_s=CANCEL_WITHIN_S)

    def _progress(self, phase: str, read: int = 0) -> None:
        """Publish the phase and the counts; a failure is only logged. `read`: records read so far.
        It includes those of other writers, which the final counts do not. Raises `Superseded`."""
        self._evidence.check()
        publish_progress(self._publisher, self._state(phase, read))

    def _state(self, phase: str, read: int = 0) -> Progress:
        counts = msgspec.structs.replace(self._counts, read=read)
        return Progress(phase=phase, counts=counts, timing=self._timing)

    def _publish_verdict(self, verdict: Verdict, findings: Findings) -> Outcome:
        stalls = findings.stalls
        self._counts = findings.counts
        self._timing = msgspec.structs.replace(
            self._timing,
            completion_time=rfc3339(time.time()),
            ack_milliseconds=findings.latency,
            records_per_second=findings.records_per_second,
            longest_stall_milliseconds=max((s.milliseconds for s in stalls), default=None),
            stall_milliseconds_by_partition={str(s.partition): s.milliseconds for s in stalls},
            stalls=stalls,
        )
        message = verdict.message
        if verdict.verdict == "Violated" and not self._evidence.is_kept:
            message += (
                "; the list of written records that proves it is lost with the driver pod, since "
                "spec.evidence names no place to keep it"
            )
        outcome = Outcome(
            verdict=verdict.verdict,
            reason=verdict.reason.value,
            message=message,
            counts=findings.counts,
            timing=self._timing,
            examples=findings.examples,
            facts=msgspec.structs.replace(
                facts(self._settings, findings, self._topic_id, self._publisher.get(DRILL)),
                capacity=self._capacity,
                budget=self._budget,
            ),
        )
        self._publish(outcome, "Completed", findings)
        return outcome

    def _publish_unfinished(self, reason: Reason, message: str, phase: str) -> Outcome:
        outcome = self._inconclusive(reason.value, message)
        self._publish(outcome, phase, None)
        return outcome

    def _inconclusive(self, reason: str, message: str) -> Outcome:
        self._timing = msgspec.structs.replace(self._timing, completion_time=rfc3339(time.time()))
        return Outcome(
            verdict="Inconclusive",
            reason=reason,
            message=message,
            counts=self._counts,
            timing=self._timing,
        )

    def _publish(self, outcome: Outcome, phase: str, findings: Findings | None) -> None:
        stays = self._evidence.stays(outcome.verdict)
        kept = Kept(run=self._evidence.name, place=self._evidence.place if stays else None)
        outcome = msgspec.structs.replace(outcome, evidence=kept)
        texts = self._texts(outcome, phase, findings)
        if stays and (missing := self._evidence.store_results(texts)) is not None:
            kept = msgspec.structs.replace(kept, missing=missing)
            outcome = msgspec.structs.replace(outcome, evidence=kept)
            texts = self._texts(outcome, phase, findings)
        self._publisher.put(texts, within_s=FINAL_WITHIN_S)
        if not stays:
            self._evidence.discard()

    def _texts(self, outcome: Outcome, phase: str, findings: Findings | None) -> dict[str, str]:
        state = Progress(phase=phase, counts=self._counts, timing=self._timing)
        return {
            "progress.json": as_json(state),
            "verdict.json": as_json(outcome),
            "report.html": report.render(self._settings, outcome, findings),
        }


_CAUSES = (Reason.OUT_OF_MEMORY.value, Reason.DISK_FULL.value)


def after_a_death(
    kept: KeptRun, findings: Findings, told: dict[str, int]
) -> tuple[Findings, str | None]:
    """Return the findings of a run after its driver died, and why not everything was sent; None if
    the ledger is complete. `told`: the counts by the producers' last progress. Sent records that
    the ledger lacks count as unknown."""
    counts = findings.counts
    sent = max(counts.sent, told["sent"])
    unlisted, acks = sent - counts.sent, max(0, told["acked"] - counts.acked)
    counts = msgspec.structs.replace(counts, sent=sent, unknown=counts.unknown + unlisted)
    findings = msgspec.structs.replace(findings, counts=counts)
    if 0 < kept.produce.total <= sent and not unlisted:
        return findings, None
    stopped = (
        f"{kept.failure or 'the driver pod ended early'}; another driver pod (number "
        f"{kept.attempt}) judged the records that the earlier one had listed as written"
    )
    if acks:
        stopped += (
            f"; that list lacks {acks} acknowledgements of the last seconds, which are not judged"
        )
    return findings, stopped


def refuse_foreign(settings: Settings, ranges: Ranges) -> None:
    """Raise `Refusal` if the topic holds records and the settings do not allow that. `ranges`: its
    logs."""
    held = sum(r.log_end_offset - r.log_start_offset for r in ranges.values())
    if held and not settings.allow_existing:
        sentence = (
            f"topic {settings.topic} holds {held} records that this Verification did not write; "
            "use a topic of its own, or set allowExisting: true, and create the Verification "
            "again"
        )
        raise Refusal(Refused.TOPIC_NOT_EMPTY, sentence)


def refuse_little(limits: cgroup.Limits) -> None:
    """Raise `Refusal` if the memory does not suffice for Spark."""
    if not limits.tasks:
        sentence = (
            f"the memory limit of the Verification's driver pod is {limits.memory_mb} MiB; raise "
            f"runner.resources.limits.memory to at least {cgroup.MEMORY_MIN_MB} MiB, which Spark "
            "needs"
        )
        raise Refusal(Refused.TOO_LITTLE_MEMORY, sentence)


def without_fates(findings: Findings) -> Findings:
    """Return the findings without counts that judge records of the old topic: the topic was
    recreated during the run, and the new log proves nothing about the old one."""
    counts = msgspec.structs.replace(
        findings.counts, lost=0, misplaced=0, mismatched=0, expired=0, out_of_order=0, gaps=0
    )
    return msgspec.structs.replace(findings, counts=counts, examples=(), unreadable=False)


def rfc3339(wall_s: float) -> str:
    """Format seconds since 1970 as Kubernetes does: `2026-11-24T12:00:00Z`."""
    return datetime.fromtimestamp(wall_s, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
