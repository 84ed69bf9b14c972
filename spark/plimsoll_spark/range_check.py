"""Checks one range of offsets of one partition: its ledger rows against its log records. Pure.

Called in Spark's tasks (`checks`). A range is checked alone; `fold` joins the results of all ranges
in the order (partition, offset). Two facts cross ranges: copies of a record, and records behind a
later one of their producer. `earlier` tells a range what came before it; `fold` asks for it only
where the first result shows that it matters.
"""

from __future__ import annotations

from dataclasses import dataclass

import msgspec
import numpy as np

from plimsoll_spark.arrays import Bools, Ints
from plimsoll_spark.ledger import LedgerRows
from plimsoll_spark.seen import Seen, SeenBits

EXAMPLES_MAX = 5
"""Examples of each kind from one range."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LogRows:
    """Records of a range in the order of their offsets; columns of one length."""

    offset: Ints
    producer: Ints
    sequence: Ints
    # Number of the key, or -1 if it is not the key that the producer gives to this sequence.
    key: Ints
    # True if this run wrote the record, and it is whole.
    ours: Bools

    def __len__(self) -> int:
        return len(self.offset)

    @classmethod
    def empty(cls) -> LogRows:
        """Return no records."""
        none = np.zeros(0, np.int64)
        return cls(offset=none, producer=none, sequence=none, key=none, ours=np.zeros(0, np.bool_))


class Span(msgspec.Struct, frozen=True, kw_only=True):
    """Offsets [first, end) of one partition."""

    partition: int
    first: int
    end: int


class Gap(msgspec.Struct, frozen=True, kw_only=True):
    """Offsets [first, end) without a record."""

    first: int
    end: int


class Stream(msgspec.Struct, frozen=True, kw_only=True):
    """Sequences of one stream in one range: a producer, or one key of a producer that is not
    idempotent."""

    number: int
    lowest: int
    highest: int


class Strays(msgspec.Struct, frozen=True, kw_only=True):
    """Acked records that are not at their offsets: columns of one length, as bytes of integers of
    eight bytes; `occupied`: a byte each, 1 if another record is there."""

    producer: bytes
    sequence: bytes
    offset: bytes
    occupied: bytes

    def __len__(self) -> int:
        return len(self.occupied)


class Earlier(msgspec.Struct, frozen=True, kw_only=True):
    """What stands before a range: records, and the highest sequence of each stream."""

    seen: tuple[SeenBits, ...]
    highest: dict[int, int]


class RangeFindings(msgspec.Struct, frozen=True, kw_only=True):
    """The result of one range."""

    span: Span
    read: int
    foreign: int
    duplicated: int
    duplicates: tuple[int, ...]  # offsets of the first ones
    out_of_order: int
    disordered: tuple[int, ...]  # offsets of the first ones
    gaps: tuple[Gap, ...]
    streams: tuple[Stream, ...]
    strays: Strays
    seen: tuple[SeenBits, ...]
    # Offset of a batch that no consumer can read; nothing from there on was read.
    unreadable: int | None = None


def check_range(
    span: Span,
    log: LogRows,
    ledger: LedgerRows,
    *,
    keys: int | None = None,
    earlier: Earlier | None = None,
) -> RangeFindings:
    """Return the findings of a range. `ledger`: the acked rows with offsets in the range;
    `keys`: the number of keys if order is kept within a key only, else None."""
    mine = np.flatnonzero(log.ours)
    producer, sequence = log.producer[mine], log.sequence[mine]
    first = _first_copies(producer, sequence, earlier)
    offsets = log.offset[mine]
    stream = producer if keys is None else producer * (keys + 1) + log.key[mine] + 1
    behind = _behind(stream[first], sequence[first], {} if earlier is None else earlier.highest)
    disordered = offsets[first][behind]
    copies = offsets[~first]
    return RangeFindings(
        span=span,
        read=len(mine),
        foreign=len(log) - len(mine),
        duplicated=len(copies),
        duplicates=tuple(copies[:EXAMPLES_MAX].tolist()),
        out_of_order=len(disordered),
        disordered=tuple(disordered[:EXAMPLES_MAX].tolist()),
        gaps=_gaps(span, log.offset),
        streams=_streams(stream[first], sequence[first]),
        strays=_strays(log, ledger),
        seen=Seen.of(producer, sequence).bits(),
    )


def _first_copies(producer: Ints, sequence: Ints, earlier: Earlier | None) -> Bools:
    """Return True for each record that stands here, or before the range, for the first time."""
    first = np.zeros(len(producer), np.bool_)
    record = producer.astype(np.uint64) << np.uint64(48) | sequence.astype(np.uint64)
    first[np.unique(record, return_index=True)[1]] = True
    if earlier is not None:
        first &= ~Seen.from_bits(earlier.seen).has(producer, sequence)
    return first


def _behind(stream: Ints, sequence: Ints, highest: dict[int, int]) -> Bools:
    """Return True for each record with a sequence below that of an earlier one of its stream."""
    behind = np.zeros(len(stream), np.bool_)
    if not len(stream):
        return behind
    order = np.argsort(stream, kind="stable")
    names, starts = np.unique(stream[order], return_index=True)
    for name, rows in zip(names.tolist(), np.split(order, starts[1:]), strict=True):
        before = np.concatenate(([highest.get(name, -1)], sequence[rows]))
        behind[rows] = np.maximum.accumulate(before)[:-1] > sequence[rows]
    return behind


def _streams(stream: Ints, sequence: Ints) -> tuple[Stream, ...]:
    order = np.argsort(stream, kind="stable")
    names, starts = np.unique(stream[order], return_index=True)
    if not len(names):
        return ()
    lowest = np.minimum.reduceat(sequence[order], starts)
    highest = np.maximum.reduceat(sequence[order], starts)
    return tuple(
        Stream(number=number, lowest=low, highest=high)
        for number, low, high in zip(names.tolist(), lowest.tolist(), highest.tolist(), strict=True)
    )


def _gaps(span: Span, offsets: Ints) -> tuple[Gap, ...]:
    edges = np.concatenate(([span.first - 1], offsets.astype(np.int64), [span.end]))
    before = np.flatnonzero(np.diff(edges) > 1)
    return tuple(
        Gap(first=first + 1, end=end)
        for first, end in zip(edges[before].tolist(), edges[before + 1].tolist(), strict=True)
    )


def _strays(log: LogRows, ledger: LedgerRows) -> Strays:
    place = np.searchsorted(log.offset, ledger.offset)
    found = np.zeros(len(ledger), np.bool_)
    within = place < len(log)
    found[within] = log.offset[place[within]] == ledger.offset[within]
    kept = found.copy()
    at = place[found]
    kept[found] = (
        log.ours[at]
        & (log.producer[at] == ledger.producer[found])
        & (log.sequence[at] == ledger.sequence[found])
        & (log.key[at] >= 0)
    )
    return Strays(
        producer=ledger.producer[~kept].astype(np.int64).tobytes(),
        sequence=ledger.sequence[~kept].astype(np.int64).tobytes(),
        offset=ledger.offset[~kept].astype(np.int64).tobytes(),
        occupied=found[~kept].tobytes(),
    )
