"""Checks one range of offsets of one partition: compares its log records with the ledger. Pure.

Called in Spark's tasks (`checks`). A range is checked by itself; `fold` joins the results of all
ranges in the order (partition, offset). Two faults can cross ranges: a second copy of a record, and
a record behind a later one of its producer. For them `fold` has a range checked again with what was
found before it, `earlier`, but only where the first result shows that it matters.
"""

from __future__ import annotations

from dataclasses import dataclass

import msgspec
import numpy as np

from plimsoll_spark.arrays import Bools, Ints
from plimsoll_spark.ledger import LedgerRows
from plimsoll_spark.seen import Seen, SeenBits

EXAMPLES_MAX = 5
"""Bound on the examples of each kind of fault from one range."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LogRows:
    """Records read from a range of the log, in the order of their offsets, as columns of equal
    length. Other writers' records are included, with -1 for producer and sequence."""

    offset: Ints
    producer: Ints
    sequence: Ints
    key: Ints
    """Number of the record's key; -1 if the record has another key than its producer gave it, or,
    another writer's, none of the run's keys."""
    ours: Bools
    """True if this run wrote the record and its content is undamaged."""

    def __len__(self) -> int:
        return len(self.offset)

    @classmethod
    def empty(cls) -> LogRows:
        """Return the rows of a range without records."""
        none = np.zeros(0, np.int64)
        return cls(offset=none, producer=none, sequence=none, key=none, ours=np.zeros(0, np.bool_))


class Span(msgspec.Struct, frozen=True, kw_only=True):
    """A range of offsets of one partition: [first, end)."""

    partition: int
    first: int
    end: int


class Gap(msgspec.Struct, frozen=True, kw_only=True):
    """A range of offsets without records: [first, end)."""

    first: int
    end: int


class Found(msgspec.Struct, frozen=True, kw_only=True):
    """One record of this run in the log."""

    offset: int
    producer: int
    sequence: int


class Stream(msgspec.Struct, frozen=True, kw_only=True):
    """The lowest and the highest sequence of one stream in a range. A stream is a set of records
    that the log must hold in the order of their sequences: those of a producer, or of one key of a
    producer that is not idempotent."""

    number: int
    lowest: int
    highest: int


class Strays(msgspec.Struct, frozen=True, kw_only=True):
    """Acked records that a range does not have at their acked offsets, as columns of equal length:
    bytes of 64-bit integers. `occupied`: a byte each, 1 if another record has the offset."""

    producer: bytes
    sequence: bytes
    offset: bytes
    occupied: bytes

    def __len__(self) -> int:
        return len(self.occupied)


class Earlier(msgspec.Struct, frozen=True, kw_only=True):
    """The records of this run in the ranges before a range. `seen`: all of them, in earlier
    partitions too; `highest`: by number of the stream, the highest sequence in the same
    partition."""

    seen: tuple[SeenBits, ...]
    highest: dict[int, int]


class RangeFindings(msgspec.Struct, frozen=True, kw_only=True):
    """The result of checking one range. `read`: the number of this run's records; `foreign`: of
    other writers' records; `seen`: the records themselves, for the checks of later ranges."""

    span: Span
    read: int
    foreign: int
    duplicated: int
    duplicates: tuple[Found, ...]  # the first `EXAMPLES_MAX` second copies
    copies: bytes  # offsets of all second copies, as 64-bit integers
    out_of_order: int
    disordered: tuple[Found, ...]  # the first `EXAMPLES_MAX` out of order
    gaps: tuple[Gap, ...]
    streams: tuple[Stream, ...]
    strays: Strays
    seen: tuple[SeenBits, ...]
    markers: int = 0
    """Number of offsets that are no gaps, since they hold the markers of transactions."""
    unreadable: int | None = None
    """Offset of a batch that no consumer can read; nothing from there on was read. None: there is
    none."""


def check_range(
    span: Span,
    log: LogRows,
    ledger: LedgerRows,
    *,
    keys: int | None = None,
    earlier: Earlier | None = None,
) -> RangeFindings:
    """Compare the log records of one range with the ledger, and return the differences. `ledger`:
    the rows with acked offsets in the range; `keys`: the number of keys if records keep their order
    only within a key, else None; `earlier`: the records before the range, None to check it by
    itself."""
    mine = np.flatnonzero(log.ours)
    producer, sequence = log.producer[mine], log.sequence[mine]
    first = _first_copies(producer, sequence, earlier)
    offsets = log.offset[mine]
    stream = producer if keys is None else producer * (keys + 1) + log.key[mine] + 1
    late = behind(stream[first], sequence[first], {} if earlier is None else earlier.highest)
    disordered = np.flatnonzero(first)[late]
    copies = np.flatnonzero(~first)

    def found(rows: Ints) -> tuple[Found, ...]:
        some = rows[:EXAMPLES_MAX]
        columns = (offsets[some].tolist(), producer[some].tolist(), sequence[some].tolist())
        return tuple(
            Found(offset=at, producer=by, sequence=number)
            for at, by, number in zip(*columns, strict=True)
        )

    return RangeFindings(
        span=span,
        read=len(mine),
        foreign=len(log) - len(mine),
        duplicated=len(copies),
        duplicates=found(copies),
        copies=offsets[copies].astype(np.int64).tobytes(),
        out_of_order=len(disordered),
        disordered=found(disordered),
        gaps=gaps_in(span, log.offset),
        streams=_streams(stream[first], sequence[first]),
        strays=_strays(log, ledger),
        seen=Seen.of(producer, sequence).bits(),
    )


def _first_copies(producer: Ints, sequence: Ints, earlier: Earlier | None) -> Bools:
    """Return, for each record, True if it is the first copy: none stands before it in the range, or
    in `earlier`."""
    first = np.zeros(len(producer), np.bool_)
    record = producer.astype(np.uint64) << np.uint64(48) | sequence.astype(np.uint64)
    first[np.unique(record, return_index=True)[1]] = True
    if earlier is not None:
        first &= ~Seen.from_bits(earlier.seen).has(producer, sequence)
    return first


def behind(stream: Ints, sequence: Ints, highest: dict[int, int]) -> Bools:
    """Return, for each record, True if an earlier record of its stream has a higher sequence.
    `highest`: by stream, the highest sequence before the range."""
    found = np.zeros(len(stream), np.bool_)
    if not len(stream):
        return found
    order = np.argsort(stream, kind="stable")
    names, starts = np.unique(stream[order], return_index=True)
    for name, rows in zip(names.tolist(), np.split(order, starts[1:]), strict=True):
        before = np.concatenate(([highest.get(name, -1)], sequence[rows]))
        found[rows] = np.maximum.accumulate(before)[:-1] > sequence[rows]
    return found


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


def gaps_in(span: Span, offsets: Ints) -> tuple[Gap, ...]:
    """Return the ranges of offsets in `span` that are not in `offsets`, which are sorted."""
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
