"""Decodes Produce requests and encodes their replies, by hand because this is the hot path.

Called by the produce handler. A request's records are views into the frame, which the handler may
stamp in place; nothing is copied. `api_versions` states the supported versions.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import NamedTuple

from plimsoll_wire import primitives
from plimsoll_wire.api_versions import SUPPORTED, ApiKey
from plimsoll_wire.primitives import MalformedMessage, PrimitiveReader

_FLEXIBLE = SUPPORTED[ApiKey.PRODUCE].flexible
_ACKS_TIMEOUT = struct.Struct(">hi")
_HEAD = struct.Struct(">hhiih")
_HEAD_FLEXIBLE = struct.Struct(">BhiBB")
"""Layout of a request's start in flexible versions: transactional id, acks, timeout, number of
topics, length of the first topic's name."""
_BATCH = struct.Struct(">iii")
"""Layout of a topic's part: number of partitions, partition index, number of bytes of records."""
_INDEX_FLEXIBLE = struct.Struct(">Bi")
"""Layout of the start of a topic's part in flexible versions: number of partitions (encoded as 2:
one), partition index."""
_PARTITION_V2 = struct.Struct(">ihqq")
_PARTITION_V5 = struct.Struct(">ihqqq")
_ONE_TOPIC = struct.Struct(">ih")
"""Layout of a reply's start: number of topics, length of the first topic's name."""
_ONE_V5 = struct.Struct(">iihqqqi")
_ONE_V8 = struct.Struct(">iihqqqihi")
_ONE_FLEXIBLE = struct.Struct(">BihqqqBBBBiB")
"""Layout of a reply about one partition in flexible versions: number of partitions, the partition,
the ends of partition and topic, the throttle time, the end."""
_I32 = struct.Struct(">i")
_LEADER = struct.Struct(">iiB")
_NODE = struct.Struct(">i")

_NO_TAGS = bytes(3)
_NOTHING_MORE = bytes(4) + b"\xff\xff"
_NOTHING_MORE_FLEXIBLE = b"\1\0\0"
"""Encoding of a partition's reply without bad records, message and tagged fields, in flexible
versions."""

NAMED_MAX = 10_000
"""Bound on the topics and partitions named in one Produce, so that decoding it does not delay other
requests."""
PARTITION_BYTES_MIN = 5
PARSED_BYTES = 800
"""The memory, in bytes, for which a partition of a parsed Produce is counted, with its result."""
CURRENT_LEADER_TAG = 0
NODE_ENDPOINTS_TAG = 0


class ProducePartition(NamedTuple):
    """One partition in a produce request. `records`: None if the client sent null."""

    partition: int
    records: memoryview | None


class ProduceTopic(NamedTuple):
    name: str
    partitions: list[ProducePartition]


class ProduceRequest(NamedTuple):
    transactional_id: str | None
    acks: int
    timeout_ms: int
    topics: list[ProduceTopic]


class ProducedPartition(NamedTuple):
    """One partition in the reply. `leader`: (broker id, leader epoch), for errors that send the
    client to another broker (from v10). `bad_records`: indexes in the batch of the records because
    of which it was refused (from v8)."""

    partition: int
    code: int = 0
    base_offset: int = -1
    log_append_time_ms: int = -1
    log_start_offset: int = -1
    message: str | None = None
    leader: tuple[int, int] | None = None
    bad_records: tuple[int, ...] = ()


class NodeEndpoint(NamedTuple):
    """The address of a broker that the reply names as leader."""

    node_id: int
    host: str
    port: int
    rack: str | None = None


def decode_request(body: memoryview, version: int) -> ProduceRequest:
    """Decode a produce request. Raises MalformedMessage, also if it names more than `NAMED_MAX`
    topics and partitions."""
    flexible = version >= _FLEXIBLE
    return (_one_batch_flexible if flexible else _one_batch)(body) or _decode(body, flexible)


def _one_batch(body: memoryview) -> ProduceRequest | None:
    """Decode a request with one partition and no transaction in a version that is not flexible, as
    most producers send it. Return None for a request of any other form."""
    try:
        no_id, acks, timeout_ms, topics, size = _HEAD.unpack_from(body)
        at = _HEAD.size + size
        partitions, index, length = _BATCH.unpack_from(body, at)
        if (no_id, topics, partitions) != (-1, 1, 1) or size < 0 or length < 0:
            return None
        begin = at + _BATCH.size
        if begin + length != len(body):
            return None
        name = str(body[_HEAD.size : at], "utf-8")
    except (struct.error, UnicodeDecodeError):
        return None
    return _of_one(acks, timeout_ms, name, ProducePartition(index, body[begin:]))


def _one_batch_flexible(body: memoryview) -> ProduceRequest | None:
    """Decode a request with one partition and no transaction in a flexible version. Return None for
    a request of any other form."""
    if len(body) < _HEAD_FLEXIBLE.size:
        return None
    no_id, acks, timeout_ms, topics, size = _HEAD_FLEXIBLE.unpack_from(body)
    # A byte that is above is the first of several.
    if no_id != 0 or topics != 2 or not 0 < size < 0x80:
        return None
    at = _HEAD_FLEXIBLE.size + size - 1
    try:
        partitions, index = _INDEX_FLEXIBLE.unpack_from(body, at)
        if partitions != 2:
            return None
        reader = PrimitiveReader(body, True, at + _INDEX_FLEXIBLE.size)
        length = reader.uvarint() - 1
        begin = reader.position
        # No tagged fields: of the partition, the topic, the request.
        if length < 0 or body[begin + length :] != _NO_TAGS:
            return None
        records = body[begin : begin + length]
        name = str(body[_HEAD_FLEXIBLE.size : at], "utf-8")
    except (struct.error, MalformedMessage, UnicodeDecodeError):
        return None
    return _of_one(acks, timeout_ms, name, ProducePartition(index, records))


def _of_one(acks: int, timeout_ms: int, name: str, sent: ProducePartition) -> ProduceRequest:
    return ProduceRequest(None, acks, timeout_ms, [ProduceTopic(name, [sent])])


def _decode(body: memoryview, flexible: bool) -> ProduceRequest:
    """Decode any request."""
    reader = PrimitiveReader(body, flexible)
    transactional_id = reader.nullable_string()
    acks, timeout_ms = reader.unpack(_ACKS_TIMEOUT)
    topics = []
    named = 0
    for _ in range(reader.count(2)):
        name = reader.string()
        partitions = []
        count = reader.count(PARTITION_BYTES_MIN)
        named += 1 + count
        if named > NAMED_MAX:
            raise MalformedMessage(
                f"the Produce request names more than {NAMED_MAX} topics and partitions, the "
                "most that one request may"
            )
        for _ in range(count):
            partitions.append(ProducePartition(reader.i32(), reader.nullable_bytes()))
            reader.tags()
        reader.tags()
        topics.append(ProduceTopic(name, partitions))
    reader.tags()
    return ProduceRequest(transactional_id, acks, timeout_ms, topics)


def encode_response(
    version: int,
    topics: Sequence[tuple[str, Sequence[ProducedPartition]]],
    endpoints: Sequence[NodeEndpoint] = (),
    throttle_ms: int = 0,
) -> bytes:
    """Encode the reply's body, for topics by name. `endpoints`: the addresses of the leaders that
    the partitions' results name, sent from version 10 on."""
    flexible = version >= _FLEXIBLE
    if version >= 5 and (one := _of_one_partition(version, topics, throttle_ms)) is not None:
        return one
    parts: list[bytes] = []
    for name, partitions in topics:
        parts.append(primitives.string(name, flexible))
        parts.append(primitives.count(len(partitions), flexible))
        parts += [_partition(partition, version, flexible) for partition in partitions]
        if flexible:
            parts.append(primitives.EMPTY_TAGS)
    parts.append(_I32.pack(throttle_ms))
    if flexible:
        tags = {}
        if version >= 10 and endpoints:
            tags[NODE_ENDPOINTS_TAG] = encode_endpoints(endpoints)
        parts.append(primitives.tagged(tags))
    return primitives.count(len(topics), flexible) + b"".join(parts)


def _of_one_partition(
    version: int, topics: Sequence[tuple[str, Sequence[ProducedPartition]]], throttle_ms: int
) -> bytes | None:
    """Encode the usual reply, from version 5 on: about one partition, and only of numbers. Return
    None for any other reply."""
    if len(topics) != 1 or len(topics[0][1]) != 1:
        return None
    text, ((index, code, base_offset, time_ms, log_start, message, leader, bad),) = topics[0]
    if message is not None or leader is not None or bad:
        return None
    name = text.encode()
    if version >= _FLEXIBLE:
        if len(name) >= 0x7F:  # a length of two bytes
            return None
        fields = (index, code, base_offset, time_ms, log_start, 1, 0, 0, 0, throttle_ms, 0)
        return bytes((2, len(name) + 1)) + name + _ONE_FLEXIBLE.pack(2, *fields)
    begun = _ONE_TOPIC.pack(1, len(name)) + name
    if version < 8:
        return begun + _ONE_V5.pack(1, index, code, base_offset, time_ms, log_start, throttle_ms)
    return begun + _ONE_V8.pack(1, index, code, base_offset, time_ms, log_start, 0, -1, throttle_ms)


def _partition(partition: ProducedPartition, version: int, flexible: bool) -> bytes:
    index, code, base_offset, append_time, log_start, message, leader, bad_records = partition
    if version < 5:
        return _PARTITION_V2.pack(index, code, base_offset, append_time)
    fixed = _PARTITION_V5.pack(index, code, base_offset, append_time, log_start)
    if version < 8:
        return fixed
    if leader is None and message is None and not bad_records:
        return fixed + (_NOTHING_MORE_FLEXIBLE if flexible else _NOTHING_MORE)
    text = primitives.nullable_message(message, flexible)
    tags_end = primitives.EMPTY_TAGS if flexible else b""
    # The text once, for the first of them: a reply is not larger than what it answers.
    none = primitives.nullable_message(None, flexible)
    errors = b"".join(
        _I32.pack(record) + (none if place else text) + tags_end
        for place, record in enumerate(bad_records)
    )
    rest = primitives.count(len(bad_records), flexible) + errors + text
    if not flexible:
        return fixed + rest
    tags = {}
    if version >= 10 and leader is not None:
        tags[CURRENT_LEADER_TAG] = encode_leader(*leader)
    return fixed + rest + primitives.tagged(tags)


def encode_leader(leader_id: int, leader_epoch: int) -> bytes:
    """Encode the CurrentLeader structure (KIP-951)."""
    return _LEADER.pack(leader_id, leader_epoch, 0)


def encode_endpoints(endpoints: Sequence[NodeEndpoint]) -> bytes:
    """Encode the NodeEndpoints array (KIP-951)."""
    parts = [primitives.count(len(endpoints), True)]
    for node in endpoints:
        parts += [
            _NODE.pack(node.node_id),
            primitives.string(node.host, True),
            _NODE.pack(node.port),
            primitives.nullable_string(node.rack, True),
            primitives.EMPTY_TAGS,
        ]
    return b"".join(parts)
