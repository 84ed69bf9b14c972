"""Encodes and decodes the records of `__consumer_offsets` in Kafka's own format.

Called by the broker's group shards. A key consists of a type (two bytes) and its fields, a value of
a version (two bytes) and its fields; a record without a value is a tombstone. So Kafka's tools can
decode what is written here, and records that Kafka wrote can be read. Source: `common/message` in
Kafka's group coordinator (`coordinator_schema` is generated from it).
"""

from __future__ import annotations

import struct
from functools import lru_cache
from typing import Any, NamedTuple, assert_never
from uuid import UUID

from plimsoll_core.groups.records import (
    GroupForgotten,
    GroupRecord,
    GroupStored,
    OffsetCommitted,
    OffsetForgotten,
    OffsetPending,
    StoredMember,
    TransactionMarked,
)
from plimsoll_core.ids import ProducerLife
from plimsoll_wire import coordinator_schema
from plimsoll_wire.batches import BatchHeader
from plimsoll_wire.control_records import marker_of
from plimsoll_wire.primitives import MalformedMessage
from plimsoll_wire.record_sets import KeyValue
from plimsoll_wire.versioned_fields import (
    NUMBER,
    UnknownKeyedRecord,
    number_of,
    read,
    read_to,
    written,
)

OFFSET_COMMIT = 1
GROUP_METADATA = 2

_OFFSET_KEY = coordinator_schema.OffsetCommitKeyV0
_GROUP_KEY = coordinator_schema.GroupMetadataKeyV0
_OFFSET_VALUES: tuple[type, ...] = (
    coordinator_schema.OffsetCommitValueV0,
    coordinator_schema.OffsetCommitValueV1,
    coordinator_schema.OffsetCommitValueV2,
    coordinator_schema.OffsetCommitValueV3,
    coordinator_schema.OffsetCommitValueV4,
)
_GROUP_VALUES: tuple[type, ...] = (
    coordinator_schema.GroupMetadataValueV0,
    coordinator_schema.GroupMetadataValueV1,
    coordinator_schema.GroupMetadataValueV2,
    coordinator_schema.GroupMetadataValueV3,
    coordinator_schema.GroupMetadataValueV4,
)
_OFFSET_WRITTEN = 4
_OFFSET_WITH_EXPIRY = 1
"""Version of an offset's value with an expiry time, for a commit that states its own retention.
This version lacks the leader epoch and the topic's id, so both are appended after its fields;
readers that do not know of them, such as Kafka, ignore bytes after the fields. The principal to
which a group is counted is appended, as a string, at the end of every value of both types, after
these two if they are present."""
_BEHIND_EXPIRY = struct.Struct(">i16s")
_GROUP_WRITTEN = 3


def encode_group_record(record: GroupRecord) -> KeyValue:
    """Return the record's key and value."""
    match record:
        case OffsetCommitted():
            return KeyValue(_offset_key(record), _offset_value(record))
        case OffsetPending(commit=commit):
            return KeyValue(_offset_key(commit), _offset_value(commit))
        case OffsetForgotten():
            return KeyValue(_offset_key(record), None)
        case GroupStored():
            return KeyValue(_group_key(record.group_id), _group_value(record))
        case GroupForgotten():
            return KeyValue(_group_key(record.group_id), None)
        case _:
            assert_never(record)


def decode_group_record(key: bytes | None, value: bytes | None) -> GroupRecord | UnknownKeyedRecord:
    """Return the decoded record, or UnknownKeyedRecord for an unknown type or version. Raises
    MalformedMessage if the bytes do not match their version."""
    if key is None:
        raise MalformedMessage("a record of an internal topic has no key")
    if value is not None and (plain := _plain_offset(key, value)) is not None:
        return plain
    record_type = number_of(key)
    if record_type == OFFSET_COMMIT:
        return _offset_record(read(_OFFSET_KEY, key), value)
    if record_type == GROUP_METADATA:
        return _group_record(read(_GROUP_KEY, key), value)
    return UnknownKeyedRecord(record_type, None)


def producer_of(record: GroupRecord) -> ProducerLife | None:
    """Return the producer with the transaction that the record belongs to: it must be written in a
    batch of that producer. Return None for any other record."""
    return record.producer if isinstance(record, OffsetPending) else None


def in_batch(header: BatchHeader, record: GroupRecord) -> GroupRecord:
    """Return a decoded record as its batch makes it: an offset is pending in a batch of a
    transaction."""
    if not header.is_transactional or not isinstance(record, OffsetCommitted):
        return record
    producer = ProducerLife(header.producer_id, header.producer_epoch)
    return OffsetPending(producer=producer, commit=record)


def decode_marker(header: BatchHeader, body: bytes) -> TransactionMarked | None:
    """Return the end marker in a control batch; None if it holds none. `body`: the batch without
    its header."""
    marker = marker_of(header, body)
    if marker is None:
        return None
    return TransactionMarked(producer_id=header.producer_id, commits=marker.commits)


# --- writing -------------------------------------------------------------------------------------


def _offset_key(record: OffsetCommitted | OffsetForgotten) -> bytes:
    values = {"group": record.group_id, "topic": record.topic, "partition": record.partition}
    return written(OFFSET_COMMIT, _OFFSET_KEY, values)


def _offset_value(record: OffsetCommitted) -> bytes:
    version = _OFFSET_WRITTEN if record.expire_ms is None else _OFFSET_WITH_EXPIRY
    values = {
        "offset": record.offset,
        "leader_epoch": record.leader_epoch,
        "metadata": record.metadata,
        "commit_timestamp": record.commit_ms,
        "expire_timestamp": -1 if record.expire_ms is None else record.expire_ms,
        "topic_id": record.topic_id,
    }
    value = written(version, _OFFSET_VALUES[version], values)
    if version == _OFFSET_WITH_EXPIRY:
        topic_id = bytes(16) if record.topic_id is None else record.topic_id.bytes
        value += _BEHIND_EXPIRY.pack(record.leader_epoch, topic_id)
    return value + _owner_written(record.owner)


@lru_cache(maxsize=4_096)
def _owner_written(owner: str) -> bytes:
    """Return the group's owner (a principal) in the form in which it is appended to a value's
    fields; b"" for a group without an owner."""
    if not owner:
        return b""
    data = owner.encode()
    return NUMBER.pack(len(data)) + data


def _group_key(group_id: str) -> bytes:
    return written(GROUP_METADATA, _GROUP_KEY, {"group": group_id})


def _group_value(record: GroupStored) -> bytes:
    members = [
        {
            "member_id": member.member_id,
            "group_instance_id": member.group_instance_id,
            "client_id": member.client_id,
            "client_host": member.client_host,
            "rebalance_timeout": member.rebalance_timeout_ms,
            "session_timeout": member.session_timeout_ms,
            "subscription": member.subscription,
            "assignment": member.assignment,
        }
        for member in record.members
    ]
    values = {
        "protocol_type": record.protocol_type,
        "generation": record.generation,
        "protocol": record.protocol,
        "leader": record.leader,
        "current_state_timestamp": record.state_ms,
        "members": members,
    }
    value = written(_GROUP_WRITTEN, _GROUP_VALUES[_GROUP_WRITTEN], values)
    return value + _owner_written(record.owner)


# --- reading what a load meets nearly always -----------------------------------------------------

_KEY_HEAD = struct.Struct(">hh")
_VALUE_HEAD = struct.Struct(">hqiB")
_VALUE_TAIL = struct.Struct(">qB")
_WITH_TOPIC_ID = struct.Struct(">q3s16s")
_WITHOUT_METADATA = struct.Struct(">hqiBq3s16s")
"""Layout of a value without metadata: its fields and the tagged field with the topic's id."""
_PARTITION = struct.Struct(">i")
_TOPIC_ID_TAG = b"\x01\0\x10"
"""Start of a tag buffer with one field: number 0, of 16 bytes (the topic's id)."""


@lru_cache(maxsize=4_096)
def _topic_id(raw: bytes) -> UUID | None:
    return UUID(bytes=raw) if any(raw) else None


@lru_cache(maxsize=4_096)
def _owner(raw: bytes) -> str:
    """Return the owner that was appended to a value's fields, or "" if there is none that this
    release can read."""
    if len(raw) < NUMBER.size or NUMBER.unpack_from(raw)[0] != len(raw) - NUMBER.size:
        return ""
    return str(raw[NUMBER.size :], "utf-8")


class _KeyHead(NamedTuple):
    """The fields of an offset record's key that precede the partition."""

    group_id: str
    topic: str


@lru_cache(maxsize=256)
def _key_head(head: bytes) -> _KeyHead | None:
    """Decode the key of an offset record without its last four bytes, the partition. Return None if
    it has another form. Cached: a commit names many partitions of a topic, and groups commit
    repeatedly."""
    record_type, group_size = _KEY_HEAD.unpack_from(head)
    group_end = _KEY_HEAD.size + group_size
    (topic_size,) = NUMBER.unpack_from(head, group_end)
    topic_at = group_end + NUMBER.size
    if record_type != OFFSET_COMMIT or group_size < 0 or topic_size < 0:
        return None
    if topic_at + topic_size != len(head):
        return None
    group_id = str(head[_KEY_HEAD.size : group_end], "utf-8")
    return _KeyHead(group_id, str(head[topic_at:], "utf-8"))


def _plain_offset(key: bytes, value: bytes) -> OffsetCommitted | None:
    """Decode an offset record in its usual form, several times faster than by its schema: a load
    may read hundreds of thousands. Return None for any other form."""
    try:
        place = _key_head(key[: -_PARTITION.size])
        if place is None:
            return None
        (partition,) = _PARTITION.unpack_from(key, len(key) - _PARTITION.size)
        if len(value) >= _WITHOUT_METADATA.size:
            fields = _WITHOUT_METADATA.unpack_from(value)
            version, offset, leader_epoch, length, commit_ms, tags, raw = fields
            if version == _OFFSET_WRITTEN and length == 1 and tags == _TOPIC_ID_TAG:
                return OffsetCommitted(
                    group_id=place.group_id,
                    topic=place.topic,
                    partition=partition,
                    offset=offset,
                    leader_epoch=leader_epoch,
                    commit_ms=commit_ms,
                    topic_id=_topic_id(raw),
                    owner=_owner(value[_WITHOUT_METADATA.size :]),
                )
        return _other_offset(place, partition, value)
    except (struct.error, UnicodeDecodeError):
        return None


def _other_offset(place: _KeyHead, partition: int, value: bytes) -> OffsetCommitted | None:
    """Decode the value of an offset record with metadata, or without a topic id. Return None for
    any other form, which the schema decodes."""
    version, offset, leader_epoch, length = _VALUE_HEAD.unpack_from(value)
    if version != _OFFSET_WRITTEN or not 1 <= length < 0x80:
        return None
    metadata_end = _VALUE_HEAD.size + length - 1
    commit_ms, tags = _VALUE_TAIL.unpack_from(value, metadata_end)
    if not tags:
        end, topic_id = metadata_end + _VALUE_TAIL.size, None
    else:
        commit_ms, head, raw = _WITH_TOPIC_ID.unpack_from(value, metadata_end)
        if head != _TOPIC_ID_TAG:
            return None
        end, topic_id = metadata_end + _WITH_TOPIC_ID.size, _topic_id(raw)
    return OffsetCommitted(
        group_id=place.group_id,
        topic=place.topic,
        partition=partition,
        offset=offset,
        leader_epoch=leader_epoch,
        metadata=str(value[_VALUE_HEAD.size : metadata_end], "utf-8"),
        commit_ms=commit_ms,
        topic_id=topic_id,
        owner=_owner(value[end:]),
    )


# --- reading -------------------------------------------------------------------------------------


def _offset_record(key: Any, value: bytes | None) -> GroupRecord | UnknownKeyedRecord:
    if value is None:
        return OffsetForgotten(group_id=key.group, topic=key.topic, partition=key.partition)
    version = number_of(value)
    if not 0 <= version < len(_OFFSET_VALUES):
        return UnknownKeyedRecord(OFFSET_COMMIT, version)
    found, end = read_to(_OFFSET_VALUES[version], value)
    expire_ms = getattr(found, "expire_timestamp", -1)
    leader_epoch, topic_id = getattr(found, "leader_epoch", -1), getattr(found, "topic_id", None)
    if version == _OFFSET_WITH_EXPIRY and len(value) - end >= _BEHIND_EXPIRY.size:
        leader_epoch, raw = _BEHIND_EXPIRY.unpack_from(value, end)
        topic_id = _topic_id(raw)
        end += _BEHIND_EXPIRY.size
    return OffsetCommitted(
        group_id=key.group,
        topic=key.topic,
        partition=key.partition,
        offset=found.offset,
        leader_epoch=leader_epoch,
        metadata=found.metadata,
        commit_ms=found.commit_timestamp,
        expire_ms=None if expire_ms < 0 else expire_ms,
        topic_id=topic_id,
        owner=_owner_behind(value, end),
    )


def _owner_behind(value: bytes, end: int) -> str:
    try:
        return _owner(value[end:])
    except UnicodeDecodeError:
        return ""


def _group_record(key: Any, value: bytes | None) -> GroupRecord | UnknownKeyedRecord:
    if value is None:
        return GroupForgotten(group_id=key.group)
    version = number_of(value)
    if not 0 <= version < len(_GROUP_VALUES):
        return UnknownKeyedRecord(GROUP_METADATA, version)
    found, end = read_to(_GROUP_VALUES[version], value)
    return GroupStored(
        group_id=key.group,
        protocol_type=found.protocol_type,
        generation=found.generation,
        protocol=found.protocol,
        leader=found.leader,
        state_ms=getattr(found, "current_state_timestamp", -1),
        members=tuple(_member(member) for member in found.members),
        owner=_owner_behind(value, end),
    )


def _member(found: Any) -> StoredMember:
    session_ms = found.session_timeout
    return StoredMember(
        member_id=found.member_id,
        group_instance_id=getattr(found, "group_instance_id", None),
        client_id=found.client_id,
        client_host=found.client_host,
        rebalance_timeout_ms=getattr(found, "rebalance_timeout", session_ms),
        session_timeout_ms=session_ms,
        subscription=found.subscription,
        assignment=found.assignment,
    )
