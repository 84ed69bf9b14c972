"""Produce: requests in, replies out, packed by hand because this is the hot path.

Called by the produce handler.  A request's records are views into the frame, which its handler may
stamp in place; nothing is copied.  Which versions exist is `api_versions`' business.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from plimsoll_wire import primitives
from plimsoll_wire.api_versions import ApiKey, is_flexible
from plimsoll_wire.primitives import BytesReader, MalformedMessage

_ACKS_TIMEOUT = struct.Struct(">hi")
_PARTITION_V2 = struct.Struct(">ihqq")
_PARTITION_V5 = struct.Struct(">ihqqq")
_I32 = struct.Struct(">i")
_LEADER = struct.Struct(">iiB")
_NODE = struct.Struct(">i")

NAMED_MAX = 10_000
"""Topics and partitions of one Produce: reading their names must not hold up others."""
CURRENT_LEADER_TAG = 0
NODE_ENDPOINTS_TAG = 0


class ProducePartition(NamedTuple):
    """`records` is None when the client sent null."""

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
    """One partition's part of a reply.

    `leader`: (id, epoch) for those errors that tell a client where to go (v10).  `bad_record`:
    which record of the batch the refusal is about, by its index (v8).
    """

    partition: int
    code: int = 0
    base_offset: int = -1
    log_append_time_ms: int = -1
    log_start_offset: int = -1
    message: str | None = None
    leader: tuple[int, int] | None = None
    bad_record: int | None = None


class NodeEndpoint(NamedTuple):
    """Where a leader that the reply names can be reached."""

    node_id: int
    host: str
    port: int
    rack: str | None = None


def decode_request(body: memoryview, version: int) -> ProduceRequest:
    """Raises MalformedMessage, also for one that names more partitions than any broker has."""
    reader = BytesReader(body, is_flexible(ApiKey.PRODUCE, version))
    transactional_id = reader.nullable_string()
    acks, timeout_ms = reader.unpack(_ACKS_TIMEOUT)
    topics = []
    named = 0
    for _ in range(reader.count(2)):
        name = reader.string()
        partitions = []
        count = reader.count(5)
        named += 1 + count
        if named > NAMED_MAX:
            raise MalformedMessage(f"more than {NAMED_MAX} topics and partitions")
        for _ in range(count):
            partitions.append(ProducePartition(reader.i32(), reader.nullable_bytes()))
            reader.tags()
        reader.tags()
        topics.append(ProduceTopic(name, partitions))
    reader.tags()
    return ProduceRequest(transactional_id, acks, timeout_ms, topics)


def encode_response(
    version: int,
    topics: Iterable[tuple[str, Sequence[ProducedPartition]]],
    endpoints: Sequence[NodeEndpoint] = (),
    throttle_ms: int = 0,
) -> bytes:
    """The reply's body."""
    flexible = is_flexible(ApiKey.PRODUCE, version)
    parts: list[bytes] = []
    topic_count = 0
    for name, partitions in topics:
        topic_count += 1
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
    return primitives.count(topic_count, flexible) + b"".join(parts)


def _partition(partition: ProducedPartition, version: int, flexible: bool) -> bytes:
    index, code, base_offset, append_time, log_start, message, leader, bad_record = partition
    if version < 5:
        return _PARTITION_V2.pack(index, code, base_offset, append_time)
    fixed = _PARTITION_V5.pack(index, code, base_offset, append_time, log_start)
    if version < 8:
        return fixed
    text = primitives.nullable_message(message, flexible)
    errors = primitives.count(0, flexible)
    if bad_record is not None:
        tags_end = primitives.EMPTY_TAGS if flexible else b""
        errors = primitives.count(1, flexible) + _I32.pack(bad_record) + text + tags_end
    rest = errors + text
    if not flexible:
        return fixed + rest
    tags = {}
    if version >= 10 and leader is not None:
        tags[CURRENT_LEADER_TAG] = encode_leader(*leader)
    return fixed + rest + primitives.tagged(tags)


def encode_leader(leader_id: int, leader_epoch: int) -> bytes:
    """The CurrentLeader structure (KIP-951)."""
    return _LEADER.pack(leader_id, leader_epoch, 0)


def encode_endpoints(endpoints: Sequence[NodeEndpoint]) -> bytes:
    """The NodeEndpoints array (KIP-951)."""
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
