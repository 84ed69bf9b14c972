"""A continuous run: writes records without an end, reads them back while it writes, and gives a
verdict for each window of time.

Called by `verification`. Structured Streaming runs a micro-batch some times a window, on the clock
of its rate source (`run_reader` says why on no other): it reads what is new in the log, and joins
it with the new files of the ledger. The directory of the run (on the claim of `spec.evidence`, or
in the pod, from where `bucket` copies it) holds the judge's state, with which a later driver goes
on. Each driver has its own file of that state and its own checkpoint, since a driver on a lost node
may still write after another one has begun.
"""

from __future__ import annotations

import logging
import os
import shutil
import time
import uuid
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path

import msgspec
from confluent_kafka import KafkaException
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import StreamingQuery

from plimsoll_spark import cgroup, evidence, executor_start, facts, ledger, report, session
from plimsoll_spark.ack_times import AckTimes
from plimsoll_spark.arrays import Bools
from plimsoll_spark.attempts import MARKERS, UNORDERED, Superseded
from plimsoll_spark.continuous_drive import Driving, EndlessDrive, first_number, lanes_for
from plimsoll_spark.copies import Copies, rewritten_in
from plimsoll_spark.evidence import BegunMeanwhile, Evidence, KeptRun
from plimsoll_spark.existing_topics import ExistingTopics
from plimsoll_spark.isr_watch import IsrWatch
from plimsoll_spark.job_watch import as_json, publish_progress
from plimsoll_spark.login import librdkafka
from plimsoll_spark.pacing import seconds
from plimsoll_spark.partition_reader import OutOfTime
from plimsoll_spark.publish import COMPACTED, Publisher, PublishFailed
from plimsoll_spark.records import salt_of
from plimsoll_spark.report_windows import ACKNOWLEDGED, Windows, covers
from plimsoll_spark.rolling_judge import SETTLE_MS, News, PackedJudge, Reading, RollingJudge, Step
from plimsoll_spark.rolling_window import (
    Surroundings,
    WindowSoFar,
    as_row,
    showing,
    with_window,
)
from plimsoll_spark.run import (
    FINAL_WITHIN_S,
    TOPIC_WITHIN_S,
    refuse_foreign,
    refuse_little,
    rfc3339,
)
from plimsoll_spark.run_reader import RunReader
from plimsoll_spark.settings import Settings, check
from plimsoll_spark.topics import Ranges, TopicClient
from plimsoll_spark.values import (
    BudgetLine,
    Counts,
    EndedWindow,
    Facts,
    Kept,
    Outcome,
    Progress,
    Rolling,
    Timing,
    Window,
)
from plimsoll_spark.whole_files import put_whole

STEPS_A_WINDOW = 6
STEP_MIN_S, STEP_MAX_S = 2, 10
"""Bounds on the time between two micro-batches, in seconds."""
LOOK_S = 1.0
LAST_ACKS_S = 2.0 * STEP_MAX_S
"""For so long after the deadline the last acknowledgements are waited for."""
TOPIC_ID_WITHIN_S = 2.0
COPIES_WITHIN_S = 30.0
LEDGER_FILES_KEPT = 200
"""The newest judged files of the ledger that stay, and all those of violated windows up to
`VIOLATION_FILES_KEPT`."""
VIOLATION_FILES_KEPT = 2_000
WINDOWS_KEPT = 240
"""The newest ended windows that the report shows."""
DRIVERS_KEPT = 100
REPORT_EVERY_S = 60.0
REPORT_WITHIN_S = 5.0
ENDED = "the run ended before their offsets could be read"
LOST_STATE = "the driver process before this one kept no state; set spec.evidence to keep it"
STATES = "judge"
"""The directory with the judge's state, in a file for each driver; that of the newest counts."""
STATE_0_3 = "judge.state"
"""The state in the evidence of a run that release 0.3 or an earlier one began."""
KEPT_IN_BUCKET = frozenset(
    {evidence.RUNS, evidence.RUN_FILE_0_3, MARKERS, STATES, STATE_0_3, "ledger", evidence.RESULTS}
)
"""What evidence in a bucket holds of the run's directory. Spark's checkpoint only numbers the
micro-batches of one driver."""

log = logging.getLogger(__name__)


class State(msgspec.Struct, kw_only=True):
    """The judge's state. `taken`: the newest judged file of each producer in the ledger; `proof`:
    files of violated windows; `acks_from_ms`: acknowledgements before it are not judged, since they
    are of a topic that was deleted; `ended`: the newest windows that ended, the oldest first;
    `drivers`: when the newest drivers began, RFC 3339; `budget`: the figures of the last window."""

    judge: PackedJudge
    window: WindowSoFar
    rolling: Rolling
    totals: dict[str, int]
    topic_id: str | None = None
    acks_from_ms: int = 0
    taken: dict[str, str] = msgspec.field(default_factory=dict)
    judged_files: list[str] = msgspec.field(default_factory=list)
    proof: list[str] = msgspec.field(default_factory=list)
    ended: list[EndedWindow] = msgspec.field(default_factory=list)
    drivers: list[str] = msgspec.field(default_factory=list)
    ack_times: AckTimes = msgspec.field(default_factory=AckTimes)
    budget: tuple[BudgetLine, ...] = ()


class ContinuousRun:
    """One driver of a continuous run."""

    def __init__(self, settings: Settings, publisher: Publisher, kept: Evidence) -> None:
        self._settings = settings
        self._publisher = publisher
        self._evidence = kept
        self._window_ms = 1000 * seconds(settings.window)
        self._step_s = min(STEP_MAX_S, max(STEP_MIN_S, self._window_ms // 1000 // STEPS_A_WINDOW))
        self._login = librdkafka(settings.login)
        self._client = TopicClient(settings.bootstrap, settings.topic, self._login)
        self._compacted = False
        self._topic_id: str | None = None
        self._claim = UNORDERED
        self._kept: KeptRun | None = None
        self._state: State | None = None
        self._judge = RollingJudge(settings.topic, settings.produce.keys, {})
        self._report_due_s = 0.0
        # Of the last report: start of the last violated window, until when it is acknowledged, and
        # the verdict.
        self._reported = ("", "", "")
        self._noted: str | None = None  # the operator's last note of an acknowledgement
        self._driving: Driving | None = None
        self._isr: IsrWatch | None = None
        self._superseded: Superseded | None = None

    def execute(self) -> Outcome:
        """Run until the deadline, publish the outcome and return it; without a deadline, return
        never. Raises `Refusal` if the run must not start, and the error of Spark, of a producer or
        of the disk, after which another driver is to go on."""
        check(self._settings)
        limits = cgroup.limits()
        refuse_little(limits)
        kept = self._begin()
        settings, directory = self._settings, self._evidence.directory
        self._clear(kept.attempt)
        lanes = lanes_for(settings, limits.tasks)
        cores = lanes + 1
        if settings.runner.executors:
            cores = settings.runner.executors * settings.runner.cores
            lanes = lanes_for(settings, max(2, cores))
            executor_start.refuse_pods(settings.name, settings.runner)
        work = directory / f"work-{kept.attempt}"
        work.mkdir(mode=0o700)
        spark = session.build(
            name=settings.name,
            cores=cores,
            work=work,
            runner=settings.runner,
            jvm=session.Jvm(heap_mb=limits.heap_mb),
        )
        try:
            executor_start.wait(spark, settings)
            drive = EndlessDrive(
                run=kept.id,
                settings=settings,
                directory=directory,
                first=first_number(kept.attempt),
                lanes=lanes,
            )
            self._run(spark, Driving(spark, drive), kept, cores - lanes)
        finally:
            spark.stop()
        shutil.rmtree(work, ignore_errors=True)
        return self._end()

    # --- the start ------------------------------------------------------------------------------

    def _begin(self) -> KeptRun:
        """Begin the run, or go on with the run that has a directory. Raises `Refusal`,
        `Superseded`."""
        # First: what a driver sees after a later one has begun may be that one's work.
        self._claim = self._publisher.claim(within_s=FINAL_WITHIN_S)
        try:
            kept, lost = self._kept_run()
        except BegunMeanwhile:
            kept, lost = self._kept_run()
        settings = self._settings
        self._kept, self._topic_id = kept, kept.topic_id
        path = self._last_state()
        if path is not None:
            self._state = state = msgspec.msgpack.decode(path.read_bytes(), type=State)
            self._judge.restore(state.judge)
            self._topic_id = state.topic_id or kept.topic_id
        else:
            ends = {number: span.log_end_offset for number, span in kept.ranges.items()}
            self._judge = RollingJudge(settings.topic, settings.produce.keys, ends)
            self._state = state = State(
                judge=self._judge.packed(),
                window=WindowSoFar(started_ms=_now_ms()),
                rolling=Rolling(
                    window_seconds=self._window_ms // 1000,
                    since=rfc3339(kept.started_s),
                    drivers=0,
                ),
                totals={},
            )
            if lost is not None and lost.rolling is not None:
                state.rolling = lost.rolling
                state.totals = msgspec.structs.asdict(lost.counts)
                state.window.unjudged[LOST_STATE] = 1
        state.rolling = msgspec.structs.replace(state.rolling, drivers=state.rolling.drivers + 1)
        state.drivers = [*state.drivers, rfc3339(time.time())][-DRIVERS_KEPT:]
        numbers = first_number(kept.attempt)
        self._judge.retire(range(numbers, numbers + 64))
        self._evidence.check()
        self._store()
        self._publish()
        log.info(
            "this driver process, number %d of Verification %s, continues where the last one ended",
            *(kept.attempt, self._settings.name),
        )
        return kept

    def _kept_run(self) -> tuple[KeptRun, Progress | None]:
        """Begin the run's evidence. Return the run, and what an earlier driver published if it left
        no evidence."""
        settings, earlier, lost = self._settings, self._evidence.earlier(), None
        if earlier is None:
            partitions = self._client.partitions(TOPIC_WITHIN_S)
            topic_id = self._client.topic_id(TOPIC_WITHIN_S)
            before = self._client.ranges(partitions, TOPIC_WITHIN_S)
            lost = self._told_before()
            if lost is None:
                refuse_foreign(settings, before)
            kept = evidence.begun(settings, f"{settings.name}-{uuid.uuid4().hex}", topic_id, before)
        else:
            kept = evidence.resumed(earlier, settings)
        return self._evidence.begin(kept, self._claim), lost

    def was_begun(self) -> bool:
        """Return True if an earlier driver of the run has published its state."""
        return self._told_before() is not None

    def _told_before(self) -> Progress | None:
        """Return what an earlier driver of the run had published when this one claimed its place;
        None if there was none."""
        text = self._claim.texts.get("progress.json")
        try:
            told = None if text is None else msgspec.json.decode(text, type=Progress)
        except msgspec.DecodeError:
            return None
        return told if told is not None and told.rolling is not None else None

    # --- while it runs --------------------------------------------------------------------------

    def _run(self, spark: SparkSession, driving: Driving, kept: KeptRun, tasks: int) -> None:
        """Write and judge until the deadline."""
        limit_s = self._settings.deadline_seconds
        end_s = kept.started_s + limit_s if limit_s else float("inf")
        if not self._now.window.counts:
            self._now.window.started_ms = _now_ms()  # Spark's start is no part of it
        self._driving, limit = driving, self._settings.budget.isr_full_within_seconds
        if limit is not None:
            self._isr = IsrWatch(self._client.missing_in_sync, limit)
        driving.start(min(end_s, 2.0**40))  # first, since the query takes seconds to start
        try:
            query = self._query(spark, kept, max(1, tasks))
            try:
                with self._isr or nullcontext():
                    self._judge_until(end_s, driving, query)
            finally:
                query.stop()
        except StreamingQueryException:
            if self._superseded is not None:
                raise self._superseded from None
            raise
        finally:
            driving.stop()

    def _judge_until(self, end_s: float, driving: Driving, query: StreamingQuery) -> None:
        """Wait, while the query judges, until the deadline and the last verdicts. Raises
        RuntimeError if the run cannot go on in this driver, `Superseded` if another one works on
        it."""
        parent = os.getppid()
        last_s = end_s + 2 * SETTLE_MS / 1000
        while time.time() < last_s and (time.time() < end_s + LAST_ACKS_S or self._judge.waiting):
            self._evidence.check()
            if query.awaitTermination(LOOK_S):
                raise RuntimeError(
                    "this driver process of the Verification ends, because its Spark query has "
                    "ended; a new process starts by itself and continues the run"
                )
            if driving.failure is not None and time.time() < end_s:
                raise RuntimeError(
                    "this driver process of the Verification ends, because its producers ended; "
                    f"a new process starts by itself and continues the run: {driving.failure}"
                )
            if os.getppid() != parent:
                raise RuntimeError(
                    "this driver process of the Verification ends, because its parent "
                    "process, which would restart it, has ended"
                )

    def _query(self, spark: SparkSession, kept: KeptRun, tasks: int) -> StreamingQuery:
        settings, directory = self._settings, self._evidence.directory
        spark.conf.set("spark.sql.streaming.minBatchesToRetain", "10")
        spark.conf.set("spark.sql.streaming.numRecentProgressUpdates", "5")
        reader = RunReader(
            bootstrap=settings.bootstrap,
            topic=settings.topic,
            login=self._login,
            salt=salt_of(kept.id),
            keys=settings.produce.keys,
        )

        def judge(rows: DataFrame, batch: int) -> None:
            try:
                self._judge_batch(
                    lambda ends: reader.read(spark, self._judge.wanted(), ends, tasks)
                )
                self._evidence.check()
                self._store()
                self._publish()
                self._publish_report()
                self._delete_files()
            except Superseded as superseded:
                self._superseded = superseded  # Spark raises another error in its place
                raise

        clock = spark.readStream.format("rate").option("numPartitions", "1").load()
        return (
            clock.writeStream.foreachBatch(judge)
            .option("checkpointLocation", str(directory / f"checkpoint-{kept.attempt}"))
            .trigger(processingTime=f"{self._step_s} seconds")
            .start()
        )

    def _judge_batch(self, read: Callable[[Ranges], list[Reading]]) -> None:
        """Judge what is new. `read`: reads the log up to the given ends."""
        state = self._now
        self._judge.add_partitions(self._client.partitions_now())
        ends = self._client.ranges_now(sorted(self._judge.wanted()))
        is_known = self._look_at_topic(ends)
        if is_known:
            ends = self._client.ranges_now(sorted(self._judge.wanted()))
        readings = read(ends) if is_known else []
        # Again: what retention deletes while the log is read is not lost.
        logs = self._client.ranges_now(sorted(self._judge.wanted())) if is_known else {}
        names = self._new_files()
        files = [self._evidence.directory / "ledger" / name for name in names]
        acks, outcomes = ledger.read_files(files)
        acks = acks.only(acks.settled_ms >= state.acks_from_ms)
        latency_ms, stalls = state.ack_times.take(acks)
        news = News(
            readings=readings, logs=logs, acks=acks, others=outcomes, compacted=self._compacted
        )
        step = self._judge.step(_now_ms(), news)
        if step.copies:
            step.take_rewritten(self._rewritten(step, logs))
        state.window.add(step, latency_ms, stalls)
        for name, count in step.counts.items():
            state.totals[name] = state.totals.get(name, 0) + count
        state.rolling = msgspec.structs.replace(state.rolling, behind=self._judge.behind(logs))
        state.judged_files += names
        self._close_window(violated=bool(step.examples or step.unreadable))

    def _rewritten(self, step: Step, logs: Ranges) -> dict[int, Bools] | None:
        """Return, by partition, which of the step's second copies their producers wrote again; None
        if that cannot be looked up now."""
        asked = {
            number: Copies(
                offsets,
                max(self._judge.remembered_from(number), logs[number].log_start_offset),
                logs[number].log_end_offset,
            )
            for number, offsets in step.copies.items()
        }
        settings, until_s = self._settings, time.time() + COPIES_WITHIN_S
        try:
            return rewritten_in(settings.bootstrap, settings.topic, self._login, asked, until_s)
        except (KafkaException, OutOfTime) as error:
            log.warning(
                "Verification %s found records twice in the topic, but could not find out "
                "whether its producer or the log wrote them twice; it does not judge these "
                "records, and goes on: %s",
                *(settings.name, error),
            )
            return None

    def _look_at_topic(self, ends: Ranges) -> bool:
        """Ask for the topic's id, and if it is compacted, once a window and if a log is shorter
        than before or otherwise in doubt. If the topic was made anew, judge the new one from its
        start. Return False if a log is in doubt and the id is unknown: nothing can be judged now.
        `ends`: the logs as they are."""
        state = self._now
        in_doubt = self._judge.is_in_doubt or any(
            ends[number].log_end_offset < first
            for number, first in self._judge.wanted().items()
            if number in ends
        )
        begins = _now_ms() - state.window.started_ms < STEP_MAX_S * 1000
        if not in_doubt and not begins:
            return True
        try:
            now = self._client.topic_id(TOPIC_ID_WITHIN_S)
        except KafkaException:
            return not in_doubt
        topics = ExistingTopics(self._settings.bootstrap, self._login)
        known = topics.compacted([self._settings.topic])[self._settings.topic]
        if known is None and (noted := self._publisher.get(COMPACTED)) is not None:
            known = noted == "yes"
        # Unknown for now: what the cleaner removes is no loss, also while brokers are away.
        self._compacted = self._compacted if known is None else known
        if now is not None and now != self._topic_id:
            self._topic_id = state.topic_id = now
            state.window.recreated = True
            state.acks_from_ms = _now_ms()  # earlier ones may be of the old topic
            self._judge = RollingJudge(self._settings.topic, self._settings.produce.keys, {})
            self._judge.add_partitions(self._client.partitions_now())
        return True

    def _new_files(self) -> list[str]:
        """Return the names of the ledger's files that no step has taken, and note them as taken."""
        taken, found = self._now.taken, []
        for path in sorted((self._evidence.directory / "ledger").glob("[!_]*.parquet")):
            producer = path.name.split("-")[1]
            if path.name > taken.get(producer, ""):
                taken[producer] = path.name
                found.append(path.name)
        return found

    def _close_window(self, *, violated: bool) -> None:
        """End the window if its time is over; show it before its end if it is violated."""
        state, now_ms = self._now, _now_ms()
        # Steps come some milliseconds early or late; windows are to have their length on average.
        is_over = now_ms - state.window.started_ms >= self._window_ms - 500 * self._step_s
        if not is_over and not violated:
            return
        around = self._surroundings(now_ms) if is_over else None
        window = state.window.ended(
            self._settings, rfc3339(state.window.started_ms / 1000), rfc3339(now_ms / 1000), around
        )
        if window.verdict == "Violated":
            state.proof = [*state.proof, *state.judged_files][-VIOLATION_FILES_KEPT:]
        if around is None:
            if window.verdict == "Violated":
                state.rolling = showing(state.rolling, window)
            return
        state.budget = state.window.lines(self._settings, around)
        state.rolling = with_window(state.rolling, window)
        state.ended = [*state.ended, as_row(window)][-WINDOWS_KEPT:]
        state.window = WindowSoFar(started_ms=now_ms)
        log.info(
            "Verification %s: the window that ended at %s has the verdict %s: %s",
            self._settings.name,
            window.end,
            window.verdict,
            window.message,
        )

    def _surroundings(self, now_ms: int) -> Surroundings:
        held = self._driving.held(self._now.window.started_ms) if self._driving else []
        isr_seconds = self._isr.taken() if self._isr is not None else None
        return Surroundings(end_ms=now_ms, held=held, isr_seconds=isr_seconds)

    def _delete_files(self) -> None:
        """Delete the oldest judged files of the ledger that prove no violation."""
        state = self._now
        over = state.judged_files[:-LEDGER_FILES_KEPT]
        for name in set(over) - set(state.proof):
            (self._evidence.directory / "ledger" / name).unlink(missing_ok=True)
        state.judged_files = state.judged_files[-LEDGER_FILES_KEPT:]

    # --- storing and publishing -----------------------------------------------------------------

    @property
    def _now(self) -> State:
        assert self._state is not None, "the run has begun"
        return self._state

    def _last_state(self) -> Path | None:
        """Return the file of the newest driver's state; None if there is none."""
        directory = self._evidence.directory
        found = sorted((directory / STATES).glob("[0-9]*"))
        earlier = directory / STATE_0_3
        return found[-1] if found else earlier if earlier.exists() else None

    def _clear(self, attempt: int) -> None:
        """Delete what drivers before this one needed for themselves alone. `attempt`: this one's
        number. A later one may work on the run already."""
        directory = self._evidence.directory
        for path in (*directory.glob("checkpoint-*"), *directory.glob("work-*")):
            if int(path.name.split("-")[1]) <= attempt:
                shutil.rmtree(path, ignore_errors=True)
        for path in (directory / STATES).glob("[0-9]*"):
            if int(path.name) < attempt:
                path.unlink(missing_ok=True)
        (directory / STATE_0_3).unlink(missing_ok=True)
        shutil.rmtree(directory / "work", ignore_errors=True)  # of release 0.3

    def _store(self) -> None:
        state = self._now
        state.judge = self._judge.packed()
        state.rolling = msgspec.structs.replace(state.rolling, waiting=self._judge.waiting)
        assert self._kept is not None, "the run has begun"
        path = self._evidence.directory / STATES / f"{self._kept.attempt:06d}"
        path.parent.mkdir(mode=0o700, exist_ok=True)
        put_whole(path, msgspec.msgpack.encode(state), durable=True)

    def _publish(self) -> None:
        publish_progress(self._publisher, self._progress("Running"))

    def _publish_report(self) -> None:
        """Publish the report so far, once in `REPORT_EVERY_S`, when another window is violated, and
        when its heading changes after an acknowledgement. A failure is only logged: the next report
        replaces this one."""
        violation, until = self._now.rolling.last_violation, self._acknowledged()
        shown = (None if until else violation) or self._now.rolling.window
        heading = (violation.start if violation else "", until, shown.verdict if shown else "")
        is_new = violation is not None and heading != self._reported
        if shown is None or (time.monotonic() < self._report_due_s and not is_new):
            return
        self._report_due_s = time.monotonic() + REPORT_EVERY_S
        self._reported = heading
        try:
            outcome = self._outcome(shown.verdict, shown.reason, self._told(), shown)
            page = self._report(outcome, until)
            self._publisher.put({"report.html": page}, within_s=REPORT_WITHIN_S)
        except PublishFailed as failed:
            log.warning(
                "the driver pod of Verification %s could not write its report to the ConfigMap "
                "and tries again: %s",
                *(self._settings.name, failed),
            )

    def _acknowledged(self) -> str:
        """Return until when violations are acknowledged, by the operator's note beside the report;
        "" if the last one is not."""
        violation = self._now.rolling.last_violation
        if violation is None:
            return ""
        self._noted = self._publisher.get(ACKNOWLEDGED) or self._noted
        return self._noted if covers(self._noted, violation.end) else ""

    def _report(self, outcome: Outcome, acknowledged: str) -> str:
        state = self._state
        if state is None:
            return report.render(self._settings, outcome, None)
        found = Windows(
            ended=tuple(state.ended),
            drivers=tuple(state.drivers),
            earlier=state.rolling.drivers - len(state.drivers),
            faults=outcome.facts.faults if outcome.facts is not None else (),
            acknowledged=acknowledged,
        )
        return report.render(self._settings, outcome, None, found)

    def _facts(self) -> Facts:
        rate = self._timing().records_per_second
        size = self._settings.produce.record_bytes
        return Facts(
            checks=self._settings.checks,
            versions=facts.versions(),
            bootstrap=self._settings.bootstrap,
            topic_id=self._topic_id,
            megabytes_per_second=None if rate is None else round(rate * size / 1e6, 3),
            partitions=(),
            partitions_left_out=0,
            faults=facts.marks(self._publisher.get(facts.DRILL)),
            before=None,
            budget=self._now.budget,
        )

    def _progress(self, phase: str) -> Progress:
        state = self._now
        return Progress(
            phase=phase, counts=self._totals(), timing=self._timing(), rolling=state.rolling
        )

    def _totals(self) -> Counts:
        totals = self._now.totals
        return Counts(**{name: totals.get(name, 0) for name in Counts.__struct_fields__})

    def _timing(self) -> Timing:
        window, recent = self._now.rolling.window, self._now.rolling.recent
        return Timing(
            start_time=self._now.rolling.since,
            ack_milliseconds=None if window is None else window.milliseconds,
            records_per_second=recent[0].records_per_second if recent else None,
        )

    def _end(self) -> Outcome:
        """Publish the outcome of the run at its deadline, and return it."""
        state = self._now
        self._give_up_rest()
        state.window.started_ms = min(state.window.started_ms, _now_ms() - self._window_ms)
        if state.window.totals.sent or state.window.unjudged:
            self._close_window(violated=False)
        rolling = state.rolling
        worst = rolling.last_violation or rolling.window
        verdict, reason = "Inconclusive", "NothingAcked" if worst is None else worst.reason
        if rolling.last_violation is not None:
            verdict = "Violated"
        elif rolling.passed and not rolling.inconclusive:
            verdict, reason = "Passed", "AllChecksPassed"
        return self.publish_outcome(verdict, reason, self._told(), "Completed")

    def _give_up_rest(self) -> None:
        """Count the acknowledgements that no step has settled as unjudged: their offsets could not
        be read before the end."""
        state, judge = self._now, self._judge
        files = [self._evidence.directory / "ledger" / name for name in self._new_files()]
        acks, _ = ledger.read_files(files)
        acks = acks.only(acks.settled_ms >= state.acks_from_ms)
        if left := judge.waiting + int(acks.acked.sum()):
            state.window.unjudged[ENDED] = left
            for counts in (state.window.counts, state.totals):
                for name in ("sent", "acked"):
                    counts[name] = counts.get(name, 0) + left

    def _told(self) -> str:
        """Return, in a sentence, how many windows had which verdict, and the last violation."""
        rolling = self._now.rolling
        told = (
            f"{rolling.passed} windows of the Verification passed, {rolling.violated} violated a "
            f"check and {rolling.inconclusive} are inconclusive"
        )
        if rolling.last_violation is None:
            return told
        return f"{told}; the last violation: {rolling.last_violation.message}"

    def publish_outcome(self, verdict: str, reason: str, message: str, phase: str) -> Outcome:
        """Publish the end of the run, and return it. Raises `PublishFailed`."""
        stays = self._evidence.stays(verdict)
        state = self._state
        outcome = self._outcome(
            verdict, reason, message, None if state is None else state.rolling.last_violation
        )
        kept = Kept(run=self._evidence.name, place=self._evidence.place if stays else None)
        outcome = msgspec.structs.replace(
            outcome,
            timing=msgspec.structs.replace(outcome.timing, completion_time=rfc3339(time.time())),
            evidence=kept,
        )
        until = "" if state is None else self._acknowledged()
        texts = {"verdict.json": as_json(outcome), "report.html": self._report(outcome, until)}
        missing = self._evidence.store_results(texts) if stays else None
        if missing is not None:
            kept = msgspec.structs.replace(kept, missing=missing)
            outcome = msgspec.structs.replace(outcome, evidence=kept)
            texts["verdict.json"] = as_json(outcome)
        if state is not None:
            texts["progress.json"] = as_json(self._progress(phase))
        self._publisher.put(texts, within_s=FINAL_WITHIN_S)
        if not stays:
            self._evidence.discard()
        return outcome

    def _outcome(self, verdict: str, reason: str, message: str, window: Window | None) -> Outcome:
        """Return the outcome as it is now. `window`: the one with the examples to show."""
        known = self._state is not None
        return Outcome(
            verdict=verdict,
            reason=reason,
            message=message,
            counts=self._totals() if known else Counts(),
            timing=self._timing() if known else Timing(start_time=rfc3339(time.time())),
            examples=() if window is None else window.examples,
            facts=self._facts() if known else None,
        )


def _now_ms() -> int:
    return int(time.time() * 1000)
