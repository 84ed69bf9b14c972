"""Small ledgers and logs that agree with each other, for tests that then break one of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pyarrow as pa

from plimsoll_spark import checks, ledger
from plimsoll_spark.batches import Rows, rows
from plimsoll_spark.checks import CheckJob, Cleaner, Examination
from plimsoll_spark.copies import Copies, rewritten
from plimsoll_spark.ledger import ACKED
from plimsoll_spark.range_check import Gap, LogRows, Span
from plimsoll_spark.records import Encoder, salt_of
from plimsoll_spark.topics import OffsetRange
from plimsoll_spark.values import Findings

RUN = "run-of-the-tests"
KEYS = 4
T0_MS = 1_795_000_000_000.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Sent:
    """A row of the ledger."""

    producer: int
    sequence: int
    partition: int | None
    offset: int | None
    outcome: str = ACKED
    send_ms: float = T0_MS
    settled_ms: float = T0_MS + 1

    @property
    def value(self) -> bytes:
        return Encoder(run=RUN, producer=self.producer, record_bytes=32).value(self.sequence)


@dataclass(frozen=True, slots=True, kw_only=True)
class Read:
    """A record of the log. Another writer's has no producer and no sequence (-1)."""

    partition: int
    offset: int
    producer: int = -1
    sequence: int = -1
    key: int = 0
    ours: bool = True

    @staticmethod
    def of(sent: Sent) -> Read:
        """The record just as it was acked."""
        assert sent.partition is not None
        assert sent.offset is not None
        return Read(
            partition=sent.partition,
            offset=sent.offset,
            producer=sent.producer,
            sequence=sent.sequence,
        )


def agreeing(per_partition: int = 10) -> tuple[list[Sent], list[Read]]:
    """Two partitions, each written by a producer of its own; all acked, all there."""
    sent = [
        Sent(producer=partition, sequence=number, partition=partition, offset=number)
        for partition in (0, 1)
        for number in range(per_partition)
    ]
    return sent, [Read.of(one) for one in sent]


def moved(read: Read, *, offset: int) -> Read:
    """The same record at another offset."""
    return replace(read, offset=offset)


def foreign(read: Read) -> Read:
    """Another writer's record in its place."""
    return Read(partition=read.partition, offset=read.offset, ours=False, key=-1)


def write_ledger(directory: Path, sent: Sequence[Sent], chunk: int = 7) -> None:
    """Several files, as a producer writes them."""
    directory.mkdir(exist_ok=True)
    for number, start in enumerate(range(0, len(sent), chunk)):
        rows = [
            {name: getattr(one, name) for name in ledger.SCHEMA.names}
            for one in sent[start : start + chunk]
        ]
        batch = pa.RecordBatch.from_pylist(rows, schema=ledger.SCHEMA)
        ledger.write_chunk(directory / f"producer-0-{number:06d}.parquet", batch)


def _known(markers: Sequence[int]) -> Any:
    def of(_: str, __: str, ___: object, ____: int, gaps: Sequence[Gap], _____: float) -> Any:
        there = [at for at in markers if any(one.first <= at < one.end for one in gaps)]
        return np.array(there, np.int64)

    return of


class KnownLog:
    """Stands in for `partition_reader.Reader`."""

    def __init__(self, read: Iterable[Read]) -> None:
        self._read = sorted(read, key=lambda one: (one.partition, one.offset))
        self.spans: list[Span] = []

    def read(self, span: Span, progress: Callable[[int], None]) -> tuple[LogRows, int | None]:
        self.spans.append(span)
        rows = [
            one
            for one in self._read
            if one.partition == span.partition and span.first <= one.offset < span.end
        ]
        progress(len(rows))
        columns = {
            name: np.array([getattr(one, name) for one in rows], np.int64)
            for name in ("offset", "producer", "sequence", "key")
        }
        return LogRows(**columns, ours=np.array([one.ours for one in rows], np.bool_)), None

    def close(self) -> None:
        pass


def examined(
    directory: Path,
    sent: Sequence[Sent],
    read: Sequence[Read],
    ranges: Mapping[int, tuple[int, int]],
    *,
    starts: Mapping[int, int] | None = None,
    piece: int = 3,
    order_by_key: bool = False,
    log: KnownLog | None = None,
    batches: Mapping[int, Rows] | None = None,
    markers: Sequence[int] = (),
    cleaner: Cleaner = Cleaner.OFF,
) -> Findings:
    """What a run finds. `ranges`: the offsets that each log holds; `starts`: where the logs begin
    once they were read; `batches`: by partition, those by which the writer of a copy is told, none
    by default; `markers`: the offsets that hold markers of transactions, in each partition."""

    def read_headers(
        _: str, __: str, ___: object, copies: Mapping[int, Copies], ____: float
    ) -> Any:
        known = dict(batches or {})
        return {p: rewritten(known.get(p, rows([])), one.offsets) for p, one in copies.items()}

    begun = examination(directory, sent, ranges, piece=piece, order_by_key=order_by_key)
    reader = log or KnownLog(read)
    with (
        mock.patch.object(checks, "Reader", return_value=reader),
        mock.patch.object(checks, "rewritten_in", read_headers),
        mock.patch.object(checks, "markers_of", _known(markers)),
    ):
        checks.examine_some(begun.job, begun.items)
        begin = {p: start for p, (start, _) in ranges.items()} | dict(starts or {})
        return checks.findings(begun.job, begun.items, begun.sent, begin, cleaner=cleaner)


def examination(
    directory: Path,
    sent: Sequence[Sent],
    ranges: Mapping[int, tuple[int, int]],
    *,
    piece: int = 3,
    order_by_key: bool = False,
) -> Examination:
    """The checks of a run as they begin; see `examined`."""
    write_ledger(directory / "ledger", sent)
    known = ledger.index(directory / "ledger")
    held = {
        partition: OffsetRange(log_start_offset=start, log_end_offset=end)
        for partition, (start, end) in ranges.items()
    }
    results = directory / "results"
    results.mkdir()
    job = CheckJob(
        bootstrap="none",
        topic="t",
        login={},
        salt=salt_of(RUN),
        keys=KEYS,
        order_by_key=order_by_key,
        until_s=0.0,
        clock=checks.clock_of(known),
        results=results,
    )
    with mock.patch.object(checks, "RANGE_RECORDS", piece):
        items = checks.work_items(known, held, held)
    return Examination(job=job, items=items, sent=known, ranges=held)
