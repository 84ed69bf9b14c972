"""Reads what is new in the log of a continuous run, in Spark's tasks.

Called by `continuous` in each micro-batch. Spark's own Kafka source does not serve it: it skips
silently, or ends the query at, the truncated offsets and unreadable batches that this run looks
for; and it has no micro-batch while nothing is appended, although a log that shrank, or does not
answer, is to be judged, too. A streaming source in Python would need a process that starts within
ten seconds, a bound that Spark fixes.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import msgspec
import numpy as np
from pyspark.sql import SparkSession

from plimsoll_spark.markers import markers_at
from plimsoll_spark.partition_reader import OutOfTime, Reader
from plimsoll_spark.range_check import Gap, LogRows, Span, gaps_in
from plimsoll_spark.replica_reader import Connections, Place, RateLimit, ReplicaReader
from plimsoll_spark.rolling_judge import Reading
from plimsoll_spark.topics import Ranges, TopicClient

RANGE_MAX = 200_000
"""The most offsets of a partition in one micro-batch."""
READ_WITHIN_S = 20.0
SETTLE_S = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class RunReader:
    """How to read the records of a run. `login`: settings of librdkafka; `salt`, `keys`: those of
    the run's records."""

    bootstrap: str
    topic: str
    login: Mapping[str, str]
    salt: bytes
    keys: int

    def read(
        self, spark: SparkSession, positions: Mapping[int, int], ends: Ranges, tasks: int
    ) -> list[Reading]:
        """Return the records from `positions` to the high watermarks in `ends`, read in `tasks`
        tasks. What cannot be read within `READ_WITHIN_S` is left out."""
        spans = ranges(positions, ends)
        groups = [spans[number::tasks] for number in range(tasks) if spans[number::tasks]]
        if not groups:
            return []
        found = spark.sparkContext.parallelize(groups, len(groups)).map(self.read_spans).collect()
        return [reading for group in found for reading in group]

    def read_spans(self, spans: Sequence[Span]) -> list[Reading]:
        """Read some ranges one after another, in a task."""
        reader = Reader(
            bootstrap=self.bootstrap,
            topic=self.topic,
            login=self.login,
            salt=self.salt,
            keys=self.keys,
            until_s=0.0,
        )
        try:
            until_s = time.time() + READ_WITHIN_S
            return [self._read(reader, span, until_s) for span in spans]
        finally:
            reader.close()

    def _read(self, reader: Reader, span: Span, until_s: float) -> Reading:
        parts: list[LogRows] = []
        bad: list[Gap] = []
        leader: int | None = None
        at = span.first
        while at < span.end:
            rest = Span(partition=span.partition, first=at, end=span.end)
            some = reader.read_some(rest, lambda _: None, until_s=until_s, settle_s=SETTLE_S)
            parts.append(some.rows)
            at = some.end
            if some.unreadable is None:
                break
            gap, leader = self._unreadable(Span(partition=span.partition, first=at, end=span.end))
            bad.append(gap)
            at = gap.end
        read = Span(partition=span.partition, first=span.first, end=max(span.first, at))
        reading = Reading(span=read, log=_joined(parts), bad=tuple(bad), leader=leader)
        return self._with_markers(reading, until_s)

    def _with_markers(self, reading: Reading, until_s: float) -> Reading:
        """Return the reading with the markers that explain missing offsets. If they cannot be
        looked up now, return the part before the first missing offset."""
        span = reading.span
        bad = [np.arange(one.first, min(one.end, span.end)) for one in reading.bad]
        gaps = gaps_in(span, np.unique(np.concatenate([reading.log.offset, *bad])))
        if not gaps:
            return reading
        with contextlib.closing(TopicClient(self.bootstrap, self.topic, self.login)) as client:
            leader = client.leader_of(span.partition)
        if leader is not None:
            place = Place(self.topic, span.partition, *leader)
            with contextlib.suppress(OutOfTime):
                return replace(reading, markers=markers_at(place, self.login, gaps, until_s))
        return before(reading, gaps[0].first)

    def _unreadable(self, span: Span) -> tuple[Gap, int | None]:
        """Return the offsets from the start of `span` on that hold no valid batch, all of it if
        that cannot be told, and the broker that leads the partition, None if unknown."""
        client = TopicClient(self.bootstrap, self.topic, self.login)
        try:
            leader = client.leader_of(span.partition)
        finally:
            client.close()
        if leader is None:
            return Gap(first=span.first, end=span.end), None
        connections = Connections(self.login)
        try:
            held = ReplicaReader(
                connections,
                Place(self.topic, span.partition, *leader),
                own_copy=False,
                until_s=time.time() + READ_WITHIN_S,
                limit=RateLimit(None),
            ).read(span.first, span.end)
        finally:
            connections.close()
        ends = [one.end for one in held.bad if one.first <= span.first < one.end]
        return Gap(first=span.first, end=min(ends, default=span.end)), leader[0]


def ranges(positions: Mapping[int, int], ends: Ranges) -> list[Span]:
    """Return the ranges to read, the longest first. A partition that did not answer is left out."""
    spans = [
        Span(partition=number, first=first, end=min(ends[number].log_end_offset, first + RANGE_MAX))
        for number, first in positions.items()
        if number in ends and first < ends[number].log_end_offset
    ]
    return sorted(spans, key=lambda one: (one.first - one.end, one.partition))


def before(reading: Reading, end: int) -> Reading:
    """Return the part of a reading at offsets before `end`."""
    log, rows = reading.log, reading.log.offset < end
    return Reading(
        span=msgspec.structs.replace(reading.span, end=end),
        log=LogRows(
            offset=log.offset[rows],
            producer=log.producer[rows],
            sequence=log.sequence[rows],
            key=log.key[rows],
            ours=log.ours[rows],
        ),
        bad=tuple(one for one in reading.bad if one.first < end),
        leader=reading.leader,
    )


def _joined(parts: Sequence[LogRows]) -> LogRows:
    if not parts:
        return LogRows.empty()
    return LogRows(
        offset=np.concatenate([one.offset for one in parts]),
        producer=np.concatenate([one.producer for one in parts]),
        sequence=np.concatenate([one.sequence for one in parts]),
        key=np.concatenate([one.key for one in parts]),
        ours=np.concatenate([one.ours for one in parts]),
    )
