"""Encodes and decodes the records of `__transaction_state` in Kafka's own format.

Called by the broker's transaction shards. As in `__consumer_offsets` a key has a type and its
fields, a value a version and its fields; a record without a value is a tombstone. Behind a value's
fields, where readers that do not know of them do not look, stand the epoch before the present one
and the principal to which the id is charged. Source: `common/message` in Kafka's transaction
coordinator (`coordinator_schema` is generated from it).
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from itertools import groupby
from typing import Any

from plimsoll_core.ids import TopicPartition
from plimsoll_core.transactions.records import (
    Status,
    TransactionForgotten,
    TransactionRecord,
    TransactionStored,
)
from plimsoll_wire import coordinator_schema
from plimsoll_wire.primitives import MalformedMessage
from plimsoll_wire.record_sets import KeyValue
from plimsoll_wire.versioned_fields import UnknownKeyedRecord, number_of, read, read_to, written

_BEHIND = struct.Struct(">hh")
_TYPE = 0
_WRITTEN = 1
_KEY = coordinator_schema.TransactionLogKeyV0
_VALUES: tuple[type, ...] = (
    coordinator_schema.TransactionLogValueV0,
    coordinator_schema.TransactionLogValueV1,
)


def encode_transaction_record(record: TransactionRecord) -> KeyValue:
    """Return the record's key and value."""
    key = written(_TYPE, _KEY, {"transactional_id": record.transactional_id})
    if isinstance(record, TransactionForgotten):
        return KeyValue(key, None)
    owner = record.owner.encode()
    behind = _BEHIND.pack(record.last_producer_epoch, len(owner)) + owner
    return KeyValue(key, written(_WRITTEN, _VALUES[_WRITTEN], _values(record)) + behind)


def _values(record: TransactionStored) -> dict[str, Any]:
    # An id without a transaction has no list at all, as Kafka's.
    partitions = _by_topic(record.partitions) if record.status is not Status.EMPTY else None
    return {
        "producer_id": record.producer_id,
        "previous_producer_id": record.previous_producer_id,
        "next_producer_id": -1,
        "producer_epoch": record.producer_epoch,
        "next_producer_epoch": -1,
        "transaction_timeout_ms": record.timeout_ms,
        "transaction_status": int(record.status),
        "transaction_partitions": partitions,
        "transaction_last_update_timestamp_ms": record.update_ms,
        "transaction_start_timestamp_ms": record.start_ms,
        "client_transaction_version": 0,
    }


def _by_topic(partitions: Iterable[TopicPartition]) -> list[dict[str, Any]]:
    named = groupby(partitions, key=lambda one: one.topic)
    return [
        {"topic": name, "partition_ids": [one.partition for one in some]} for name, some in named
    ]


def decode_transaction_record(
    key: bytes | None, value: bytes | None
) -> TransactionRecord | UnknownKeyedRecord:
    """Return the decoded record, or UnknownKeyedRecord for an unknown type, version or state.
    Raises MalformedMessage if the bytes do not match their version."""
    if key is None:
        raise MalformedMessage("a record of an internal topic has no key")
    record_type = number_of(key)
    if record_type != _TYPE:
        return UnknownKeyedRecord(record_type, None)
    name = str(read(_KEY, key).transactional_id)
    if value is None:
        return TransactionForgotten(transactional_id=name)
    version = number_of(value)
    if not 0 <= version < len(_VALUES):
        return UnknownKeyedRecord(record_type, version)
    stored, end = read_to(_VALUES[version], value)
    if stored.transaction_status not in set(Status):
        return UnknownKeyedRecord(record_type, version)
    last_epoch, owner = _behind(value[end:])
    found = (
        TopicPartition(topic.topic, index)
        for topic in stored.transaction_partitions or ()
        for index in topic.partition_ids
    )
    return TransactionStored(
        transactional_id=name,
        producer_id=stored.producer_id,
        producer_epoch=stored.producer_epoch,
        last_producer_epoch=last_epoch,
        previous_producer_id=stored.previous_producer_id,
        timeout_ms=stored.transaction_timeout_ms,
        status=Status(stored.transaction_status),
        partitions=tuple(sorted(found)),
        update_ms=stored.transaction_last_update_timestamp_ms,
        start_ms=stored.transaction_start_timestamp_ms,
        owner=owner,
    )


def _behind(data: bytes) -> tuple[int, str]:
    """Return the last epoch and the owner that stand behind a value's fields; -1 and "" in a value
    of Kafka's."""
    if len(data) < _BEHIND.size:
        return -1, ""
    last_epoch, size = _BEHIND.unpack_from(data)
    return last_epoch, data[_BEHIND.size : _BEHIND.size + size].decode()
