"""The checks of a client's batch before it is appended.

Called by the produce handler, on the event loop for short batches and in a thread for others. They
look at bytes only; the handler applies the partition's configs. A batch that passes can be
decompressed and holds as many records as its header says; the records' contents are the client's.
Source: Kafka's LogValidator, as far as a tenth of the throughput pays for it (docs/guarantees.md
lists what is not checked).
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from plimsoll_broker.storage.log_config import TimeLimits
from plimsoll_core.errors import Code
from plimsoll_wire.batches import (
    CODEC_MASK,
    CODEC_MAX,
    HEADER_SIZE,
    LOG_APPEND_TIME,
    BadBatch,
    BatchError,
    BatchHeader,
    is_sealed,
    parse_header,
)
from plimsoll_wire.compression import NONE, OPENED_BYTES_MAX, TooLarge, opened
from plimsoll_wire.keyed_records import check_keys
from plimsoll_wire.records import BadRecords, check_records

RECORD_BYTES_MIN = 7
"""Length, attributes, time, offset, two lengths and a header count, a byte each."""

_NO_TIME = -1
_VIEWED_BYTES = 512
"""Average size of a record from which an uncompressed batch is checked without a copy."""

_ATTRIBUTES_AND_COUNT = struct.Struct(">h34xi")
_ATTRIBUTES_AT = 21
_MAGIC_AT = 16
_OLDER_FORMATS = (0, 1)


class BadSent(NamedTuple):
    """The reason to reject a client's batch. `records`: the indexes of the bad records."""

    code: Code
    message: str
    records: tuple[int, ...] = ()


def check_times(header: BatchHeader, limits: TimeLimits, now_ms: int) -> BadSent | None:
    """Return the error if the batch's first or greatest time is out of range, or None."""
    first, newest = header.base_timestamp, header.max_timestamp
    if newest - now_ms <= limits.after_ms and now_ms - min(first, newest) <= limits.before_ms:
        return None
    if newest - now_ms > limits.after_ms:
        wrong, config = newest, "after"
    elif _NO_TIME in (first, newest):
        return None
    else:
        wrong, config = min(first, newest), "before"
    earliest, latest = now_ms - limits.before_ms, now_ms + limits.after_ms
    message = (
        f"the time {wrong} of a record is out of range: it must be within {max(earliest, 0)} and "
        f"{min(latest, 2**63 - 1)} (message.timestamp.{config}.max.ms)"
    )
    return BadSent(Code.INVALID_TIMESTAMP, message, (0,) if wrong == first else ())


def effort(records: memoryview | None) -> tuple[int, int]:
    """Return the number of records that `check_batch` would walk over, and the bytes that it would
    decompress. An invalid header counts as no effort.
    """
    if records is None or len(records) < HEADER_SIZE:
        return 0, 0
    attributes, count = _ATTRIBUTES_AND_COUNT.unpack_from(records, _ATTRIBUTES_AT)
    return max(count, 0), len(records) if attributes & CODEC_MASK else 0


def codec_of(records: memoryview | None) -> int | None:
    """Return the codec in the batch's header, or None if it has no header."""
    if records is None or len(records) < HEADER_SIZE:
        return None
    return records[_ATTRIBUTES_AT + 1] & CODEC_MASK


def check_batch(
    records: memoryview | None, opened_bytes_max: int = OPENED_BYTES_MAX, *, keyed: bool = False
) -> BatchHeader | BadSent:
    """Return the header of the one batch if all checks pass, or the error. `keyed`: every record
    needs a key, a check that costs ten times as much.

    Raises TooLarge if the records decompress to more than `opened_bytes_max`.
    """
    if not records:
        return BadSent(Code.INVALID_RECORD, "there is no record batch")
    try:
        header = parse_header(records)
    except BatchError as error:
        return BadSent(_code_of(error.reason, records), error.reason.value)
    if not is_sealed(records, header):
        return BadSent(Code.CORRUPT_MESSAGE, BadBatch.CRC.value)
    return (
        _bad_header(header, len(records))
        or _bad_records(header, records, opened_bytes_max, keyed=keyed)
        or header
    )


def _code_of(reason: BadBatch, records: memoryview) -> Code:
    """Return Kafka's error code. Only bytes that look damaged in transit may be retried; a
    truncated batch, or one of an older format, may not."""
    spoilt = reason is BadBatch.LENGTH
    if reason is BadBatch.MAGIC:
        spoilt = records[_MAGIC_AT] not in _OLDER_FORMATS
    return Code.CORRUPT_MESSAGE if spoilt else Code.INVALID_RECORD


def _bad_header(header: BatchHeader, size: int) -> BadSent | None:
    if header.length != size:
        return BadSent(Code.INVALID_RECORD, "more than one record batch")
    if header.base_offset != 0:
        return BadSent(Code.INVALID_RECORD, "the base offset is not 0")
    if header.count <= 0 or header.count != header.last_offset_delta + 1:
        return BadSent(Code.INVALID_RECORD, "the offsets do not count the records")
    if header.producer_id >= 0:
        if header.base_sequence < 0:
            return BadSent(Code.INVALID_RECORD, "a producer id without a sequence")
        if header.producer_epoch < 0:
            return BadSent(Code.INVALID_PRODUCER_EPOCH, "a producer id without an epoch")
    plain = 0 <= header.attributes <= CODEC_MAX
    return None if plain else _bad_attributes(header)


def _bad_attributes(header: BatchHeader) -> BadSent | None:
    """Return the error of attributes other than a known codec, or None."""
    if header.is_control or header.is_transactional:
        return BadSent(Code.INVALID_RECORD, "transactions are not supported")
    if header.attributes & LOG_APPEND_TIME:
        message = "the batch says that a log gave it its time, which is not for a producer to say"
        return BadSent(Code.INVALID_TIMESTAMP, message)
    if header.delete_horizon_ms is not None:
        return BadSent(Code.INVALID_RECORD, "only a cleaner says from when on tombstones may go")
    if header.codec > CODEC_MAX:
        return BadSent(Code.INVALID_RECORD, "an unknown compression codec")
    return None


def _bad_records(
    header: BatchHeader, records: memoryview, opened_bytes_max: int, *, keyed: bool
) -> BadSent | None:
    try:
        body = _body(header, records[HEADER_SIZE:], opened_bytes_max)
        if header.count > len(body) // RECORD_BYTES_MIN:
            room = len(body) // RECORD_BYTES_MIN
            raise BadRecords(f"the batch says {header.count} records; {room} would fit", room)
        check_records(body, header.count)
        if keyed:
            check_keys(bytes(body), header.count)
    except TooLarge as error:
        if opened_bytes_max < OPENED_BYTES_MAX:
            raise
        return BadSent(Code.INVALID_RECORD, error.sentence)
    except BadRecords as error:
        return BadSent(Code.INVALID_RECORD, error.sentence, error.indexes)
    return None


def _body(header: BatchHeader, records: memoryview, opened_bytes_max: int) -> bytes | memoryview:
    """Return the records, decompressed. Bytes are faster to walk over than a view, which is worth a
    copy only for small records."""
    if header.codec == NONE and len(records) > _VIEWED_BYTES * header.count:
        return records
    return opened(header.codec, records, opened_bytes_max)
