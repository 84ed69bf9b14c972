"""Encodes the records of the metadata log as canonical JSON, and batches and snapshots in their
stored form; decodes and verifies both. Pure.

Canonical: keys sorted, no white space, UTF-8, and whole numbers written as integers, so that
storage which re-serialises JSON cannot change the checksum: an API server turns 5.0 into 5 and
keeps 0.5. A snapshot is compressed with zlib; a reader verifies the SHA-256 of the stored bytes and
the size of the image before it accepts it. Called by the controller (`pack`, `decode_records`) and
by both logs (`store`, `decode_batch`).
"""

from __future__ import annotations

import contextlib
import hashlib
import re
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import msgspec

from plimsoll_core.cluster.record_versions import MetadataTooNew, read_records
from plimsoll_core.cluster.records import Record, SnapshotTaken
from plimsoll_operator.metalog.interface import (
    AppendRefused,
    Batch,
    LogCorrupt,
    Tip,
    UnknownRecord,
)

BATCH_BYTES_MAX = 900_000
"""Maximum size of one batch's records as JSON, in bytes. etcd accepts requests up to 1.5 MiB;
indentation is not stored."""

_encoder = msgspec.json.Encoder(order="sorted")
_FLOAT = re.compile(rb"[\[:,]\s*-?(?:\d+[.eE]|\d{19})")
"""Matches JSON that may contain a number that is not an integer or exceeds 64 bits. A match within
a string is harmless."""
_INTEGERS = range(-(2**63), 2**63)
"""Integers that an API server stores unchanged. It converts any other integer into a float."""


class StoredBatch(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """A batch in the JSON form that both logs store.

    The ring keeps `written_ms` in an annotation: the schema of an earlier release lacks the field
    and would reject it.
    """

    sequence: int
    base_offset: int
    controller_epoch: int
    nonce: str
    record_count: int
    checksum: str
    previous_nonce: str | None = None
    group: str | None = None
    last_of_group: bool = True
    written_ms: int = 0
    records: msgspec.Raw


_stored_decoder = msgspec.json.Decoder(StoredBatch)


def canonical(raw: bytes | msgspec.Raw) -> bytes:
    value = msgspec.json.decode(raw)
    return _encoder.encode(_with_integers(value) if _FLOAT.search(raw) else value)


def encode_records(records: Sequence[Record]) -> bytes:
    return _encode(list(records))


def _encode(value: Record | list[Record]) -> bytes:
    encoded = _encoder.encode(value)
    return canonical(encoded) if _FLOAT.search(encoded) else encoded


def _with_integers(value: Any) -> Any:
    """Return the decoded JSON with each number as an API server returns it after storing it: whole
    numbers as int, integers beyond 64 bits as float."""
    match value:
        case dict():
            return {key: _with_integers(one) for key, one in value.items()}
        case list():
            return [_with_integers(one) for one in value]
        case float() if value.is_integer() and int(value) in _INTEGERS:
            return int(value)
        case int() if value not in _INTEGERS:
            return float(value)
    return value


def decode_records(batch: Batch) -> tuple[Record, ...]:
    """Return the records of a batch. Raise `UnknownRecord` if a newer release wrote one of them."""
    try:
        return read_records(batch.records_json)
    except MetadataTooNew as error:
        raise UnknownRecord(
            f"batch {batch.sequence} of the metadata log cannot be read: {error}"
        ) from error


def snapshots_taken(batch: Batch) -> tuple[SnapshotTaken, ...]:
    """Return the `SnapshotTaken` records in a batch, usually none. Decodes only a batch that
    contains one, and then raises `UnknownRecord` as `decode_records` does."""
    if b'"SnapshotTaken"' not in batch.records_json:
        return ()
    return tuple(record for record in decode_records(batch) if isinstance(record, SnapshotTaken))


def record_too_large(records: Sequence[Record]) -> str | None:
    """Return a sentence about the first record that is too large for any batch, or None if all fit.
    Such records are refused before they are queued."""
    for record in records:
        size = len(_encoder.encode(record)) + 2
        if size > BATCH_BYTES_MAX:
            return (
                f"the change's {type(record).__name__} record has {size} bytes and does not fit "
                f"into a metadata batch ({BATCH_BYTES_MAX} bytes); make the changed object smaller"
            )
    return None


def pack(
    records: Sequence[Record],
    tip: Tip,
    controller_epoch: int,
    new_nonce: Callable[[], str],
    written_ms: int = 0,
) -> tuple[Batch, ...]:
    """Return the batches that append `records` (at least one) after `tip`: a single one, or a group
    of several if one cannot hold them. `new_nonce` is called for each batch and for a group;
    `written_ms`: the wall clock, in each batch. Raise `AppendRefused` if a record is too large for
    any batch."""
    assert records, "an empty batch would commit nothing"
    if (refusal := record_too_large(records)) is not None:
        raise AppendRefused(refusal)
    bodies = _bodies(records)
    group = new_nonce() if len(bodies) > 1 else None
    batches: list[Batch] = []
    for index, (body, count) in enumerate(bodies):
        batch = Batch(
            sequence=tip.next_sequence,
            base_offset=tip.next_offset,
            controller_epoch=controller_epoch,
            nonce=new_nonce(),
            previous_nonce=tip.nonce,
            group=group,
            last_of_group=index == len(bodies) - 1,
            records_json=body,
            record_count=count,
            checksum="",
            written_ms=written_ms,
        )
        batch = sealed(batch, body)
        batches.append(batch)
        tip = tip.after(batch)
    return tuple(batches)


def _bodies(records: Sequence[Record]) -> list[tuple[bytes, int]]:
    whole = encode_records(records)
    if len(whole) <= BATCH_BYTES_MAX:
        return [(whole, len(records))]
    bodies: list[tuple[bytes, int]] = []
    part: list[bytes] = []
    size = 2
    for record in records:
        encoded = _encode(record)
        if part and size + len(encoded) + 1 > BATCH_BYTES_MAX:
            bodies.append((b"[" + b",".join(part) + b"]", len(part)))
            part, size = [], 2
        part.append(encoded)
        size += len(encoded) + 1
    bodies.append((b"[" + b",".join(part) + b"]", len(part)))
    return bodies


def checksum(batch: Batch) -> str:
    """Return the checksum of a batch: the SHA-256, in hex, of its header fields as canonical JSON,
    a newline, and its records."""
    header = {
        "baseOffset": batch.base_offset,
        "controllerEpoch": batch.controller_epoch,
        "group": batch.group,
        "lastOfGroup": batch.last_of_group,
        "nonce": batch.nonce,
        "previousNonce": batch.previous_nonce,
        "recordCount": batch.record_count,
        "sequence": batch.sequence,
    }
    digest = hashlib.sha256(_encoder.encode(header))
    digest.update(b"\n")
    digest.update(batch.records_json)
    return digest.hexdigest()


def sealed(batch: Batch, records_json: bytes) -> Batch:
    """Return the batch with `records_json` as its records, and with the checksum that fits them."""
    unsealed = replace(batch, records_json=records_json)
    return replace(unsealed, checksum=checksum(unsealed))


def store(batch: Batch) -> StoredBatch:
    return StoredBatch(
        sequence=batch.sequence,
        base_offset=batch.base_offset,
        controller_epoch=batch.controller_epoch,
        nonce=batch.nonce,
        record_count=batch.record_count,
        checksum=batch.checksum,
        previous_nonce=batch.previous_nonce,
        group=batch.group,
        last_of_group=batch.last_of_group,
        records=msgspec.Raw(batch.records_json),
    )


def encode_batch(batch: Batch) -> bytes:
    return _encoder.encode(msgspec.structs.replace(store(batch), written_ms=batch.written_ms))


def decode_batch(raw: bytes | msgspec.Raw) -> Batch:
    """Return the batch stored as `raw`. Raise `LogCorrupt` if it cannot be decoded, or contradicts
    its checksum or its record count."""
    try:
        stored = _stored_decoder.decode(raw)
        count = len(msgspec.json.decode(stored.records, type=list[msgspec.Raw]))
        records_json = canonical(stored.records)
    except (msgspec.MsgspecError, OverflowError) as error:
        raise LogCorrupt(f"a batch of the metadata log cannot be decoded: {error}") from error
    batch = Batch(
        sequence=stored.sequence,
        base_offset=stored.base_offset,
        controller_epoch=stored.controller_epoch,
        nonce=stored.nonce,
        previous_nonce=stored.previous_nonce,
        group=stored.group,
        last_of_group=stored.last_of_group,
        records_json=records_json,
        record_count=stored.record_count,
        checksum=stored.checksum,
        written_ms=stored.written_ms,
    )
    if checksum(batch) != batch.checksum:
        batch = _as_earlier_builds_sealed(batch, stored.records)
    if count != batch.record_count or checksum(batch) != batch.checksum:
        raise LogCorrupt(
            f"batch {batch.sequence} of the metadata log is damaged: its content does not match "
            "its checksum"
        )
    return batch


def _as_earlier_builds_sealed(batch: Batch, stored: msgspec.Raw) -> Batch:
    """Return the batch with its records in the form in which an earlier build computed the
    checksum. Return `batch` unchanged if no such form fits the checksum.

    Earlier builds wrote a whole-number quota as 5.0 and included that in the checksum. A file keeps
    it; an API server turns it into 5.
    """
    with contextlib.suppress(msgspec.MsgspecError, MetadataTooNew, OverflowError):
        typed = read_records(batch.records_json)
        for records in (msgspec.json.decode(stored), typed):
            before = replace(batch, records_json=_encoder.encode(records))
            if checksum(before) == batch.checksum:
                return before
    return batch


WEIGHT_BYTES_MIN = 4 * 1024 * 1024
IMAGE_BYTES_MAX = 512 * 1024 * 1024


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def compress(image_bytes: bytes) -> bytes:
    return zlib.compress(image_bytes, 6)


def decompress(stored: bytes, image_size: int) -> bytes | None:
    """Return the image decompressed from a snapshot, or None if the bytes are not a complete image
    of exactly `image_size` bytes, or `image_size` exceeds `IMAGE_BYTES_MAX`."""
    if not 0 <= image_size <= IMAGE_BYTES_MAX:
        return None
    inflater = zlib.decompressobj()
    try:
        image = inflater.decompress(stored, image_size + 1)
    except zlib.error:
        return None
    return image if inflater.eof and len(image) == image_size else None


@dataclass(slots=True)
class Weight:
    """Size in bytes of the batches since the last released snapshot, and of that snapshot (0
    without one). `due` returns True if the batches exceed both `WEIGHT_BYTES_MIN` and twice the
    snapshot, so that another snapshot is worth its cost."""

    batch_bytes: int = 0
    snapshot_bytes: int = 0

    def due(self) -> bool:
        return self.batch_bytes > max(WEIGHT_BYTES_MIN, 2 * self.snapshot_bytes)
