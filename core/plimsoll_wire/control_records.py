"""Reads and writes the end markers of transactions: control batches with one record.

Called by a log for each control batch that it holds, and by the writer of markers. The record's key
has a version and a type (0 aborts, 1 commits), its value a version and the coordinator's epoch.
Control batches of another type, without a record (a cleaner removed it), or in a form that this
release does not know end no transaction. Source: KIP-98; Kafka's `ControlRecordTypeSchema` and
`EndTxnMarker`.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from plimsoll_wire.batches import (
    CONTROL,
    HEADER_SIZE,
    TRANSACTIONAL,
    BatchHeader,
    Buffer,
    parse_header,
    seal,
)
from plimsoll_wire.record_sets import KeyValue, iter_records, write_batch
from plimsoll_wire.records import BadRecords

_KEY = struct.Struct(">hh")
_VALUE = struct.Struct(">hi")
_ABORT, _COMMIT = 0, 1


class EndMarker(NamedTuple):
    """The end of a transaction. `coordinator_epoch`: that of the coordinator that decided."""

    commits: bool
    coordinator_epoch: int


def read_end_marker(header: BatchHeader, batch: Buffer) -> EndMarker | None:
    """Return the marker in a control batch, or None if it holds none. `batch`: the whole batch."""
    return marker_of(header, bytes(batch[HEADER_SIZE : header.length]))


def marker_of(header: BatchHeader, body: bytes) -> EndMarker | None:
    """Do what `read_end_marker` does. `body`: the batch without its header."""
    try:
        for _, key, value in iter_records(header, body):
            return _decoded(key or b"", value or b"")
    except BadRecords:
        pass
    return None


def _decoded(key: bytes, value: bytes) -> EndMarker | None:
    if len(key) < _KEY.size or len(value) < _VALUE.size:
        return None
    key_version, kind = _KEY.unpack_from(key)
    value_version, coordinator_epoch = _VALUE.unpack_from(value)
    if min(key_version, value_version) < 0 or kind not in (_ABORT, _COMMIT):
        return None
    return EndMarker(kind == _COMMIT, coordinator_epoch)


def write_end_marker(
    producer_id: int, producer_epoch: int, marker: EndMarker, timestamp_ms: int
) -> bytearray:
    """Build the control batch that ends the producer's transaction. Its base offset and leader
    epoch are 0 until they are stamped."""
    key = _KEY.pack(0, _COMMIT if marker.commits else _ABORT)
    value = _VALUE.pack(0, marker.coordinator_epoch)
    batch = write_batch([KeyValue(key, value)], timestamp_ms)
    header = parse_header(batch)._replace(
        attributes=TRANSACTIONAL | CONTROL,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
    )
    return bytearray(seal(header, batch[HEADER_SIZE:]))
