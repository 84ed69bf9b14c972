"""Decompresses the records of a batch, up to a size limit, and compresses records.

Called off the event loop: by a cleaner for the records that it keeps, and by a leader for a topic
with another codec than the producer's. Kafka's clients read all of these codecs. Source: the
protocol's RecordBatch v2. Snappy data is either bare (librdkafka) or in the blocks of snappy-java
(Kafka's own client).
"""

from __future__ import annotations

import struct
from collections.abc import Callable

import cramjam

from plimsoll_wire.records import BadRecords

NONE, GZIP, SNAPPY, LZ4, ZSTD = range(5)
NAMES = ("none", "gzip", "snappy", "lz4", "zstd")
CODECS = {"uncompressed": NONE, "gzip": GZIP, "snappy": SNAPPY, "lz4": LZ4, "zstd": ZSTD}
"""Codecs by the values of the config `compression.type`; its value `producer` is left out."""

OPENED_BYTES_MAX = 32 * 1024 * 1024
"""Bound on the bytes of one decompressed batch of a client. A Produce that exceeds it is
refused."""
_GUESS_BYTES = 16 * 1024
_XERIAL = b"\x82SNAPPY\x00"
_XERIAL_HEADER_SIZE = 16
_BLOCK = struct.Struct(">i")
_XERIAL_HEADER = _XERIAL + struct.pack(">ii", 1, 1)
_XERIAL_BLOCK_BYTES = 32 * 1024
_LZ4_HEADER = bytes.fromhex("04224d18604082")
"""Header of an LZ4 frame with independent blocks of at most 64 KiB, the only kind that the Java
client reads."""
_LZ4_BLOCK_BYTES = 64 * 1024
_LZ4_BLOCK = struct.Struct("<I")
_LZ4_STORED = 0x80000000
_FULL = "failed to write whole buffer"
"""Message of the library cramjam for an output that exceeds the buffer."""


class TooLarge(BadRecords):
    """Raised if the decompressed records exceed the limit."""


def opened(codec: int, data: bytes | memoryview, limit: int) -> bytes:
    """Return the decompressed records, at most `limit` bytes. Raises TooLarge, or BadRecords for
    malformed data."""
    if codec == NONE:
        return bytes(data)
    try:
        if codec == SNAPPY:
            return _snappy(data, limit)
        return _frames(
            {GZIP: cramjam.gzip, LZ4: cramjam.lz4, ZSTD: cramjam.zstd}[codec], data, limit
        )
    except cramjam.DecompressionError as error:
        raise BadRecords(
            f"the records of the batch cannot be decompressed as {NAMES[codec]}: {error}"
        ) from None


def _frames(library: object, data: bytes | memoryview, limit: int) -> bytes:
    """Decompress into a buffer that is enlarged until the data fits, since a compressed frame need
    not state its size. Raises TooLarge above `limit` bytes."""
    into: Callable[[object, bytearray], int] = library.decompress_into  # type: ignore[attr-defined]
    size = min(max(_GUESS_BYTES, 6 * len(data)), limit)
    while True:
        room = bytearray(size)
        try:
            used = into(data, room)
        except cramjam.DecompressionError as error:
            if _FULL not in str(error):
                raise
            if size >= limit:
                raise TooLarge(
                    f"the records of the batch have more than {limit} bytes when decompressed, "
                    "which is not allowed"
                ) from None
            size = min(8 * size, limit)
        else:
            return bytes(memoryview(room)[:used])


def _snappy(data: bytes | memoryview, limit: int) -> bytes:
    if bytes(data[: len(_XERIAL)]) != _XERIAL:
        return _snappy_block(data, limit)
    out = bytearray()
    position = _XERIAL_HEADER_SIZE
    while position < len(data):
        if position + _BLOCK.size > len(data):
            raise BadRecords(
                "the records of the batch cannot be decompressed as snappy: the data ends inside "
                "the length field of a block"
            )
        (size,) = _BLOCK.unpack_from(data, position)
        position += _BLOCK.size
        if not 0 <= size <= len(data) - position:
            raise BadRecords(
                "the records of the batch cannot be decompressed as snappy: a block reaches "
                "beyond the end of the batch"
            )
        out += _snappy_block(data[position : position + size], limit - len(out))
        position += size
    return bytes(out)


def _snappy_block(data: bytes | memoryview, limit: int) -> bytes:
    size = cramjam.snappy.decompress_raw_len(data)
    if size > limit:
        raise TooLarge(
            f"the records of the batch have more than {limit} bytes when decompressed, which is "
            "not allowed"
        )
    room = bytearray(size)
    used = cramjam.snappy.decompress_raw_into(data, room)
    return bytes(memoryview(room)[:used])


def packed(codec: int, data: bytes) -> bytes:
    """Return the records compressed with the codec, in the form that `opened` and all clients
    decompress; unchanged for the codec NONE."""
    if codec == GZIP:
        return bytes(cramjam.gzip.compress(data))
    if codec == ZSTD:
        return bytes(cramjam.zstd.compress(data))
    if codec == SNAPPY:
        return _packed_snappy(data)
    return _packed_lz4(data) if codec == LZ4 else data


def _packed_snappy(data: bytes) -> bytes:
    out = bytearray(_XERIAL_HEADER)
    for at in range(0, len(data), _XERIAL_BLOCK_BYTES):
        block = bytes(cramjam.snappy.compress_raw(data[at : at + _XERIAL_BLOCK_BYTES]))
        out += _BLOCK.pack(len(block)) + block
    return bytes(out)


def _packed_lz4(data: bytes) -> bytes:
    out = bytearray(_LZ4_HEADER)
    for at in range(0, len(data), _LZ4_BLOCK_BYTES):
        plain = data[at : at + _LZ4_BLOCK_BYTES]
        block = bytes(cramjam.lz4.compress_block(plain, store_size=False))
        if len(block) < len(plain):
            out += _LZ4_BLOCK.pack(len(block)) + block
        else:
            out += _LZ4_BLOCK.pack(len(plain) | _LZ4_STORED) + plain
    return bytes(out + _LZ4_BLOCK.pack(0))
