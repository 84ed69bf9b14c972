"""One audit of existing topics from start to verdict: every replica's files are read and compared.

Called by `verification`. It writes nothing to the topics. A worker thread waits for Spark; the main
thread publishes progress meanwhile, and cancels Spark's jobs at the deadline.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple, TypeVar

import msgspec
from pyspark.sql import SparkSession

from plimsoll_spark import audit_report, cgroup, session
from plimsoll_spark.audit_range import AuditItem, AuditJob, RangeAudit, audit_some, finished_ranges
from plimsoll_spark.audit_settings import AuditSettings, MirrorOf
from plimsoll_spark.audit_verdict import AuditFindings, Mirrored, judge_audit
from plimsoll_spark.checks import records_so_far
from plimsoll_spark.existing_topics import AuditedPartition, ExistingTopics
from plimsoll_spark.job_watch import TimeUp, as_json, publish_progress, watch
from plimsoll_spark.login import librdkafka, stated_brokers
from plimsoll_spark.mirror import MirrorAudit, MirrorJob, compare_some, mirror_items
from plimsoll_spark.mirror_compare import Difference
from plimsoll_spark.publish import Publisher
from plimsoll_spark.replica_compare import Finding
from plimsoll_spark.run import refuse_little, rfc3339
from plimsoll_spark.settings import Refusal, Refused
from plimsoll_spark.values import Audited, Counts, Example, Outcome, Progress, Timing
from plimsoll_spark.verdict import Verdict

RANGE_OFFSETS = 200_000
"""Number of offsets in the largest range. A task holds one row for each batch of its range on each
replica: some 60 MB if each record is a batch of its own."""
RANGE_OFFSETS_MIN = 50_000
TASKS_A_CORE = 8
EXAMPLES_MAX = 20
FINAL_WITHIN_S = 180.0
CANCEL_WITHIN_S = 60.0
RESERVE_S = 10.0
AWAY = "the broker is not in the cluster"
T = TypeVar("T")


class Audit:
    """One audit of existing topics: reads the replicas (with `reads: Memory` only the leaders),
    compares them, and publishes progress and verdict."""

    def __init__(self, settings: AuditSettings, publisher: Publisher, work: Path) -> None:
        """`work`: the existing directory for temporary files. The deadline counts from this
        call."""
        self._settings = settings
        self._publisher = publisher
        self._results = work / "results"
        self._work = work
        self._started_s = time.time()
        self._timing = Timing(start_time=rfc3339(self._started_s))
        self._login = librdkafka(settings.login)

    def execute(self) -> Outcome:
        """Read and compare the replicas, publish the verdict and return it. At the deadline the
        ranges that were finished are judged: Violated, or else Inconclusive. Raises `Refusal` if no
        topic matches or memory lacks, KafkaException if the brokers do not answer, and
        `PublishFailed` if the verdict cannot be stored."""
        self._publisher.claim(within_s=FINAL_WITHIN_S)
        limits = cgroup.limits()
        refuse_little(limits)
        self._results.mkdir()
        self._progress()
        topics = ExistingTopics(self._settings.bootstrap, self._login)
        names = self._names(topics)
        ids = topics.ids(names)
        partitions, missing = topics.partitions(names, leaders_only=not self._reads_copies)
        compacted = self._compacted(topics, names)
        cores = limits.tasks
        spark = session.build(
            name=self._settings.name,
            cores=cores,
            work=self._work,
            jvm=session.Jvm(heap_mb=limits.heap_mb),
        )
        # A topic with an unreadable configuration is taken for compacted: nothing is reported
        # that compaction may have done.
        sparse = {name for name, known in compacted.items() if known is not False}
        in_time = True
        found: list[RangeAudit] = []
        mirrors = MirrorFindings()
        try:
            if set(self._settings.checks) != {"MirrorEqual"}:
                found = self._audited(spark, partitions, sparse, cores)
            mirrors = self._mirrored(spark, topics, partitions, compacted, cores)
        except TimeUp:
            in_time, found = False, finished_ranges(self._results)
        finally:
            spark.stop()
        unknown = tuple(sorted(name for name, known in compacted.items() if known is None))
        replaced = _replaced(ids, topics.ids(names, patient=in_time))
        kept = [one for one in found if one.topic not in replaced]
        findings = msgspec.structs.replace(
            summed(partitions, kept, unknown),
            missing=missing,
            in_time=in_time,
            replaced=replaced,
        )
        findings = with_mirrors(findings, mirrors, self._prefix)
        return self._publish_verdict(judge_audit(self._settings.checks, findings), findings)

    def publish_broken(self, reason: str, message: str) -> None:
        """Publish the phase Failed with the verdict Inconclusive, since the audit itself failed.
        Raises `PublishFailed`."""
        outcome = Outcome(
            verdict="Inconclusive",
            reason=reason,
            message=message,
            counts=Counts(),
            timing=self._completed(),
        )
        self._put(outcome, "Failed", AuditFindings())

    @property
    def _prefix(self) -> str:
        of = self._settings.source.mirror_of
        return "" if of is None else of.prefix

    @property
    def _reads_copies(self) -> bool:
        return self._settings.source.reads == "Disk"

    def _names(self, topics: ExistingTopics) -> Sequence[str]:
        stated = self._settings.source.existing_topics
        names = stated.topics
        names = topics.matching(stated.match_pattern) if names is None else names
        if not names:
            sentence = (
                "the audit finds no topic: no topic that its user may describe matches the "
                f"pattern {stated.match_pattern}, which is a regular expression for the whole "
                "name"
            )
            raise Refusal(Refused.TOPIC_NOT_FOUND, sentence)
        return names

    def _compacted(self, topics: ExistingTopics, names: Sequence[str]) -> dict[str, bool | None]:
        known = topics.compacted(names)
        stated = self._settings.source.existing_topics.treated_as_compacted(known)
        return {**known, **dict.fromkeys(stated, True)}

    def _audited(
        self,
        spark: SparkSession,
        partitions: Sequence[AuditedPartition],
        sparse: set[str],
        cores: int,
    ) -> list[RangeAudit]:
        rate = self._settings.source.bytes_per_second
        job = AuditJob(
            login=self._login,
            until_s=self._deadline_s - RESERVE_S,
            bytes_per_second=None if rate is None else rate / cores,
            own_copies=self._reads_copies,
            results=self._results,
        )
        items = audit_items(partitions, sparse, cores)
        found = self._examine(spark, job, items, cores)
        unequal = {(one.topic, one.partition) for one in found if not one.is_equal}
        again = [
            whole_partition(one)
            for one in partitions
            if one.topic in sparse and (one.topic, one.partition) in unequal
        ]
        return found + self._examine(spark, job, again, cores)

    def _mirrored(
        self,
        spark: SparkSession,
        topics: ExistingTopics,
        partitions: Sequence[AuditedPartition],
        compacted: Mapping[str, bool | None],
        cores: int,
    ) -> MirrorFindings:
        """Compare the topics with their sources in the cluster of `mirrorOf`. Raises `Refusal` if
        the login is for other brokers, `TimeUp`, KafkaException."""
        of = self._settings.source.mirror_of
        if of is None or "MirrorEqual" not in self._settings.checks:
            return MirrorFindings()
        login = self._source_login(of)
        names = sorted({one.topic for one in partitions})
        sources = ExistingTopics(of.bootstrap, login)
        asked = source_names(names, of.prefix)
        ids = sources.ids(asked)
        sparse = {f"{of.prefix}{one}" for one, known in sources.compacted(asked).items() if known}
        sparse |= {one for one in names if compacted.get(one)}
        mirrors = topics.partitions(
            [one for one in names if one not in sparse], leaders_only=True, committed=True
        ).partitions
        found, lacking = sources.partitions(
            [one for one in asked if f"{of.prefix}{one}" not in sparse],
            leaders_only=True,
            committed=True,
        )
        items, missing = mirror_items(mirrors, found, of.prefix)
        rate = self._settings.source.bytes_per_second
        job = MirrorJob(
            login=self._login,
            source_login=login,
            until_s=self._deadline_s - RESERVE_S,
            bytes_per_second=None if rate is None else rate / cores,
            results=self._results,
        )

        def compared() -> list[MirrorAudit]:
            results: list[MirrorAudit] = (
                spark.sparkContext.parallelize(items, len(items))
                .mapPartitions(lambda some: compare_some(job, some))
                .collect()
            )
            return results

        results = self._watched(spark, compared) if items else []
        left_out = [f"{one}: its name does not begin with {of.prefix}" for one in names
                    if not one.startswith(of.prefix)]  # fmt: skip
        left_out += [f"{one}: it is compacted, so records cannot be compared in order"
                     for one in sorted(sparse)]  # fmt: skip
        replaced = _replaced(ids, sources.ids(asked))
        return MirrorFindings(tuple(results), (*lacking, *missing, *left_out), replaced)

    def _source_login(self, of: MirrorOf) -> dict[str, str]:
        directory = self._settings.mirror_login
        if directory is None:
            return {}
        stated = {one.strip() for one in of.bootstrap.split(",")}
        if not stated <= stated_brokers(directory):
            sentence = (
                f"the Secret of source.mirrorOf is a login for other brokers than {of.bootstrap}:"
                " bootstrap.servers in its librdkafka.conf must name all of these"
            )
            raise Refusal(Refused.INVALID_SPEC, sentence)
        return librdkafka(directory)

    def _examine(
        self, spark: SparkSession, job: AuditJob, items: Sequence[AuditItem], cores: int
    ) -> list[RangeAudit]:
        if not items:
            return []
        slices = max(1, min(len(items), TASKS_A_CORE * cores))

        def collected() -> list[RangeAudit]:
            found: list[RangeAudit] = (
                spark.sparkContext.parallelize(items, slices)
                .mapPartitions(lambda some: audit_some(job, some))
                .collect()
            )
            return found

        return self._watched(spark, collected)

    def _watched(self, spark: SparkSession, job: Callable[[], T]) -> T:
        return watch(
            spark,
            job,
            self._progress,
            until_s=self._deadline_s,
            cancel_within_s=CANCEL_WITHIN_S,
        )

    @property
    def _deadline_s(self) -> float:
        return self._started_s + self._settings.deadline_seconds

    def _progress(self) -> None:
        counts = Counts(read=records_so_far(self._results))
        state = Progress(phase="Verifying", counts=counts, timing=self._timing)
        publish_progress(self._publisher, state)

    def _completed(self) -> Timing:
        return msgspec.structs.replace(self._timing, completion_time=rfc3339(time.time()))

    def _publish_verdict(self, verdict: Verdict, findings: AuditFindings) -> Outcome:
        outcome = Outcome(
            verdict=verdict.verdict,
            reason=verdict.reason.value,
            message=verdict.message,
            counts=Counts(read=findings.audited.records),
            timing=self._completed(),
            examples=findings.examples[:EXAMPLES_MAX],
            audited=findings.audited,
        )
        self._put(outcome, "Completed", findings)
        return outcome

    def _put(self, outcome: Outcome, phase: str, findings: AuditFindings) -> None:
        state = Progress(phase=phase, counts=outcome.counts, timing=outcome.timing)
        texts = {
            "progress.json": as_json(state),
            "verdict.json": as_json(outcome),
            "report.html": audit_report.render(self._settings, outcome, findings),
        }
        self._publisher.put(texts, within_s=FINAL_WITHIN_S)


def _replaced(before: Mapping[str, str | None], after: Mapping[str, str | None]) -> tuple[str, ...]:
    """Return the topics that were deleted, or also created again, between the two looks at their
    ids. A topic with an unknown id is none."""
    return tuple(
        name
        for name, known in before.items()
        if known is not None and name in after and after[name] != known
    )


def audit_items(
    partitions: Sequence[AuditedPartition], sparse: set[str], cores: int
) -> list[AuditItem]:
    """Cut the logs of `partitions` into ranges of offsets and return these, in the order of
    `partitions` and of offsets; an empty log has none. `sparse`: the topics in which offsets may be
    missing; `cores`: number of tasks at the same time, by which the ranges are sized."""
    held = sum(one.log.log_end_offset - one.log.log_start_offset for one in partitions)
    size = held // (TASKS_A_CORE * cores) + 1
    size = max(RANGE_OFFSETS_MIN, min(RANGE_OFFSETS, size))
    return [
        AuditItem(
            topic=one.topic,
            partition=one.partition,
            first=first,
            end=min(first + size, one.log.log_end_offset),
            replicas=one.replicas,
            in_sync=one.in_sync,
            compacted=one.topic in sparse,
        )
        for one in partitions
        for first in range(one.log.log_start_offset, one.log.log_end_offset, size)
    ]


def whole_partition(one: AuditedPartition) -> AuditItem:
    """Return the item for a second reading of a compacted partition, from log start to log end, in
    which the replicas are compared record by record: their batches differed."""
    return AuditItem(
        topic=one.topic,
        partition=one.partition,
        first=one.log.log_start_offset,
        end=one.log.log_end_offset,
        replicas=one.replicas,
        in_sync=one.in_sync,
        compacted=True,
        record_by_record=True,
    )


def summed(
    partitions: Sequence[AuditedPartition],
    found: Iterable[RangeAudit],
    unknown: tuple[str, ...] = (),
) -> AuditFindings:
    """Return the sum of the results of all ranges. Add a finding for each leader epoch that
    decreases from one range of a replica to the next, and each replica on a broker that is not in
    the cluster as unread. `unknown`: the topics with an unreadable configuration."""
    ranges = sorted(found, key=lambda one: (one.topic, one.partition, one.first))
    counts: Counter[str] = Counter()
    examples: list[Example] = []
    unread: dict[tuple[int, str], None] = {}
    for one in ranges:
        counts.update(one.counts)
        examples += [_example(one.topic, finding) for finding in one.findings]
        unread |= {(missed.broker, missed.why): None for missed in one.unread}
    for topic, finding in _falls(ranges):
        counts["epochs"] += 1
        examples.append(_example(topic, finding))
    for partition in partitions:
        unread |= {(broker, AWAY): None for broker in partition.away}
    excused = {one.topic for one in ranges if one.excused}
    behind = {(one.topic, one.partition, broker) for one in ranges for broker in one.behind}
    audited = Audited(
        topics=len({one.topic for one in partitions}),
        partitions=len(partitions),
        replicas=sum(len(one.replicas) for one in partitions),
        batches=sum(one.batches for one in ranges),
        records=sum(one.records for one in ranges),
        markers=sum(one.markers for one in ranges),
        bytes=sum(one.size for one in ranges),
    )
    return AuditFindings(
        audited=audited,
        counts=dict(counts),
        examples=tuple(examples),
        unread=tuple(unread),
        unknown=unknown,
        excused=tuple(sorted(excused)),
        behind=len(behind),
    )


class MirrorFindings(NamedTuple):
    """The results of the comparison with another cluster. `missing`: as text, what could not be
    compared; `replaced`: the sources that were deleted meanwhile."""

    results: tuple[MirrorAudit, ...] = ()
    missing: tuple[str, ...] = ()
    replaced: tuple[str, ...] = ()


def source_names(names: Iterable[str], prefix: str) -> list[str]:
    """Return the names of the sources of mirrors; a name without the prefix has none."""
    return [one.removeprefix(prefix) for one in names if one.startswith(prefix)]


def with_mirrors(
    findings: AuditFindings, mirrors: MirrorFindings, prefix: str = ""
) -> AuditFindings:
    """Return the findings with those of the comparison with another cluster. A topic that was
    deleted meanwhile, on either side, is not judged. `prefix`: what a mirror's name has before the
    source's."""
    findings = msgspec.structs.replace(
        findings,
        missing=(*findings.missing, *mirrors.missing),
        replaced=(*findings.replaced, *mirrors.replaced),
    )
    if not mirrors.results:
        return findings
    results = [
        one
        for one in mirrors.results
        if not {one.topic, f"{prefix}{one.topic}"} & set(findings.replaced)
    ]
    counts = Counter(findings.counts)
    examples = list(findings.examples)
    for one in results:
        counts.update(one.counts)
        examples += [_mirror_example(one, each) for each in one.differences]
    mirrored = Mirrored(
        compared=sum(one.compared for one in results),
        extra=sum(one.extra for one in results),
        behind=sum(one.behind for one in results),
        aborted=sum(one.aborted for one in results),
        markers=sum(one.markers for one in results),
    )
    unread = [f"{one.topic}-{one.partition}: {one.unread}" for one in results if one.unread]
    return msgspec.structs.replace(
        findings,
        counts=dict(counts),
        examples=tuple(examples),
        missing=(*findings.missing, *unread),
        mirrored=mirrored,
    )


def _mirror_example(one: MirrorAudit, each: Difference) -> Example:
    detail = "the mirror lacks them"
    if each.kind == "altered":
        detail = f"the mirror holds another record in its place, at its offset {each.at}"
    return Example(
        topic=one.topic,
        partition=one.partition,
        offset=each.first,
        last_offset=each.last,
        kind=each.kind,
        detail=detail,
    )


def _falls(ranges: Sequence[RangeAudit]) -> Iterable[tuple[str, Finding]]:
    """Yield topic and finding for each range that begins, on one broker, with a lower leader epoch
    than the range before it ended with. `ranges`: sorted by topic, partition and offset."""
    last: dict[tuple[str, int, int], int] = {}
    for one in ranges:
        for edge in one.edges:
            key = (one.topic, one.partition, edge.broker)
            if edge.first_epoch < last.get(key, -1):
                yield (
                    one.topic,
                    Finding(
                        partition=one.partition,
                        first=one.first,
                        last=one.first,
                        kind="epochs",
                        brokers=(edge.broker,),
                        detail=(
                            "the leader epoch of the batches must never fall, but falls from "
                            f"{last[key]} to {edge.first_epoch}"
                        ),
                    ),
                )
            last[key] = edge.last_epoch


def _example(topic: str, finding: Finding) -> Example:
    return Example(
        topic=topic,
        partition=finding.partition,
        offset=finding.first,
        last_offset=finding.last,
        kind=finding.kind,
        brokers=finding.brokers,
        valid_brokers=finding.valid,
        leader=finding.leader,
        detail=finding.detail,
    )
