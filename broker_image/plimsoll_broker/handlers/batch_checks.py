"""The checks of a client's batch before it is appended, and its recompression.

The produce handler checks short batches on the event loop and others in a thread. The checks look
at bytes only; the handler applies the partition's configs. A batch that passes can be decompressed
and holds as many records as its header says. The contents of the records are not checked. Source:
Kafka's LogValidator, as far as the checks cost no more than a tenth of the throughput
(docs/guarantees.md lists what is not checked).

`recompressed` encodes a batch's records in another codec, for topics with a `compression.type` that
requires one. Offsets, timestamps, producer and sequence stay as they are. Source: Kafka's
LogValidator.

`InOrder`: checks and recompresses large or compressed batches in threads. Later requests of the
same connection wait until the earlier one is decided (`long_work`): a client sends the batches of a
partition over one connection, and they must not overtake each other.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from functools import partial
from typing import NamedTuple

from plimsoll_broker.handlers.long_work import Aside, ConnectionLines, in_turns
from plimsoll_broker.replication.hosted_partitions import Demand, Hosted
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
    fits_crc,
    is_sealed,
    parse_header,
    seal,
)
from plimsoll_wire.compression import NAMES, NONE, OPENED_BYTES_MAX, ZSTD, TooLarge, opened, packed
from plimsoll_wire.keyed_records import check_keys
from plimsoll_wire.produce import ProducePartition, ProduceRequest
from plimsoll_wire.records import BadRecords, check_records

RECORD_BYTES_MIN = 7
"""The least size of a record: length, attributes, time, offset, two lengths and a header count, a
byte each."""

_NO_TIME = -1
_VIEWED_BYTES = 512
"""The size in bytes above which records are large, on average over a batch. An uncompressed batch
with large records is checked without a copy."""

_ATTRIBUTES_AND_COUNT = struct.Struct(">h34xi")
_ATTRIBUTES_AT = 21
_MAGIC_AT = 16
_OLDER_FORMATS = (0, 1)


class BadSent(NamedTuple):
    """The reason to reject a client's batch. `records`: the indexes of the bad records, if single
    records are at fault."""

    code: Code
    message: str
    records: tuple[int, ...] = ()


def check_times(header: BatchHeader, limits: TimeLimits, now_ms: int) -> BadSent | None:
    """Return the error if the batch's first or greatest timestamp is further behind or ahead of
    `now_ms` (ms since 1970) than the topic's `limits` permit, or None. A batch without timestamps
    has no lower limit."""
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
        f"a record has the timestamp {wrong}, which is out of range: the topic allows "
        f"{max(earliest, 0)} to {min(latest, 2**63 - 1)} (message.timestamp.{config}.max.ms)"
    )
    return BadSent(Code.INVALID_TIMESTAMP, message, (0,) if wrong == first else ())


def effort(records: memoryview | None) -> tuple[int, int]:
    """Return the cost of checking a batch, as two numbers: the records that `check_batch` would
    visit, and the compressed bytes that it would decompress (0 for an uncompressed batch). Return
    (0, 0) if there is no batch or its header is incomplete."""
    if records is None or len(records) < HEADER_SIZE:
        return 0, 0
    attributes, count = _ATTRIBUTES_AND_COUNT.unpack_from(records, _ATTRIBUTES_AT)
    return max(count, 0), len(records) if attributes & CODEC_MASK else 0


def codec_of(records: memoryview | None) -> int | None:
    """Return the compression codec in the batch's header, or None if the header is incomplete."""
    if records is None or len(records) < HEADER_SIZE:
        return None
    return records[_ATTRIBUTES_AT + 1] & CODEC_MASK


def check_batch(
    records: memoryview | None, opened_bytes_max: int = OPENED_BYTES_MAX, *, keyed: bool = False
) -> BatchHeader | BadSent:
    """Check that `records` is exactly one valid batch. Return its header if all checks pass, or the
    error. `keyed`: also check that every record has a key, which costs ten times as much.

    Raises TooLarge if the records decompress to more than `opened_bytes_max` and that is below the
    largest allowed size (`OPENED_BYTES_MAX`).
    """
    if not records:
        return BadSent(
            Code.INVALID_RECORD, "the Produce request has no record batch for the partition"
        )
    try:
        header = parse_header(records)
    except BatchError as error:
        return BadSent(_code_of(error.reason, records), error.reason.value)
    return _check_parsed(header, records, opened_bytes_max, keyed=keyed)


def _check_parsed(
    header: BatchHeader, records: memoryview, opened_bytes_max: int, *, keyed: bool
) -> BatchHeader | BadSent:
    """Do the checks of `check_batch` that follow once the batch's header is parsed."""
    if not is_sealed(records, header):
        return BadSent(Code.CORRUPT_MESSAGE, BadBatch.CRC.value)
    return (
        _bad_header(header, len(records))
        or _bad_records(header, records, opened_bytes_max, keyed=keyed)
        or header
    )


def _code_of(reason: BadBatch, records: memoryview) -> Code:
    """Return Kafka's error code for a batch that cannot be parsed: CORRUPT_MESSAGE, which clients
    retry, only for bytes that may have been damaged in transit; INVALID_RECORD for a truncated
    batch, one of an older format, or one with impossible fields that its CRC matches."""
    match reason:
        case BadBatch.LENGTH:
            spoilt = True
        case BadBatch.MAGIC:
            spoilt = records[_MAGIC_AT] not in _OLDER_FORMATS or fits_crc(records)
        case BadBatch.OFFSETS:
            spoilt = not fits_crc(records)
        case _:
            spoilt = fits_crc(records)
    return Code.CORRUPT_MESSAGE if spoilt else Code.INVALID_RECORD


def may_be_read(records: memoryview | None) -> bool:
    """Return True if the header of a refused batch is as its producer made it, so that its producer
    id may be believed. Return False if it may be damaged: the CRC does not match, or a field before
    the CRC is wrong. A batch of more than BYTES_AT_ONCE counts as damaged, since its check would
    hold the event loop. Return True, too, if there is no batch."""
    if not records:
        return True
    header = _parsed(records) if len(records) <= BYTES_AT_ONCE else None
    return header is not None and header.base_offset == 0 and is_sealed(records, header)


def _bad_header(header: BatchHeader, size: int) -> BadSent | None:
    if header.length != size:
        return BadSent(
            Code.INVALID_RECORD,
            "the Produce request has more than one record batch for the partition",
        )
    if header.base_offset != 0:
        return BadSent(
            Code.INVALID_RECORD,
            "the record batch has a base offset other than 0, which a producer must not set",
        )
    if header.count <= 0 or header.count != header.last_offset_delta + 1:
        return BadSent(
            Code.INVALID_RECORD,
            "the record batch states a last offset delta that does not match its number of records",
        )
    if header.producer_id >= 0:
        if header.base_sequence < 0:
            return BadSent(
                Code.INVALID_RECORD, "the record batch has a producer id but no sequence number"
            )
        if header.producer_epoch < 0:
            return BadSent(
                Code.INVALID_PRODUCER_EPOCH,
                "the record batch has a producer id but no producer epoch",
            )
    plain = 0 <= header.attributes <= CODEC_MAX
    return None if plain else _bad_attributes(header)


def _bad_attributes(header: BatchHeader) -> BadSent | None:
    """Return the error of a batch with attributes that a producer may not set, or None if it has
    none."""
    if header.is_control:
        return BadSent(Code.INVALID_RECORD, "the record batch is a control batch of brokers")
    if header.is_transactional and header.producer_id < 0:
        return BadSent(
            Code.INVALID_RECORD, "the record batch belongs to a transaction without a producer id"
        )
    if header.attributes & LOG_APPEND_TIME:
        message = "the record batch is marked LogAppendTime, which a producer must not set"
        return BadSent(Code.INVALID_TIMESTAMP, message)
    if header.delete_horizon_ms is not None:
        return BadSent(
            Code.INVALID_RECORD,
            "the record batch has a delete horizon, which a producer must not set",
        )
    if header.codec > CODEC_MAX:
        return BadSent(Code.INVALID_RECORD, "the compression codec of the record batch is unknown")
    return None


def _bad_records(
    header: BatchHeader, records: memoryview, opened_bytes_max: int, *, keyed: bool
) -> BadSent | None:
    try:
        body = _body(header, records[HEADER_SIZE:], opened_bytes_max)
        if header.count > len(body) // RECORD_BYTES_MIN:
            room = len(body) // RECORD_BYTES_MIN
            raise BadRecords(
                f"the batch header says {header.count} records, but at most {room} "
                "fit into the batch",
                room,
            )
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
    """Return the records of a batch, decompressed to at most `opened_bytes_max` bytes; `records` is
    their encoded form. Small records are copied into bytes, which are faster to walk over than a
    view. Raise TooLarge or BadRecords."""
    if header.codec == NONE and len(records) > _VIEWED_BYTES * header.count:
        return records
    return opened(header.codec, records, opened_bytes_max)


class Recompressed(NamedTuple):
    """A batch after recompression, to be appended in place of the original."""

    records: memoryview
    header: BatchHeader


def recompressed(
    header: BatchHeader, records: memoryview, codec: int, size_max: int
) -> Recompressed | BadSent:
    """Return the batch with its records compressed by `codec`, or the error. The errors are: the
    records cannot be decompressed, or the new batch is larger than `size_max` bytes; as in Kafka,
    the original had to meet that limit, too."""
    try:
        plain = opened(header.codec, records[HEADER_SIZE:], OPENED_BYTES_MAX)
    except BadRecords as error:
        return BadSent(Code.INVALID_RECORD, error.sentence, error.indexes)
    body = packed(codec, plain)
    del plain
    size = HEADER_SIZE + len(body)
    if size > size_max:
        message = (
            f"the record batch has {size} bytes when compressed as {NAMES[codec]}, more than the "
            f"topic's max.message.bytes allows ({size_max})"
        )
        return BadSent(Code.MESSAGE_TOO_LARGE, message)
    attributes = header.attributes & ~CODEC_MASK | codec
    batch = bytearray(seal(header._replace(attributes=attributes), body))
    return Recompressed(memoryview(batch), parse_header(batch))


RECORDS_AT_ONCE = 10_000
"""The most records that are walked over on the event loop in one go: a millisecond or two."""
KEYED_AT_ONCE = 1_000
"""As RECORDS_AT_ONCE, for compacted topics, where the key of each record is checked."""
BYTES_AT_ONCE = 4 * 2**20
"""The most bytes that are checked and written on the event loop in one go."""
PARTITIONS_AT_ONCE = 100
RECORDS_IN_TURN = 100_000
"""The most records that are walked over in one turn of a thread, some 50 ms. A single batch with
more is not split."""
OPENING_AS_RECORDS = 10_000
"""The cost of decompressing a batch of any size, as a number of records walked over."""

OPENING_AT_ONCE = 128 * 2**10
OPENED_AT_ONCE = 2 * 2**20
"""The largest compressed batches that are handled on the event loop, in bytes, before
(`OPENING_AT_ONCE`) and after decompression. Usual batches are smaller, and a thread would cost more
than their check."""

Checked = BatchHeader | BadSent
_Where = tuple[int, int]
"""The positions of the topic and of the partition in the request."""
Answers = dict[_Where, Checked]


ZSTD_VERSION = 7
"""The first request version that may hold batches of this codec (KIP-110)."""
_NO_ZSTD = BadSent(Code.UNSUPPORTED_COMPRESSION_TYPE, "")

Wanted = Callable[[str, int, int], Demand | None]
"""Takes topic, partition and size of a batch. Returns what the topic demands of the batch, or None
if it may not be accepted here; then it is not checked."""
_Sent = tuple[_Where, memoryview | None, bool]
"""The position of a batch, its bytes, and True if its records need keys."""


Positioned = tuple[_Where, str, ProducePartition]
"""The position of a batch in its request, the topic's name, and the partition with the bytes."""


def every_batch(request: ProduceRequest) -> Iterator[Positioned]:
    """Yield each batch of a request, in order."""
    for number, topic in enumerate(request.topics):
        for at, sent in enumerate(topic.partitions):
            yield (number, at), topic.name, sent


def check_at_once(request: ProduceRequest, wanted: Wanted) -> Answers | None:
    """Check the batches of a short request on the event loop. Return the results of `check_batch`
    by position, without batches for which `wanted` returns None. Return None, with nothing decided,
    if checking, recompressing or writing the batches takes too long for the event loop; `InOrder`
    then does it."""
    topics = request.topics
    if len(topics) == 1 and len(topics[0].partitions) == 1:
        ((index, records),) = topics[0].partitions
        if records is not None and (header := _parsed(records)) is not None:
            return _check_single_batch(topics[0].name, index, records, header, wanted)
    room = _room(request)
    if room is None:
        return None
    found: Answers = {}
    keyed_records = 0
    try:
        for number, topic in enumerate(topics):
            for at, (index, records) in enumerate(topic.partitions):
                demand = wanted(topic.name, index, len(records or b""))
                if demand is None:
                    continue
                if demand.codec is not None and codec_of(records) != demand.codec:
                    return None
                keyed = demand.keyed
                if keyed and (keyed_records := keyed_records + effort(records)[0]) > KEYED_AT_ONCE:
                    return None
                found[number, at] = check_batch(records, room, keyed=keyed)
    except TooLarge:
        return None
    return found


def _parsed(records: memoryview) -> BatchHeader | None:
    """Return the header of a batch, or None if it is not valid."""
    try:
        return parse_header(records)
    except BatchError:
        return None


def _check_single_batch(
    topic: str, index: int, records: memoryview, header: BatchHeader, wanted: Wanted
) -> Answers | None:
    """Return the same as `check_at_once`, for a request with a single batch that has a valid
    header, which most producers send. This is faster, since the batch is visited once instead of
    twice."""
    size, walked, codec = len(records), header.count, header.attributes & CODEC_MASK
    if not _is_short(walked, size if codec else 0, size):
        return None
    demand = wanted(topic, index, size)
    if demand is None:
        return {}
    if demand.codec is not None and codec != demand.codec:
        return None
    keyed = demand.keyed
    if keyed and walked > KEYED_AT_ONCE:
        return None
    try:
        return {(0, 0): _check_parsed(header, records, OPENED_AT_ONCE, keyed=keyed)}
    except TooLarge:
        return None


def _room(request: ProduceRequest) -> int | None:
    """Return how many bytes each compressed batch of the request may decompress to on the event
    loop: an even part of OPENED_AT_ONCE. Return None if the request has too many partitions,
    records or bytes to be checked there."""
    partitions = records = opening = compressed = size = 0
    for topic in request.topics:
        partitions += len(topic.partitions)
        if partitions > PARTITIONS_AT_ONCE:
            return None
        for _, data in topic.partitions:
            walked, opened = effort(data)
            records += walked
            opening += opened
            compressed += opened > 0
            size += len(data or b"")
    return OPENED_AT_ONCE // max(compressed, 1) if _is_short(records, opening, size) else None


def _is_short(records: int, opening: int, size: int) -> bool:
    """Return True if all batches of a request together can be checked on the event loop."""
    return records <= RECORDS_AT_ONCE and opening <= OPENING_AT_ONCE and size <= BYTES_AT_ONCE


def by_version(found: Answers, version: int) -> Answers:
    """Return the results with an error in place of each zstd batch, if the request version does not
    allow zstd."""
    if version >= ZSTD_VERSION:
        return found
    return {
        place: _NO_ZSTD if isinstance(one, BatchHeader) and one.codec == ZSTD else one
        for place, one in found.items()
    }


class CheckedFor:
    """The demands that each topic made on its batches when their check began; a callable in place
    of `wanted` that remembers each answer. Before a batch is written, the topic's name may have
    passed to another topic, or the topic may have begun to require keys. Then the check no longer
    applies, and the client must send the batch again."""

    def __init__(self, wanted: Wanted, by_name: Callable[[str, int], Hosted | None]) -> None:
        self._wanted = wanted
        self._by_name = by_name
        # By topic and partition: the hosted partition, and True if keys were required.
        self._asked: dict[tuple[str, int], tuple[Hosted | None, bool]] = {}

    def __call__(self, topic: str, index: int, size: int) -> Demand | None:
        demand = self._wanted(topic, index, size)
        if demand is not None:
            self._asked[topic, index] = self._by_name(topic, index), demand.keyed
        return demand

    def still(self, topic: str, index: int) -> bool:
        """Return True if the check of this partition's batch still applies, or if no batch was
        checked or the partition is no longer hosted here. Return False if another topic has the
        name now, or the topic requires keys that were not checked."""
        asked, hosted = self._asked.get((topic, index)), self._by_name(topic, index)
        if asked is None or hosted is None:
            return True
        before, keyed = asked
        return hosted is before and (keyed or not hosted.demand.keyed)


class InOrder:
    """Checks and recompresses the batches of long produce requests in threads. `lines` keeps the
    requests of each connection in order."""

    def __init__(self, aside: Aside) -> None:
        self.lines = ConnectionLines()
        self._aside = aside

    async def check_in_threads(self, request: ProduceRequest, wanted: Wanted) -> Answers:
        """Return the results of `check_batch` by position, without batches for which `wanted`
        returns None, as `check_at_once` does for a short request. The checks run in threads, in
        portions, when it is the client's turn."""
        found: Answers = {}
        some: list[_Sent] = []
        size = walked = 0
        async for where, name, (index, records) in in_turns(every_batch(request)):
            bytes_ = len(records or b"")
            demand = wanted(name, index, bytes_)
            if demand is None:
                continue
            some.append((where, records, demand.keyed))
            size += bytes_
            records_in, opening = effort(records)
            walked += records_in + OPENING_AS_RECORDS * bool(opening)
            if size > BYTES_AT_ONCE or walked > RECORDS_IN_TURN or len(some) >= PARTITIONS_AT_ONCE:
                found |= await self._check_some(some)
                some, size, walked = [], 0, 0
        return found | await self._check_some(some) if some else found

    async def recompressed(
        self, header: BatchHeader, records: memoryview, codec: int, size_max: int
    ) -> Recompressed | BadSent:
        """Recompress one batch in a thread, just before it is appended. Batches are not
        recompressed in advance, since the decompressed size of a whole request is not bounded."""
        return await self._aside.do(partial(recompressed, header, records, codec, size_max))

    async def _check_some(self, some: list[_Sent]) -> Answers:
        return await self._aside.do(partial(_check_all, some))


def _check_all(some: list[_Sent]) -> Answers:
    return {where: check_batch(records, keyed=keyed) for where, records, keyed in some}
