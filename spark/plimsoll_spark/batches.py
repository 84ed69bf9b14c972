"""Record batches (magic 2) as rows: headers, CRCs, and whether each is in its place.

Called by `replica_reader` with what a broker sent. One row a batch: a check of a log works on some
thousandth of its records. Pure. Source: Kafka's RecordBatch v2.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from enum import Enum
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
from crc32c import crc32c

from plimsoll_spark.arrays import Ints

HEADER_BYTES = 61
LENGTH_END = 12
"""The length field counts the bytes after itself; it ends here."""
CRC_FROM = 21
MAGIC = 2
CODEC_MASK, LOG_APPEND_TIME, TRANSACTIONAL, CONTROL = 0x07, 0x08, 0x10, 0x20
NEXT_MAX = 2**31
"""A batch spans fewer offsets than this."""

_HEADER = struct.Struct(">qiibIhiqqqhii")
_MARKER_KEY = struct.Struct(">hh")
_ABORT = 0

DTYPE = np.dtype(
    [
        ("base_offset", np.int64),
        ("last_offset", np.int64),
        ("size", np.int32),
        ("leader_epoch", np.int32),
        ("crc", np.uint32),
        ("attributes", np.int16),
        ("base_timestamp", np.int64),
        ("max_timestamp", np.int64),
        ("producer_id", np.int64),
        ("producer_epoch", np.int16),
        ("base_sequence", np.int32),
        ("records", np.int32),
    ]
)
"""The columns of a row. `size`: in bytes, header included. Batches with equal rows are the same,
since the CRC covers the records."""

Rows: TypeAlias = npt.NDArray[np.void]


class Batch(NamedTuple):
    """A row, by the names of `DTYPE`."""

    base_offset: int
    last_offset: int
    size: int
    leader_epoch: int
    crc: int
    attributes: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    records: int


class AbortedTransaction(NamedTuple):
    """A transaction that was aborted: the producer's id, and the offset of its first record."""

    producer_id: int
    first_offset: int


class Problem(Enum):
    """Why the bytes at an offset are not a valid batch of that place."""

    MALFORMED = "its header is malformed"
    CRC = "its CRC is wrong"
    MISPLACED = "its offsets are not those of its place"


class Scanned(NamedTuple):
    """Result of `scan`. `batches`: the valid ones from the start of the data on, in their order;
    `problem`: why the bytes behind them are no valid batch, None if the data ends there or inside a
    batch."""

    batches: list[Batch]
    problem: Problem | None
    size: int
    """Number of bytes of the valid batches together."""


def scan(data: memoryview, expected: int, below: int) -> Scanned:
    """Return the batches from the start of `data` up to the first that is not valid; one that
    `data` holds only in part is left out. `expected`: the offset that was asked for: the first
    batch may contain it, or begin at it or later. `below`: an offset above all that batches may
    have."""
    found: list[Batch] = []
    at, size, floor = 0, len(data), expected
    while size - at >= HEADER_BYTES:
        fields = _HEADER.unpack_from(data, at)
        base, length, epoch, magic, crc, attributes, delta = fields[:7]
        end = at + length + LENGTH_END
        if length < HEADER_BYTES - LENGTH_END or magic != MAGIC or base < 0 or delta < 0:
            return Scanned(found, Problem.MALFORMED, at)
        if end > size:
            break
        if crc32c(data[at + CRC_FROM : end]) != crc:
            return Scanned(found, Problem.CRC, at)
        if base + delta >= below or (base < floor and (found or base + delta < expected)):
            return Scanned(found, Problem.MISPLACED, at)
        floor = base + delta + 1
        found.append(Batch(base, base + delta, end - at, epoch, crc, attributes, *fields[7:]))
        at = end
    return Scanned(found, None, at)


def rows(batches: Sequence[Batch]) -> Rows:
    """Return the batches as an array with the columns of `DTYPE`."""
    return np.array(batches, DTYPE)


def is_control(attributes: Any) -> Any:
    """Return True for a batch of control records (markers of transactions). `attributes`: of one
    batch, or an array of them, for which the result is an array too."""
    return (attributes & CONTROL) != 0


def is_transactional(attributes: Any) -> Any:
    """Return True for a batch that belongs to a transaction, also for its marker. `attributes`: as
    for `is_control`."""
    return (attributes & TRANSACTIONAL) != 0


def record_counts(batches: Rows) -> Ints:
    """Return the number of records in each batch; the marker in a control batch is none."""
    counts = batches["records"].astype(np.int64)
    return np.where(is_control(batches["attributes"]), 0, counts)


def is_abort(data: memoryview, batch: Batch) -> bool:
    """Return True if a control batch is the marker of a transaction that was aborted. `data`: the
    batch's bytes. A marker is never compressed; its key holds a version and a type."""
    at = _behind_varint(data, HEADER_BYTES) + 1  # the record's size, its attributes
    for _ in range(3):  # its deltas, the size of its key
        at = _behind_varint(data, at)
    return at + _MARKER_KEY.size <= batch.size and _MARKER_KEY.unpack_from(data, at)[1] == _ABORT


def _behind_varint(data: memoryview, at: int) -> int:
    while at < len(data) and data[at] >= 0x80:
        at += 1
    return at + 1


def aborted_among(
    batches: Sequence[Batch], aborted: Sequence[AbortedTransaction]
) -> frozenset[int]:
    """Return the base offsets of those batches with records that belong to aborted transactions.
    `batches`: consecutive ones of one fetch; `aborted`: the transactions that its answer names."""
    waiting = sorted(aborted, key=lambda one: one.first_offset, reverse=True)
    open_now: set[int] = set()
    found: list[int] = []
    for batch in batches:
        while waiting and waiting[-1].first_offset <= batch.last_offset:
            open_now.add(waiting.pop().producer_id)
        if is_control(batch.attributes):
            open_now.discard(batch.producer_id)
        elif is_transactional(batch.attributes) and batch.producer_id in open_now:
            found.append(batch.base_offset)
    return frozenset(found)
