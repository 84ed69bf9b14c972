"""A follower's side of Kafka's Fetch (v15) and ListOffsets (v5): encodes requests and decodes
replies.

Called by the broker's fetcher. The module does no I/O; records stay views into the reply's buffer.
Bytes that cannot be decoded are the peer's fault: they raise `MalformedReply`, and the connection
is closed. KIP-595, KIP-903.
"""

from __future__ import annotations

import struct
from collections.abc import Collection, Iterable, Sequence
from typing import NamedTuple

from plimsoll_wire.fetch import (
    CONTROLLER_EPOCH,
    CONTROLLER_EPOCH_TAG,
    EPOCH_TAG,
    ONE_ENDS,
    ONE_ENDS_WITH,
    ONE_REPLIED,
    SMALL_HEAD,
    SMALL_PARTITION,
    SMALL_TAIL,
    TAIL_BEGINS,
    TAIL_GOES_ON,
    TAKES_PUSHES_TAG,
)
from plimsoll_wire.primitives import MalformedMessage, PrimitiveReader, uvarint

FETCH_KEY, FETCH_VERSION = 1, 15
LIST_OFFSETS_KEY, LIST_OFFSETS_VERSION = 2, 5
LATEST, EARLIEST = -1, -2

_HEADER = struct.Struct(">ihhih")
_FETCH = struct.Struct(">iiibii")
_PARTITION = struct.Struct(">iiqiqiB")
_TAGS = struct.Struct(">BBBiqBHBq")
_REPLY = struct.Struct(">iBihi")
_PARTITION_REPLY = struct.Struct(">ihqqq")
_INT = struct.Struct(">i")
_END_OFFSET = struct.Struct(">iq")
_OFFSET_REPLY = struct.Struct(">ihqqi")

_NO_RACK = b"\x01"
_TAKES_PUSHES = uvarint(TAKES_PUSHES_TAG) + b"\0"


class FetchSessionKey(NamedTuple):
    """The fetch session that a request belongs to (KIP-227)."""

    session_id: int
    """Id of the session; 0 if the leader has not opened one yet."""
    epoch: int
    """Number of the request within the session; -1 if no session is wanted."""


SESSIONLESS = FetchSessionKey(0, -1)
NEW_SESSION = FetchSessionKey(0, 0)


class MalformedReply(Exception):
    """Raised if received bytes are not a valid reply to the request. The connection must be
    closed."""


class PartitionFetch(NamedTuple):
    """One partition in a follower's fetch request. `offset`: the follower's log end;
    `last_fetched_epoch`: the leader epoch of its last batch, None for none; `log_start`: its log
    start offset."""

    partition: int
    leader_epoch: int
    offset: int
    last_fetched_epoch: int | None
    log_start: int


class FetchSender(NamedTuple):
    """The follower that fetches: its broker id and broker epoch, and the newest controller epoch
    that it knows."""

    broker_id: int
    broker_epoch: int
    controller_epoch: int


class FetchLimits(NamedTuple):
    """Bounds of a fetch: milliseconds that the leader may wait, and bytes that it may return.
    `takes_pushes`: True if it may push records while the request waits (`tail_stream`)."""

    wait_ms_max: int
    bytes_max: int
    partition_bytes_max: int
    takes_pushes: bool = False


class PartitionReply(NamedTuple):
    """A leader's answer for one partition. `diverging`: (leader epoch, end offset), None if the
    logs agree."""

    topic_id: bytes
    partition: int
    code: int
    high_watermark: int
    log_start: int
    diverging: tuple[int, int] | None
    records: memoryview


class FetchReply(NamedTuple):
    """A leader's answer to a fetch. `controller_epoch`: the newest that the leader knows, None if
    it does not state one; `session_id`: 0 if it declines a fetch session."""

    code: int
    partitions: list[PartitionReply]
    controller_epoch: int | None
    session_id: int = 0


def _frame(key: int, version: int, correlation_id: int, client_id: bytes, body: bytes) -> bytes:
    length = _HEADER.size - 4 + len(client_id) + len(body)
    return _HEADER.pack(length, key, version, correlation_id, len(client_id)) + client_id + body


def encode_fetch(
    correlation_id: int,
    sender: FetchSender,
    limits: FetchLimits,
    topics: Iterable[tuple[bytes, Sequence[PartitionFetch]]],
    session: FetchSessionKey = SESSIONLESS,
    forgotten: Collection[tuple[bytes, Sequence[int]]] = (),
) -> bytes:
    """Return a whole request frame, with `topics` in the given order, by topic id. In an
    incremental `session` the request names only changed partitions, and the partitions `forgotten`,
    by topic id, that the leader must remove from it."""
    topics, takes_pushes = list(topics), limits.takes_pushes
    if len(topics) == 1 and len(topics[0][1]) == 1 and not forgotten and not takes_pushes:
        body = _of_one_fetch(sender, limits, topics[0][0], topics[0][1][0], session)
        return _frame(FETCH_KEY, FETCH_VERSION, correlation_id, b"plimsoll-replica", body)
    parts: list[bytes] = []
    count = 0
    for topic_id, partitions in topics:
        count += 1
        parts.append(topic_id)
        parts.append(uvarint(len(partitions) + 1))
        for index, leader_epoch, offset, last_epoch, log_start in partitions:
            last = -1 if last_epoch is None else last_epoch
            parts.append(
                _PARTITION.pack(
                    index, leader_epoch, offset, last, log_start, limits.partition_bytes_max, 0
                )
            )
        parts.append(b"\0")
    broker_id, broker_epoch, controller_epoch = sender
    body = b"".join(
        (
            b"\0",  # the request header's tags
            _FETCH.pack(limits.wait_ms_max, 1, limits.bytes_max, 0, *session),
            uvarint(count + 1),
            *parts,
            _encode_forgotten(forgotten),
            _NO_RACK,
            # Tagged fields: number 1 is the replica's state, EPOCH_TAG the controller epoch.
            _TAGS.pack(
                *(2 + takes_pushes, 1, 13, broker_id, broker_epoch, 0),
                *(EPOCH_TAG, 8, controller_epoch),
            ),
            _TAKES_PUSHES if takes_pushes else b"",
        )
    )
    return _frame(FETCH_KEY, FETCH_VERSION, correlation_id, b"plimsoll-replica", body)


def _of_one_fetch(
    sender: FetchSender,
    limits: FetchLimits,
    topic_id: bytes,
    asked: PartitionFetch,
    session: FetchSessionKey,
) -> bytes:
    """Encode the body of a request about one partition, the usual case, without the header's
    tags."""
    index, leader_epoch, offset, last_epoch, log_start = asked
    last = -1 if last_epoch is None else last_epoch
    bytes_max = limits.partition_bytes_max
    return b"".join(
        (
            b"\0",
            SMALL_HEAD.pack(limits.wait_ms_max, 1, limits.bytes_max, 0, *session),
            SMALL_PARTITION.pack(
                2, topic_id, 2, index, leader_epoch, offset, last, log_start, bytes_max, 0, 0
            ),
            SMALL_TAIL.pack(*TAIL_BEGINS, *sender[:2], *TAIL_GOES_ON, sender.controller_epoch),
        )
    )


def _encode_forgotten(forgotten: Iterable[tuple[bytes, Sequence[int]]]) -> bytes:
    topics = [
        b"".join((topic_id, uvarint(len(each) + 1), *map(_INT.pack, each), b"\0"))
        for topic_id, each in forgotten
    ]
    return uvarint(len(topics) + 1) + b"".join(topics)


def decode_fetch(frame: memoryview, correlation_id: int) -> FetchReply:
    try:
        return _decode_fetch(frame, correlation_id)
    except (struct.error, MalformedMessage) as error:
        raise MalformedReply(str(error)) from error


def _decode_fetch(frame: memoryview, correlation_id: int) -> FetchReply:
    got, _, _, code, session_id = _REPLY.unpack_from(frame)
    if got != correlation_id:
        raise MalformedReply(
            f"the leader's Fetch reply has correlation id {got} instead of {correlation_id}"
        )
    if (one := _of_one(frame, code, session_id)) is not None:
        return one
    reader = PrimitiveReader(frame, True, _REPLY.size)
    replies: list[PartitionReply] = []
    for _ in range(reader.uvarint() - 1):
        topic_id = bytes(reader.view(16))
        count = reader.uvarint() - 1
        replies.extend(_decode_partition(reader, topic_id) for _ in range(count))
        reader.tags()
    tags = reader.tags(CONTROLLER_EPOCH_TAG)
    controller_epoch = None
    if CONTROLLER_EPOCH_TAG in tags:
        (controller_epoch,) = CONTROLLER_EPOCH.unpack(tags[CONTROLLER_EPOCH_TAG])
    return FetchReply(code, replies, controller_epoch, session_id)


def _of_one(frame: memoryview, code: int, session_id: int) -> FetchReply | None:
    """Decode a reply about one partition without a divergence or new leaders, the usual case.
    Return None for any other reply."""
    begin, end = _REPLY.size + ONE_REPLIED.size, len(frame) - ONE_ENDS.size
    if begin >= end:
        return None
    topics, topic_id, count, index, said, high_watermark, _, log_start, aborted, _ = (
        ONE_REPLIED.unpack_from(frame, _REPLY.size)
    )
    *ends, controller_epoch = ONE_ENDS.unpack_from(frame, end)
    if (topics, count, aborted) != (2, 2, 0) or tuple(ends) != ONE_ENDS_WITH:
        return None
    reader = PrimitiveReader(frame, True, begin)
    size = max(reader.uvarint() - 1, 0)
    if reader.position + size != end:
        return None
    records = reader.view(size)
    one = PartitionReply(topic_id, index, said, high_watermark, log_start, None, records)
    return FetchReply(code, [one], controller_epoch, session_id)


def _decode_partition(reader: PrimitiveReader, topic_id: bytes) -> PartitionReply:
    index, code, high_watermark, _, log_start = reader.unpack(_PARTITION_REPLY)
    for _ in range(reader.uvarint() - 1):  # aborted transactions
        reader.view(16)
        reader.tags()
    reader.view(4)  # the preferred read replica
    records = reader.view(max(reader.uvarint() - 1, 0))
    tags = reader.tags(0)
    diverging = None
    if 0 in tags:
        epoch, end_offset = _END_OFFSET.unpack_from(tags[0])
        diverging = (epoch, end_offset) if epoch >= 0 else None
    return PartitionReply(topic_id, index, code, high_watermark, log_start, diverging, records)


def encode_list_offsets(
    correlation_id: int,
    broker_id: int,
    topic: str,
    index: int,
    leader_epoch: int,
    timestamp: int,
) -> bytes:
    """Return the whole frame of a ListOffsets request of the follower `broker_id` about one
    partition. `timestamp`: LATEST or EARLIEST, or ms since 1970."""
    name = topic.encode()
    body = b"".join(
        (
            struct.pack(">ibi", broker_id, 0, 1),
            struct.pack(">h", len(name)),
            name,
            struct.pack(">i", 1),
            struct.pack(">iiq", index, leader_epoch, timestamp),
        )
    )
    return _frame(LIST_OFFSETS_KEY, LIST_OFFSETS_VERSION, correlation_id, b"plimsoll-replica", body)


def decode_list_offsets(frame: memoryview, correlation_id: int) -> tuple[int, int]:
    """Return the error code and the offset in a reply about one partition. Raises
    MalformedReply."""
    try:
        got, _, topics = struct.unpack_from(">iii", frame)
        (name_length,) = struct.unpack_from(">h", frame, 12)
        at = 14 + name_length
        (partitions,) = _INT.unpack_from(frame, at)
        _, code, _, offset, _ = _OFFSET_REPLY.unpack_from(frame, at + 4)
    except struct.error as error:
        raise MalformedReply(str(error)) from error
    if (got, topics, partitions) != (correlation_id, 1, 1):
        raise MalformedReply(
            "the leader's ListOffsets reply is not about the one partition that was asked for"
        )
    return code, offset
