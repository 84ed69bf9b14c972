"""Opens the records of batches: keys and contents as hashes, and their sizes.

Called where content is to be proven (`compacted_compare`) or shown (the data sources). Pure.
Kafka's Record v2; the codecs' framing is that of Kafka's Java client.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Iterator
from typing import NamedTuple

import pyarrow as pa

from plimsoll_spark.batches import CODEC_MASK, HEADER_BYTES, Batch

HASH_BYTES = 8
OPENED_BYTES_MAX = 256 * 2**20
"""A batch that opens to more is refused."""
_STREAMS = {1: "gzip", 3: "lz4", 4: "zstd"}
_SNAPPY = 2
_XERIAL = b"\x82SNAPPY\x00"
_XERIAL_HEADER_BYTES = 16


class Unopenable(Exception):
    """The records of a batch cannot be opened, although its CRC is right."""


class Record(NamedTuple):
    """One record. `key`, `content`: hashes as signed integers, of the key, and of key, value and
    headers; `key` is None without one. `value_bytes`: None for a tombstone."""

    offset: int
    timestamp_ms: int
    key: int | None
    content: int
    key_bytes: int
    value_bytes: int | None


def opened(data: memoryview, batch: Batch) -> Iterator[Record]:
    """Yield the records of a batch. `data`: its bytes, header included. Raises `Unopenable`."""
    body = _plain(data[HEADER_BYTES : batch.size], batch.attributes & CODEC_MASK)
    at = 0
    try:
        for _ in range(batch.records):
            size, at = _varint(body, at)
            yield _record(body, at, at + size, batch)
            at += size
    except (IndexError, struct.error) as error:
        raise Unopenable(
            f"the record batch at offset {batch.base_offset} ends before its last record"
        ) from error


def hashed(content: bytes | memoryview) -> int:
    """Return the hash of bytes, as a signed integer of 64 bits."""
    return int.from_bytes(hashlib.blake2b(content, digest_size=HASH_BYTES).digest(), "big") - 2**63


def _record(body: memoryview, at: int, end: int, batch: Batch) -> Record:
    if end > len(body):
        raise IndexError
    time_delta, at = _varint(body, at + 1)
    offset_delta, at = _varint(body, at)
    content = hashed(body[at:end])
    key_size, at = _varint(body, at)
    key = None if key_size < 0 else hashed(body[at : at + key_size])
    value_size, at = _varint(body, at + max(0, key_size))
    return Record(
        batch.base_offset + offset_delta,
        batch.base_timestamp + time_delta,
        key,
        content,
        max(0, key_size),
        None if value_size < 0 else value_size,
    )


def _varint(data: memoryview, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (value >> 1) ^ -(value & 1), at
        shift += 7


def _plain(data: memoryview, codec: int) -> memoryview:
    if not codec:
        return data
    try:
        if codec == _SNAPPY:
            return memoryview(b"".join(_snappy(bytes(data))))
        stream = pa.CompressedInputStream(pa.py_buffer(data), _STREAMS[codec])
        plain = stream.read(OPENED_BYTES_MAX + 1)
    except (OSError, KeyError, ValueError, struct.error) as error:
        raise Unopenable(f"the records of the batch cannot be decompressed: {error}") from error
    if len(plain) > OPENED_BYTES_MAX:
        raise Unopenable(
            f"the records of the batch have more than {OPENED_BYTES_MAX} bytes when decompressed"
        )
    return memoryview(plain)


def _snappy(data: bytes) -> Iterator[bytes]:
    """Yield the blocks of Snappy data, as Java's clients frame it or as one raw block."""
    if not data.startswith(_XERIAL):
        yield _block(data)
        return
    at = _XERIAL_HEADER_BYTES
    while at < len(data):
        (size,) = struct.unpack_from(">i", data, at)
        yield _block(data[at + 4 : at + 4 + size])
        at += 4 + size


def _block(data: bytes) -> bytes:
    size = shift = 0
    for byte in data[:5]:  # the block begins with its plain size
        size |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            break
    if size > OPENED_BYTES_MAX:
        raise ValueError(
            "a compressed block of the batch states a decompressed size of more than "
            f"{OPENED_BYTES_MAX} bytes"
        )
    plain: bytes = pa.Codec("snappy").decompress(data, size, asbytes=True)
    return plain
