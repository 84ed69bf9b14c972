"""Re-encodes a batch's records in another codec, for topics whose `compression.type` requires one.

Called by the produce handler, in a thread, with a batch that passed its checks. Everything else of
the batch stays: offsets, times, producer and sequence. Source: Kafka's LogValidator.
"""

from __future__ import annotations

from typing import NamedTuple

from plimsoll_broker.handlers.batch_checks import BadSent
from plimsoll_core.errors import Code
from plimsoll_wire.batches import CODEC_MASK, HEADER_SIZE, BatchHeader, parse_header, seal
from plimsoll_wire.compression import NAMES, OPENED_BYTES_MAX, opened, packed
from plimsoll_wire.records import BadRecords


class Recompressed(NamedTuple):
    """The batch to append."""

    records: memoryview
    header: BatchHeader


def recompressed(
    header: BatchHeader, records: memoryview, codec: int, size_max: int
) -> Recompressed | BadSent:
    """Return the new batch, or the error. `size_max`: its size limit in bytes; as in Kafka, the
    original had to meet it, too."""
    try:
        plain = opened(header.codec, records[HEADER_SIZE:], OPENED_BYTES_MAX)
    except BadRecords as error:
        return BadSent(Code.INVALID_RECORD, error.sentence, error.indexes)
    body = packed(codec, plain)
    del plain
    size = HEADER_SIZE + len(body)
    if size > size_max:
        message = f"{size} bytes as {NAMES[codec]}; max.message.bytes is {size_max}"
        return BadSent(Code.MESSAGE_TOO_LARGE, message)
    attributes = header.attributes & ~CODEC_MASK | codec
    batch = bytearray(seal(header._replace(attributes=attributes), body))
    return Recompressed(memoryview(batch), parse_header(batch))
