"""Runs the checks of a verification in Spark's tasks: they read every record of the log back once,
and compare it with the ledger.

Called by `run` when the ledger is complete. Each task checks ranges of offsets (`range_check`), or
measures the acks of a partition (`timeline`), and writes what it found to a file; `fold` joins the
files in the order of the log. The result is counts; `verdict` judges them.
"""

from __future__ import annotations

import contextlib
import dataclasses
import enum
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import msgspec
import numpy as np
from confluent_kafka import KafkaException
from pyspark.sql import SparkSession

from plimsoll_spark import ledger, range_check, timeline
from plimsoll_spark.arrays import Bools, Ints
from plimsoll_spark.copies import Copies, rewritten_in
from plimsoll_spark.fold import Fold, MayBeCleaned
from plimsoll_spark.ledger import LedgerIndex, LedgerRows, RowGroup
from plimsoll_spark.markers import markers_of, without_markers
from plimsoll_spark.partition_reader import OutOfTime, Reader
from plimsoll_spark.range_check import Earlier, LogRows, RangeFindings, Span
from plimsoll_spark.timeline import Clock, Timeline
from plimsoll_spark.topics import OffsetRange, Ranges, TopicClient
from plimsoll_spark.values import Counts, Findings
from plimsoll_spark.whole_files import put_whole

RANGE_RECORDS = 500_000
"""Number of offsets in the largest range. A check holds one range in memory: some 60 MB."""
TASKS_A_CORE = 4
BINS_MAX = 240
SMALLEST_BIN_MS = 100
PROGRESS_EVERY_S = 1.0
STARTS_WITHIN_S = 10.0


class Cleaner(enum.Enum):
    """What the topic's cleaner may have removed."""

    OFF = enum.auto()  # nothing
    ON = enum.auto()  # a record, if the log has a newer one of the same key
    UNREAD = enum.auto()  # any record: the newer ones may be where nothing was read


@dataclass(frozen=True, slots=True, kw_only=True)
class RangeItem:
    """Work of a task: check one range of offsets. `groups`: the row groups of the ledger that may
    have acked offsets in it. `reads`: False if the log holds nothing in the range, so that nothing
    is read. `gaps`: False if missing offsets in it are no fault."""

    span: Span
    groups: tuple[RowGroup, ...]
    reads: bool = True
    gaps: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class TimelineItem:
    """Work of a task: measure the acks of one partition, from these row groups of the ledger."""

    partition: int
    groups: tuple[RowGroup, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckJob:
    """The settings that all tasks of one verification's checks share. `login`: settings of
    librdkafka; `salt`: that of the run's records; `keys`: the number of keys; `until_s`: the
    wall-clock time at which to give up, in seconds since 1970; `results`: the directory of the
    tasks' result files."""

    bootstrap: str
    topic: str
    login: Mapping[str, str]
    salt: bytes
    keys: int
    order_by_key: bool
    """True if records keep their order only within a key, because the producers were not
    idempotent."""
    until_s: float
    clock: Clock
    results: Path


@dataclass(frozen=True, slots=True, kw_only=True)
class Examination:
    """The input of a run's checks. `items`: the work of all tasks; `sent`: the index of the ledger;
    `ranges`: by partition, the offsets that must hold records."""

    job: CheckJob
    items: list[RangeItem | TimelineItem]
    sent: LedgerIndex
    ranges: Ranges


def examine(
    spark: SparkSession, job: CheckJob, items: Iterable[RangeItem | TimelineItem], cores: int
) -> None:
    """Do all `items` in Spark's tasks, on `cores` processors. Each result is a file in
    `job.results`, a directory that is created and must not exist."""
    job.results.mkdir()
    work = list(items)
    slices = max(1, min(len(work), TASKS_A_CORE * cores))
    spark.sparkContext.parallelize(work, slices).foreachPartition(
        lambda some: examine_some(job, some)
    )


def examine_some(job: CheckJob, items: Iterable[RangeItem | TimelineItem]) -> None:
    """Do the work of one task, and write a result file for each item."""
    with a_reader(job) as reader:
        for item in items:
            found: RangeFindings | Timeline
            if isinstance(item, RangeItem):
                found = range_findings(job, reader, item)
            else:
                found = partition_timeline(job, item)
            store(job, item, found)


def store(job: CheckJob, item: RangeItem | TimelineItem, found: RangeFindings | Timeline) -> None:
    """Write the result file of an item."""
    if isinstance(item, RangeItem):
        path = found_path(job, item.span)
    else:
        path = timeline_path(job, item.partition)
    put_whole(path, msgspec.msgpack.encode(found))


def found_path(job: CheckJob, span: Span) -> Path:
    """Return the path of the result file of a range."""
    return job.results / f"range-{span.partition}-{span.first}.found"


def timeline_path(job: CheckJob, partition: int) -> Path:
    """Return the path of the result file of a partition's acks."""
    return job.results / f"timeline-{partition}.found"


def progress_path(job: CheckJob, span: Span) -> Path:
    """Return the path of the file that shows how many records of a range were read."""
    return job.results / f"read-{span.partition}-{span.first}.count"


@contextlib.contextmanager
def a_reader(job: CheckJob) -> Iterator[Reader]:
    """Yield a reader of the job's topic, which is closed at the end of `with`."""
    reader = Reader(
        bootstrap=job.bootstrap,
        topic=job.topic,
        login=job.login,
        salt=job.salt,
        keys=job.keys,
        until_s=job.until_s,
    )
    try:
        yield reader
    finally:
        reader.close()


def range_findings(
    job: CheckJob, reader: Reader, item: RangeItem, earlier: Earlier | None = None
) -> RangeFindings:
    """Read one range of the log, write its progress file, and return the result of its comparison
    with the ledger. `earlier`: the records before the range; None: check it by itself. Raises
    `OutOfTime`."""
    span = item.span
    progress = ProgressFile(progress_path(job, span))
    log, unreadable = reader.read(span, progress.note) if item.reads else (LogRows.empty(), None)
    progress.write(len(log))
    rows = ledger.read(item.groups).between(span.first, span.end)
    keys = job.keys if job.order_by_key else None
    found = range_check.check_range(span, log, rows, keys=keys, earlier=earlier)
    gaps, markers = found.gaps if item.gaps else (), 0
    if gaps and item.reads and unreadable is None:
        known = markers_of(job.bootstrap, job.topic, job.login, span.partition, gaps, job.until_s)
        gaps, markers = without_markers(gaps, known), len(known)
    return msgspec.structs.replace(found, gaps=gaps, markers=markers, unreadable=unreadable)


def partition_timeline(job: CheckJob, item: TimelineItem) -> Timeline:
    """Measure the latency and the stalls of one partition from the ledger."""
    return timeline.timeline(item.partition, ledger.read(item.groups), job.clock)


class ProgressFile:
    """The file in which a task shows how many records of its range it has read."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._next_s = 0.0

    def note(self, read: int) -> None:
        """Write the number of records read so far, unless the last write was less than a second
        ago."""
        if time.monotonic() >= self._next_s:
            self._next_s = time.monotonic() + PROGRESS_EVERY_S
            self.write(read)

    def write(self, read: int) -> None:
        """Write the number of records read so far."""
        put_whole(self._path, str(read).encode())


def records_so_far(results: Path) -> int:
    """Return how many records all tasks have read until now, by their progress files. Records of
    other writers are included."""
    return sum(int(path.read_text()) for path in results.glob("read-*.count"))


def work_items(
    sent: LedgerIndex, expected: Ranges, readable: Ranges
) -> list[RangeItem | TimelineItem]:
    """Return the work of all tasks, sorted by partition and offset.

    `expected`: by partition, the offsets that must hold records; `readable`: the part of them that
    the logs hold. Acked offsets outside `expected`, of records that expired or were lost with the
    log's end, are checked too.
    """
    items: list[RangeItem | TimelineItem] = []
    acked = sent.acked
    for partition, span in sorted(expected.items()):
        first, end = acked.get(partition, (span.log_start_offset, span.log_start_offset))
        there, groups = readable[partition], sent.of(partition)
        parts = (
            (min(first, span.log_start_offset), span.log_start_offset, False, False),
            (there.log_start_offset, there.log_end_offset, True, True),
            (there.log_end_offset, span.log_end_offset, False, True),
            (span.log_end_offset, max(end, span.log_end_offset), False, False),
        )
        for begin, stop, reads, gaps in parts:
            items += [
                RangeItem(
                    span=piece,
                    groups=tuple(one for one in groups if one.overlaps(piece.first, piece.end)),
                    reads=reads,
                    gaps=gaps,
                )
                for piece in pieces(partition, begin, stop)
            ]
        items.append(TimelineItem(partition=partition, groups=groups))
    return items


def pieces(partition: int, first: int, end: int) -> Iterator[Span]:
    """Yield the ranges of at most `RANGE_RECORDS` offsets that make up [first, end)."""
    for start in range(first, end, RANGE_RECORDS):
        yield Span(partition=partition, first=start, end=min(start + RANGE_RECORDS, end))


def findings(
    job: CheckJob,
    items: Iterable[RangeItem | TimelineItem],
    sent: LedgerIndex,
    starts: Mapping[int, int],
    *,
    cleaner: Cleaner = Cleaner.OFF,
) -> Findings:
    """Read the tasks' result files and join them into the findings of the run. A range that records
    before it affect is read and checked again (`fold`). `starts`: by partition, the log start
    offset after the log was read. Raises `OutOfTime`."""
    known = list(items)
    ranges = {item.span: item for item in known if isinstance(item, RangeItem)}
    with a_reader(job) as reader:

        def recheck(span: Span, earlier: Earlier) -> RangeFindings:
            return range_findings(job, reader, ranges[span], earlier)

        fold = Fold(job.topic, recheck, job.keys)
        for span in sorted(ranges, key=lambda one: (one.partition, one.first)):
            content = found_path(job, span).read_bytes()
            fold.add(msgspec.msgpack.decode(content, type=RangeFindings))
        if cleaner is Cleaner.OFF:
            fold.settle(starts, unplaced_rows(sent))
        else:
            may_be_cleaned = _by_newest(reader, ranges.values()) if cleaner is Cleaner.ON else _all
            fold.settle(starts, unplaced_rows(sent), may_be_cleaned)
    if fold.duplicated:
        fold.take_rewritten(_rewritten(job, fold, ranges))
    parts = [
        msgspec.msgpack.decode(timeline_path(job, item.partition).read_bytes(), type=Timeline)
        for item in known
        if isinstance(item, TimelineItem)
    ]
    latency, pace = timeline.joined(parts, job.clock)
    stalls = sorted((part.stall for part in parts if part.stall), key=lambda one: one.partition)
    return Findings(
        counts=_counts(fold, sent),
        latency=latency,
        stalls=tuple(stalls),
        pace=pace,
        bin_ms=job.clock.bin_ms,
        examples=tuple(fold.unreadable) or fold.examples,
        unreadable=bool(fold.unreadable),
        partitions=timeline.by_partition(parts),
        cleaned=fold.cleaned,
        cleaned_gaps=fold.cleaned_gaps,
    )


def _all(partition: int, keys: Ints, offsets: Ints) -> Bools:
    return np.ones(len(offsets), np.bool_)


def _by_newest(reader: Reader, items: Iterable[RangeItem]) -> MayBeCleaned:
    """Return the rule of a compacted log, which keeps the newest record of each key: one may be
    removed if the log has a later one of its key. A partition is read again when it is asked for,
    since nothing else remembers keys. Raises `OutOfTime`."""
    spans = [item.span for item in items if item.reads]
    known: dict[int, tuple[Ints, Ints]] = {}

    def may_be_cleaned(partition: int, keys: Ints, offsets: Ints) -> Bools:
        if partition not in known:
            known.clear()
            known[partition] = _newest(reader, [one for one in spans if one.partition == partition])
        names, newest = known[partition]
        place = np.searchsorted(names, keys)
        found = np.zeros(len(keys), np.bool_)
        within = place < len(names)
        at = place[within]
        found[within] = (names[at] == keys[within]) & (newest[at] > offsets[within])
        return found

    return may_be_cleaned


def _newest(reader: Reader, spans: Iterable[Span]) -> tuple[Ints, Ints]:
    """Return the numbers of all keys in these ranges of one partition, sorted, and the offset of
    each one's newest record."""
    names, newest = np.zeros(0, np.int64), np.zeros(0, np.int64)
    for span in sorted(spans, key=lambda one: one.first):
        log, _ = reader.read(span, lambda _: None)
        keyed = log.key >= 0
        both = np.concatenate((names, log.key[keyed]))[::-1]
        offsets = np.concatenate((newest, log.offset[keyed]))[::-1]
        names, first = np.unique(both, return_index=True)
        newest = offsets[first]
    return names, newest


def _rewritten(job: CheckJob, fold: Fold, spans: Iterable[Span]) -> dict[int, Bools]:
    """Return, by partition, which of the fold's copies their producers wrote again; none for
    producers that are not idempotent. Raises KafkaException, `OutOfTime`."""
    if job.order_by_key:
        return {}
    read = list(spans)
    asked = {
        partition: Copies(
            offsets,
            min(one.first for one in read if one.partition == partition),
            max(one.end for one in read if one.partition == partition),
        )
        for partition, offsets in fold.copies.items()
    }
    return rewritten_in(job.bootstrap, job.topic, job.login, asked, job.until_s)


def partial_findings(
    examined: Examination, client: TopicClient, *, compacted: bool = False
) -> Findings | None:
    """Return the findings of the ranges that were checked until the time was up; None if there are
    none, or if the brokers do not answer in time. An acked record without an offset is not judged,
    since it may be in a range that was not read; nor is a missing one of a compacted topic, of
    which that may have the newer one."""
    job = examined.job
    done = [
        item
        for item in examined.items
        if isinstance(item, RangeItem) and found_path(job, item.span).exists()
    ]
    if not done:
        return None
    try:
        starts = starts_now(client, examined.ranges, STARTS_WITHIN_S)
    except KafkaException:
        return None
    placed = tuple(group for group in examined.sent.groups if group.offsets is not None)
    sent = dataclasses.replace(examined.sent, groups=placed)
    job = dataclasses.replace(job, until_s=time.time() + STARTS_WITHIN_S)
    try:
        return findings(
            job, done, sent, starts, cleaner=Cleaner.UNREAD if compacted else Cleaner.OFF
        )
    except (KafkaException, OutOfTime):
        return None


def starts_now(client: TopicClient, ranges: Ranges, timeout_s: float) -> dict[int, int]:
    """Return, by partition, the first offset of `ranges` that retention has not deleted by now; the
    range's end if all are deleted. Raises KafkaException after `timeout_s`."""
    left = left_by(ranges, client.ranges(tuple(sorted(ranges)), timeout_s))
    return {partition: span.log_start_offset for partition, span in left.items()}


def _counts(fold: Fold, sent: LedgerIndex) -> Counts:
    return Counts(
        sent=sum(sent.outcomes.values()),
        acked=sent.outcomes.get(ledger.ACKED, 0),
        failed=sent.outcomes.get(ledger.FAILED, 0),
        unknown=sent.outcomes.get(ledger.UNKNOWN, 0),
        read=fold.read,
        foreign=fold.foreign,
        markers=fold.markers,
        lost=fold.lost,
        misplaced=fold.misplaced,
        mismatched=fold.mismatched,
        expired=fold.expired,
        duplicated=fold.duplicated,
        rewritten=fold.rewritten,
        out_of_order=fold.out_of_order,
        gaps=fold.gaps,
        unreported=fold.records_of_others(sent.producers),
    )


def unplaced_rows(sent: LedgerIndex) -> Iterator[LedgerRows]:
    """Yield the ledger's rows without an acked offset, one row group at a time."""
    for group in sent.unplaced:
        yield ledger.read((group,))


def clock_of(sent: LedgerIndex) -> Clock:
    """Return the clock of a run: when its first record was sent and its first ack came, and the
    width of a time bin, by the ledger."""
    start_ms = min((group.first_sent_ms for group in sent.groups), default=0.0)
    end_ms = max((group.last_settled_ms for group in sent.groups), default=start_ms)
    acks = (group.first_settled_ms for group in sent.groups if group.offsets is not None)
    bin_ms = max(SMALLEST_BIN_MS, int((end_ms - start_ms) / BINS_MAX) + 1)
    return Clock(start_ms=start_ms, first_ack_ms=min(acks, default=end_ms), bin_ms=bin_ms)


def with_added(before: Ranges, partitions: Iterable[int]) -> Ranges:
    """Return `before`, the logs as the run found them, with an empty range (0 to 0) for each of
    `partitions` that it lacks: these were added since."""
    empty = OffsetRange(log_start_offset=0, log_end_offset=0)
    return dict.fromkeys(sorted(set(partitions)), empty) | before


def left_by(ranges: Ranges, then: Ranges) -> Ranges:
    """Return `ranges` without the offsets that are below the log start offsets in `then`, the logs
    after the reading. If retention has deleted a whole range, it is empty, at its end."""
    found: Ranges = {}
    for partition, span in ranges.items():
        start = max(span.log_start_offset, then[partition].log_start_offset)
        end = span.log_end_offset
        found[partition] = OffsetRange(log_start_offset=min(start, end), log_end_offset=end)
    return found


def expected(now: Ranges, before: Ranges, acked: Mapping[int, tuple[int, int]]) -> Ranges:
    """Return, by partition, the offsets that must hold records: from the log's end at the run's
    start to its present end. `now`, `before`: the logs at present and at the run's start; `acked`:
    the first acked offset and the one after the last.

    An acked offset before the start is a fault of the log, and is included. So are offsets between
    a log end that moved back and the end at the start: they are missing.
    """
    found: Ranges = {}
    for partition, there in now.items():
        begin = before[partition].log_end_offset
        first = min(begin, acked.get(partition, (begin, begin))[0], there.log_end_offset)
        start = max(there.log_start_offset, first)
        end = max(there.log_end_offset, begin, start)
        found[partition] = OffsetRange(log_start_offset=start, log_end_offset=end)
    return found


def readable(wanted: Ranges, now: Ranges) -> Ranges:
    """Return the part of `wanted` that lies before the present ends of the logs, `now`."""
    return {
        partition: OffsetRange(
            log_start_offset=min(span.log_start_offset, now[partition].log_end_offset),
            log_end_offset=min(span.log_end_offset, now[partition].log_end_offset),
        )
        for partition, span in wanted.items()
    }
