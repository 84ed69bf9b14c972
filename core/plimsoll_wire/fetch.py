"""The leader's side of Fetch: decodes requests and encodes replies, by hand because this is the hot
path.

Called by the fetch handler. A reply is a list of buffers so that records are never copied; the
follower's side is in `replication`. The handler decides what a fetch session means. Between brokers
a request and its reply also carry the newest controller epoch that the sender has heard of, in a
tagged field of our own: a receiver that does not know the field skips it (KIP-482). So does a
leader that does not know the tail stream (`tail_stream`).
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import NamedTuple
from uuid import UUID

from plimsoll_wire import primitives
from plimsoll_wire.api_versions import SUPPORTED, ApiKey, is_flexible
from plimsoll_wire.batches import Batches
from plimsoll_wire.primitives import MalformedMessage, PrimitiveReader
from plimsoll_wire.produce import NodeEndpoint, encode_endpoints, encode_leader

Buffer = bytes | bytearray | memoryview

TOPIC_ID_VERSION = 13
READ_COMMITTED = 1
"""The isolation level of a reader that gets no records of open transactions, and leaves out those
of aborted ones."""
REPLICA_STATE_VERSION = 15
DEBUGGING_CONSUMER = -2
"""The replica id of a consumer that reads the replica of the broker that it asks, leader or not.
Source: Kafka's `FetchRequest.DEBUGGING_CONSUMER_ID`."""

_LIMITS = struct.Struct(">iiib")
_SESSION = struct.Struct(">ii")
_STATE = struct.Struct(">iq")
_PARTITION = {
    4: struct.Struct(">iqi"),
    5: struct.Struct(">iqqi"),
    9: struct.Struct(">iiqqi"),
    12: struct.Struct(">iiqiqi"),
}
_LAYOUTS = {
    version: _PARTITION[max(first for first in _PARTITION if first <= version)]
    for version in range(min(_PARTITION), SUPPORTED[ApiKey.FETCH].last + 1)
}
"""The layout of a request's partition in each version."""
_HEAD_V1 = struct.Struct(">i")
_HEAD_V7 = struct.Struct(">ihi")
_REPLY_V4 = struct.Struct(">ihqq")
_REPLY_V5 = struct.Struct(">ihqqq")
_I32 = struct.Struct(">i")
_END_OFFSET = struct.Struct(">iqB")
_ABORTED = struct.Struct(">qq")

_DIVERGING_TAG = 0
_LEADER_TAG = 1
_ENDPOINTS_TAG = 0
_REPLICA_STATE_TAG = 1
CONTROLLER_EPOCH_TAG = 10_001
TAKES_PUSHES_TAG = 10_002
CONTROLLER_EPOCH = struct.Struct(">q")
_NO_READ_REPLICA = struct.pack(">i", -1)

SMALL_HEAD = struct.Struct(">iiibii")
"""Layout of the start of a follower's request: limits, isolation level, fetch session."""
SMALL_PARTITION = struct.Struct(">B16sBiiqiqiBB")
"""Layout of a request's part about a single partition: number of topics (encoded as 2: one), the
topic's id, number of partitions (2: one), the partition's request, no tags."""
SMALL_TAIL = struct.Struct(">BBBBBiqBHBq")
"""Layout of the end of a follower's request that forgets no partitions and states no rack, with two
tagged fields: the replica's state and the controller's epoch."""
EPOCH_TAG = (CONTROLLER_EPOCH_TAG & 0x7F | 0x80) << 8 | CONTROLLER_EPOCH_TAG >> 7
"""Number of the tagged field with the controller's epoch, encoded in two bytes."""
ONE_REPLIED = struct.Struct(">B16sBihqqqBi")
"""Layout of the start of a reply about a single partition: number of topics (encoded as 2: one),
the topic's id, number of partitions (2: one), the partition's result, no aborted transactions, no
preferred read replica."""
ONE_ENDS = struct.Struct(">BBBHBq")
"""Layout of the end of a reply about a single partition: no tags of the partition and of the topic,
and one of the reply, the controller's epoch."""
ONE_ENDS_WITH = (0, 0, 1, EPOCH_TAG, CONTROLLER_EPOCH.size)
TAIL_BEGINS = (1, 1, 2, _REPLICA_STATE_TAG, _STATE.size + 1)
TAIL_GOES_ON = (0, EPOCH_TAG, CONTROLLER_EPOCH.size)
_SMALL_SIZES = (
    SMALL_HEAD.size + 1 + SMALL_TAIL.size,
    SMALL_HEAD.size + SMALL_PARTITION.size + SMALL_TAIL.size,
)
_NAMED_VERSION = 12
"""The only flexible version that names topics."""
_ONE_NAMED = struct.Struct(">iiiibiiBB")
"""Layout of the start of a client's request about one partition in `_NAMED_VERSION`: replica id,
limits, isolation level, fetch session, number of topics (encoded as 2: one), the name's length."""
_ONE_BY_ID = struct.Struct(">iiibiiB16s")
"""The same from `REPLICA_STATE_VERSION` on, with the topic's id."""
_ONE_ASKED = struct.Struct(">BiiqiqiBBBBB")
"""Layout of the rest of such a request: number of partitions (2: one), the partition's request, no
tags of the partition and of the topic, nothing forgotten (1), an empty rack (1), no tags."""
_ONE_ASKED_ENDS = (0, 0, 1, 1, 0)


class TooManyNamed(MalformedMessage):
    """Raised if a request names more topics and partitions than allowed. The rest of the request is
    not decoded."""


class FetchPartition(NamedTuple):
    """One partition in a fetch request. `offset`: the first to return. `last_fetched_epoch`: the
    leader epoch of the reader's last batch. A field is None if the client's version does not have
    it, or the client does not state it."""

    partition: int
    leader_epoch: int | None
    offset: int
    last_fetched_epoch: int | None
    log_start_offset: int | None
    max_bytes: int


class FetchTopic(NamedTuple):
    """One topic in a fetch request: by name up to v12, by id from v13 on."""

    name: str | None
    topic_id: UUID | None
    partitions: list[FetchPartition]


class FetchRequest(NamedTuple):
    """A decoded fetch request. `replica_id`: None for consumers; `replica_epoch`: the follower's
    broker epoch; `controller_epoch`: the newest that the follower knows; `forgotten`: partitions to
    remove from the fetch session, by topic id; `own_copy`: True if a consumer reads the asked
    broker's own replica; `takes_pushes`: True if the follower takes pushes while the fetch
    waits."""

    replica_id: int | None
    replica_epoch: int | None
    max_wait_ms: int
    min_bytes: int
    max_bytes: int
    isolation_level: int
    session_id: int
    session_epoch: int
    topics: list[FetchTopic]
    controller_epoch: int | None = None
    forgotten: Sequence[tuple[UUID | None, tuple[int, ...]]] = ()
    own_copy: bool = False
    takes_pushes: bool = False


class FetchedPartition(NamedTuple):
    """One partition in the reply. `diverging`: (leader epoch, end offset) from which on the
    reader's log differs from this one; `leader`: (broker id, leader epoch) of the present leader;
    each None if the reply states none. `stable_offset`: the last stable offset, None if it is the
    high watermark. `aborted`: producer id and first offset of each aborted transaction that has
    records among `records`; None for a reader of uncommitted transactions too."""

    partition: int
    code: int = 0
    high_watermark: int = -1
    log_start_offset: int = -1
    records: Buffer | Batches = b""
    diverging: tuple[int, int] | None = None
    leader: tuple[int, int] | None = None
    stable_offset: int | None = None
    aborted: Sequence[tuple[int, int]] | None = None


def decode_request(body: memoryview, version: int, named_max: int | None = None) -> FetchRequest:
    """Decode a fetch request. Raises MalformedMessage, or TooManyNamed if it names more than
    `named_max` topics and partitions."""
    if version == REPLICA_STATE_VERSION and len(body) in _SMALL_SIZES:
        small = _followers(body)
        if small is not None and (named_max is None or named_max > 1):
            return small
    if named_max is None and (one := _of_one_partition(body, version)) is not None:
        return one
    reader = PrimitiveReader(body, is_flexible(ApiKey.FETCH, version))
    replica_id = reader.i32() if version < REPLICA_STATE_VERSION else -1
    max_wait_ms, min_bytes, max_bytes, isolation_level = reader.unpack(_LIMITS)
    session_id, session_epoch = reader.unpack(_SESSION) if version >= 7 else (0, -1)
    layout = _LAYOUTS[version]
    by_id = version >= TOPIC_ID_VERSION
    topics = []
    reader.left = named_max
    topic_count = reader.count(2)
    _spend(reader, topic_count)
    for _ in range(topic_count):
        name, topic_id = (None, reader.uuid()) if by_id else (reader.string(), None)
        partitions = []
        partition_count = reader.count(layout.size)
        _spend(reader, partition_count)
        for _ in range(partition_count):
            partitions.append(_partition_asked(reader.unpack(layout), version))
            reader.tags()
        reader.tags()
        topics.append(FetchTopic(name, topic_id, partitions))
    forgotten = _forgotten(reader, version)
    if version >= 11:
        reader.string()  # the rack means nothing without reads from followers
    tags = reader.tags(_REPLICA_STATE_TAG, CONTROLLER_EPOCH_TAG, TAKES_PUSHES_TAG)
    replica_epoch = -1
    if _REPLICA_STATE_TAG in tags and version >= REPLICA_STATE_VERSION:
        replica_id, replica_epoch = PrimitiveReader(tags[_REPLICA_STATE_TAG], True).unpack(_STATE)
    controller_epoch = None
    if CONTROLLER_EPOCH_TAG in tags:
        (controller_epoch,) = PrimitiveReader(tags[CONTROLLER_EPOCH_TAG], True).unpack(
            CONTROLLER_EPOCH
        )
    return FetchRequest(
        _known(replica_id),
        _known(replica_epoch),
        max_wait_ms,
        min_bytes,
        max_bytes,
        isolation_level,
        session_id,
        session_epoch,
        topics,
        controller_epoch,
        forgotten,
        replica_id == DEBUGGING_CONSUMER,
        TAKES_PUSHES_TAG in tags,
    )


def without_repeats(request: FetchRequest) -> FetchRequest:
    """Return the request with each partition named once. Of repeated ones the last counts, at the
    place of the first, as in Kafka."""
    named = {
        (topic.name, topic.topic_id, one.partition)
        for topic in request.topics
        for one in topic.partitions
    }
    if len(named) == sum(len(topic.partitions) for topic in request.topics):
        return request
    topics: dict[tuple[str | None, UUID | None], dict[int, FetchPartition]] = {}
    for topic in request.topics:
        partitions = topics.setdefault((topic.name, topic.topic_id), {})
        partitions.update((one.partition, one) for one in topic.partitions)
    return request._replace(
        topics=[FetchTopic(*key, list(partitions.values())) for key, partitions in topics.items()]
    )


def _of_one_partition(body: memoryview, version: int) -> FetchRequest | None:
    """Decode a client's request about one partition without a rack and tagged fields, in most
    flexible versions. Return None for a request of any other form."""
    at = len(body) - _ONE_ASKED.size
    topic_id: UUID | None = None
    name: str | None = None
    if version == _NAMED_VERSION and at >= _ONE_NAMED.size:
        replica_id, *fixed, topics, size = _ONE_NAMED.unpack_from(body)
        if size > 0x7F or _ONE_NAMED.size + size - 1 != at:
            return None
        try:
            name = str(body[_ONE_NAMED.size : at], "utf-8")
        except UnicodeDecodeError:
            return None
    elif version >= REPLICA_STATE_VERSION and at == _ONE_BY_ID.size:
        replica_id = -1
        *fixed, topics, raw_id = _ONE_BY_ID.unpack_from(body)
        topic_id = _id_of(raw_id) if any(raw_id) else None
    else:
        return None
    asked = _ONE_ASKED.unpack_from(body, at)
    if topics != 2 or asked[0] != 2 or asked[7:] != _ONE_ASKED_ENDS:
        return None
    partition = _partition_asked(asked[1:7], version)
    topic = FetchTopic(name, topic_id, [partition])
    wait_ms, min_bytes, max_bytes, isolation, session_id, epoch = fixed
    return FetchRequest(
        _known(replica_id),
        None,
        wait_ms,
        min_bytes,
        max_bytes,
        isolation,
        session_id,
        epoch,
        [topic],
        None,
        [],
        replica_id == DEBUGGING_CONSUMER,
    )


def _followers(body: memoryview) -> FetchRequest | None:
    """Decode a request in the form that this project's followers send if at most one partition has
    changed, as in most requests. Return None for any other form."""
    wait_ms, min_bytes, max_bytes, isolation, session_id, epoch = SMALL_HEAD.unpack_from(body)
    at = len(body) - SMALL_TAIL.size
    tail = SMALL_TAIL.unpack_from(body, at)
    if tail[:5] != TAIL_BEGINS or tail[7:10] != TAIL_GOES_ON:
        return None
    topics = []
    if at == SMALL_HEAD.size + 1:
        if body[SMALL_HEAD.size] != 1:
            return None
    else:
        count, topic_id, partitions, *asked, none, no_more = SMALL_PARTITION.unpack_from(
            body, SMALL_HEAD.size
        )
        if (count, partitions, none, no_more) != (2, 2, 0, 0):
            return None
        partition = _partition_asked(tuple(asked), REPLICA_STATE_VERSION)
        named = _id_of(topic_id) if any(topic_id) else None
        topics.append(FetchTopic(None, named, [partition]))
    return FetchRequest(
        _known(tail[5]),
        _known(tail[6]),
        wait_ms,
        min_bytes,
        max_bytes,
        isolation,
        session_id,
        epoch,
        topics,
        tail[10],
        [],
    )


@lru_cache(maxsize=1_000)
def _id_of(topic_id: bytes) -> UUID:
    """Return the UUID of a topic's bytes. Cached: building one costs a microsecond, and each
    follower's fetch names topics."""
    return UUID(bytes=topic_id)


def _spend(reader: PrimitiveReader, count: int) -> None:
    if reader.left is not None and count > reader.left:
        raise TooManyNamed(
            "the Fetch request names more topics and partitions than one request may"
        )
    reader.spend(count)


def _forgotten(reader: PrimitiveReader, version: int) -> list[tuple[UUID | None, tuple[int, ...]]]:
    """Read the forgotten topics of a fetch session. Only brokers have sessions here, and they state
    topic ids."""
    forgotten: list[tuple[UUID | None, tuple[int, ...]]] = []
    if version >= 7:
        count = reader.count(2)
        _spend(reader, count)
        for _ in range(count):
            topic_id = None
            if version >= TOPIC_ID_VERSION:
                topic_id = reader.uuid()
            else:
                reader.string()
            indexes = reader.view(4 * reader.count(4))
            _spend(reader, len(indexes) // 4)
            reader.tags()
            forgotten.append((topic_id, struct.unpack(f">{len(indexes) // 4}i", indexes)))
    return forgotten


def _partition_asked(fields: tuple[int, ...], version: int) -> FetchPartition:
    if version >= 12:
        index, leader_epoch, offset, last_epoch, log_start, max_bytes = fields
    elif version >= 9:
        index, leader_epoch, offset, log_start, max_bytes = fields
        last_epoch = -1
    elif version >= 5:
        index, offset, log_start, max_bytes = fields
        leader_epoch = last_epoch = -1
    else:
        index, offset, max_bytes = fields
        leader_epoch = last_epoch = log_start = -1
    return FetchPartition(
        index, _known(leader_epoch), offset, _known(last_epoch), _known(log_start), max_bytes
    )


def _known(value: int) -> int | None:
    return None if value < 0 else value


Topic = tuple[str, UUID | None, Sequence[FetchedPartition]]
"""A topic in a reply: name, id and partitions. The version decides if the name or the id is
sent."""


def encode_response(
    version: int,
    topics: Iterable[Topic],
    code: int = 0,
    endpoints: Sequence[NodeEndpoint] = (),
    controller_epoch: int | None = None,
    session_id: int = 0,
) -> list[Buffer]:
    """Return the reply's body as a list of buffers. `session_id`: 0 declines a fetch session, as
    for all clients; `controller_epoch`: the newest that this broker knows, only in replies to
    followers."""
    flexible = is_flexible(ApiKey.FETCH, version)
    topics = list(topics)
    if (small := _to_follower(version, topics, code, session_id, controller_epoch)) is not None:
        return small
    head = _HEAD_V7.pack(0, code, session_id) if version >= 7 else _HEAD_V1.pack(0)
    pieces: list[Buffer] = []
    fixed = [head, primitives.count(len(topics), flexible)]
    for name, topic_id, partitions in topics:
        if version >= TOPIC_ID_VERSION:
            fixed.append(bytes(16) if topic_id is None else topic_id.bytes)
        else:
            fixed.append(primitives.string(name, flexible))
        fixed.append(primitives.count(len(partitions), flexible))
        for partition in partitions:
            fixed.append(_partition_head(partition, version, flexible))
            if len(partition.records):
                pieces += [b"".join(fixed), *_pieces(partition.records)]
                fixed.clear()
            if flexible:
                fixed.append(_partition_tags(partition))
        if flexible:
            fixed.append(primitives.EMPTY_TAGS)
    if flexible:
        fixed.append(_reply_tags(endpoints if version >= 16 else (), controller_epoch))
    if fixed:
        pieces.append(b"".join(fixed))
    return pieces


def _to_follower(
    version: int, topics: Sequence[Topic], code: int, session_id: int, controller_epoch: int | None
) -> list[Buffer] | None:
    """Encode a reply with the records of one partition, the usual reply to a follower. Return None
    if the reply has another form."""
    if version != REPLICA_STATE_VERSION or controller_epoch is None:
        return None
    if len(topics) != 1 or len(topics[0][2]) != 1:
        return None
    _, topic_id, (partition,) = topics[0]
    index, said, high_watermark, log_start, records, diverging, leader, _, _ = partition
    if topic_id is None or not len(records) or diverging is not None or leader is not None:
        return None
    head = _HEAD_V7.pack(0, code, session_id) + ONE_REPLIED.pack(
        2, topic_id.bytes, 2, index, said, high_watermark, high_watermark, log_start, 0, -1
    )
    head += primitives.uvarint(len(records) + 1)
    return [head, *_pieces(records), ONE_ENDS.pack(*ONE_ENDS_WITH, controller_epoch)]


def _pieces(records: Buffer | Batches) -> Sequence[Buffer]:
    return records.pieces if isinstance(records, Batches) else (records,)


def _reply_tags(endpoints: Sequence[NodeEndpoint], controller_epoch: int | None) -> bytes:
    tags = {}
    if endpoints:
        tags[_ENDPOINTS_TAG] = encode_endpoints(endpoints)
    if controller_epoch is not None:
        tags[CONTROLLER_EPOCH_TAG] = CONTROLLER_EPOCH.pack(controller_epoch)
    return primitives.tagged(tags)


def _partition_head(partition: FetchedPartition, version: int, flexible: bool) -> bytes:
    """Encode a partition's answer up to the length of the records."""
    index, code, high_watermark, log_start, records, _, _, stable, aborted = partition
    if stable is None:
        stable = high_watermark
    if version >= 5:
        fixed = _REPLY_V5.pack(index, code, high_watermark, stable, log_start)
    else:
        fixed = _REPLY_V4.pack(index, code, high_watermark, stable)
    if aborted is not None:
        fixed += primitives.count(len(aborted), flexible) + _transactions(aborted, flexible)
    else:
        fixed += b"\0" if flexible else b"\xff\xff\xff\xff"
    replica = _NO_READ_REPLICA if version >= 11 else b""
    if flexible:
        return fixed + replica + primitives.uvarint(len(records) + 1)
    return fixed + replica + _I32.pack(len(records))


def _transactions(aborted: Sequence[tuple[int, int]], flexible: bool) -> bytes:
    tags = primitives.EMPTY_TAGS if flexible else b""
    return b"".join(_ABORTED.pack(*each) + tags for each in aborted)


def _partition_tags(partition: FetchedPartition) -> bytes:
    if partition.diverging is None and partition.leader is None:
        return primitives.EMPTY_TAGS
    tags = {}
    if partition.diverging is not None:
        tags[_DIVERGING_TAG] = _END_OFFSET.pack(*partition.diverging, 0)
    if partition.leader is not None:
        tags[_LEADER_TAG] = encode_leader(*partition.leader)
    return primitives.tagged(tags)
