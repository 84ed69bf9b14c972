"""Compares partitions with their source in another cluster, in Spark's tasks.

Called by `audit`. A task reads one partition on both sides, from the leaders, as a consumer gets
it, and opens every record; it holds two windows of hashes. It writes to neither cluster.
"""

from __future__ import annotations

import contextlib
import hashlib
from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import msgspec
import numpy as np

from plimsoll_spark.arrays import Bools, Ints
from plimsoll_spark.batches import LOG_APPEND_TIME, Batch, is_control
from plimsoll_spark.checks import ProgressFile
from plimsoll_spark.existing_topics import AuditedPartition
from plimsoll_spark.mirror_compare import Difference, Piece, compare_mirror
from plimsoll_spark.opened_records import Unopenable, opened
from plimsoll_spark.replica_compare import within
from plimsoll_spark.replica_reader import Connections, Place, RateLimit, ReplicaReader
from plimsoll_spark.topics import OffsetRange

PIECE_OFFSETS = 20_000
"""Number of offsets that are read at once, and kept until they are compared."""
_MIX = np.uint64(0x9E3779B97F4A7C15)


@dataclass(frozen=True, slots=True, kw_only=True)
class MirrorJob:
    """The settings that all tasks share. `login`, `source_login`: settings of librdkafka for the
    audited cluster and for the one with the sources; the others as in `AuditJob`."""

    login: Mapping[str, str]
    source_login: Mapping[str, str]
    until_s: float
    bytes_per_second: float | None
    results: Path


class Half(NamedTuple):
    """One side of a partition: its leader's place, and the offsets to read."""

    place: Place
    log: OffsetRange


@dataclass(frozen=True, slots=True, kw_only=True)
class MirrorItem:
    """One partition to compare, on both sides."""

    mirror: Half
    source: Half


class MirrorAudit(msgspec.Struct, frozen=True, kw_only=True):
    """The result for one partition; `topic`: the source's name. The fields of `MirrorResult`;
    `aborted`, `markers`: numbers of the source's records of aborted transactions, and of its
    markers of transactions; `unread`: why it was not compared to its end, "" if it was."""

    topic: str
    partition: int
    compared: int = 0
    aborted: int = 0
    markers: int = 0
    differences: tuple[Difference, ...] = ()
    counts: dict[str, int] = {}
    extra: int = 0
    behind: int = 0
    unread: str = ""


class Unread(Exception):
    """One side cannot be read to its end. The message says which, and why."""


def mirror_items(
    mirrors: Iterable[AuditedPartition], sources: Iterable[AuditedPartition], prefix: str
) -> tuple[list[MirrorItem], tuple[str, ...]]:
    """Return the partitions to compare, and as text those of the sources that have no mirror.
    `prefix`: what a mirror's name has before the source's."""
    held = {(one.topic, one.partition): one for one in mirrors}
    items, missing = [], []
    for source in sources:
        name = f"{prefix}{source.topic}"
        mirror = held.get((name, source.partition))
        if mirror is None:
            missing.append(f"{source.topic}-{source.partition}: topic {name} has no such partition")
        else:
            items.append(
                MirrorItem(
                    mirror=Half(mirror.replicas[0], mirror.log),
                    source=Half(source.replicas[0], source.log),
                )
            )
    return items, tuple(missing)


def compare_some(job: MirrorJob, items: Iterable[MirrorItem]) -> Iterator[MirrorAudit]:
    """Compare one partition after another, in one Spark task, and yield the result of each. Write a
    progress file for each. The rate limit holds for both sides together."""
    limit = RateLimit(job.bytes_per_second)
    with (
        contextlib.closing(Connections(job.login)) as here,
        contextlib.closing(Connections(job.source_login)) as there,
    ):
        for item in items:
            yield _compared(job, item, here, there, limit)


def _compared(
    job: MirrorJob, item: MirrorItem, here: Connections, there: Connections, limit: RateLimit
) -> MirrorAudit:
    place = item.source.place
    topic = hashlib.blake2b(place.topic.encode(), digest_size=16).hexdigest()
    progress = ProgressFile(job.results / f"read-{topic}-{place.partition}-mirror.count")
    source = _Records(job, item.source, there, limit, "the source", progress)
    mirror = _Records(job, item.mirror, here, limit, "the mirror", None)
    try:
        found = compare_mirror(
            source.pieces(),
            (_committed(one) for one in mirror.pieces()),
            source_begins=item.source.log.log_start_offset == 0,
            mirror_begins=item.mirror.log.log_start_offset == 0,
        )
    except Unread as error:
        return MirrorAudit(topic=place.topic, partition=place.partition, unread=str(error))
    values = found._asdict()
    apart_from = values.pop("apart_from")
    return MirrorAudit(
        topic=place.topic,
        partition=place.partition,
        aborted=source.aborted,
        markers=source.markers,
        unread="" if apart_from is None else _apart(apart_from),
        **values,
    )


def _apart(offset: int) -> str:
    return (
        f"the source from offset {offset} on and the mirror have no record in common, so nothing"
        " there was compared"
    )


class _Records:
    """The records of one side. `markers`: number of the markers of transactions that were read;
    `aborted`: number of records of aborted transactions."""

    def __init__(
        self,
        job: MirrorJob,
        half: Half,
        connections: Connections,
        limit: RateLimit,
        side: str,
        progress: ProgressFile | None,
    ) -> None:
        self._reader = ReplicaReader(
            connections,
            half.place,
            own_copy=False,
            until_s=job.until_s,
            limit=limit,
        )
        self._log, self._side, self._progress = half.log, side, progress
        self.markers = self.aborted = 0

    def pieces(self) -> Iterator[Piece]:
        """Yield the records in their order. Raises `Unread`."""
        start, end = self._log.log_start_offset, self._log.log_end_offset
        read = 0
        for first in range(start, end, PIECE_OFFSETS):
            stop = min(first + PIECE_OFFSETS, end)
            columns = _Columns(first, stop)
            held = self._reader.read(first, stop, columns.take, committed=True)
            if held.why is not None:
                raise Unread(f"{self._side} was not read to its end: {held.why.value}")
            if held.bad or columns.unopenable is not None:
                bad = held.bad[0].first if held.bad else columns.unopenable
                raise Unread(
                    f"{self._side} holds an unreadable record batch at offset {bad}; audit that "
                    "cluster without a mirror to learn which replica is valid and what to do"
                )
            inside = within(held, first, stop)
            self.markers += int(is_control(inside["attributes"]).sum())
            piece = columns.as_piece()
            self.aborted += 0 if piece.aborted is None else int(piece.aborted.sum())
            if self._progress is not None:
                read += len(piece.offset)
                self._progress.write(read)
            yield from parts(piece, held.skipped_to)


def parts(piece: Piece, skipped_to: Sequence[int]) -> Iterator[Piece]:
    """Yield the parts of a piece between the places at which retention deleted records while it
    was read. `skipped_to`: the offset behind each of these places, sorted."""
    edges = [0, *np.searchsorted(piece.offset, skipped_to).tolist(), len(piece.offset)]
    for number, (begin, end) in enumerate(pairwise(edges)):
        yield _rows(piece, np.arange(begin, end))._replace(cut=number > 0)


def _committed(piece: Piece) -> Piece:
    assert piece.aborted is not None
    return _rows(piece, ~piece.aborted)


def _rows(piece: Piece, rows: Bools | Ints) -> Piece:
    assert piece.aborted is not None
    assert piece.time_ms is not None
    return piece._replace(
        offset=piece.offset[rows],
        content=piece.content[rows],
        aborted=piece.aborted[rows],
        time_ms=piece.time_ms[rows],
    )


class _Columns:
    """Collects the records at offsets from `first` to before `end`, without control records."""

    def __init__(self, first: int, end: int) -> None:
        self._first, self._end = first, end
        self._offset, self._content, self._time = array("q"), array("q"), array("q")
        self._aborted = array("b")
        self.unopenable: int | None = None

    def take(self, data: memoryview, batches: Sequence[Batch], aborted: frozenset[int]) -> None:
        """Add the records of consecutive batches. `data`: their bytes; `aborted`: base offsets of
        those of aborted transactions."""
        at = 0
        for batch in batches:
            if not is_control(batch.attributes):
                self._add(data[at : at + batch.size], batch, batch.base_offset in aborted)
            at += batch.size

    def _add(self, data: memoryview, batch: Batch, aborted: bool) -> None:
        appended = batch.attributes & LOG_APPEND_TIME
        try:
            for one in opened(data, batch):
                if self._first <= one.offset < self._end:
                    self._offset.append(one.offset)
                    self._content.append(one.content)
                    self._time.append(batch.max_timestamp if appended else one.timestamp_ms)
                    self._aborted.append(aborted)
        except Unopenable:
            self.unopenable = batch.base_offset

    def as_piece(self) -> Piece:
        """Return the records, each with a hash of its timestamp, key, value and headers."""
        offset, content, time = (
            np.frombuffer(column, np.int64) for column in (self._offset, self._content, self._time)
        )
        mixed = content.view(np.uint64) ^ (time.view(np.uint64) * _MIX)
        aborted = np.frombuffer(self._aborted, np.bool_)
        return Piece(offset, mixed.view(np.int64), aborted, time_ms=time)
