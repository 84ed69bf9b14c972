"""Reads the log of a range of offsets, record by record, and tells the run's own records.

Called in Spark's tasks (`checks`). A plain consumer that checks CRCs; a batch that it cannot read
ends the range. Waits for brokers that are away, until the time for verifying is over; a log that
ends below the range is given `SETTLE_S` to show its records, as after a failover.
"""

from __future__ import annotations

import hashlib
import time
from array import array
from collections.abc import Callable, Mapping

import numpy as np
from confluent_kafka import Consumer, KafkaError, Message, TopicPartition

from plimsoll_spark.range_check import LogRows, Span
from plimsoll_spark.records import (
    HASH_BYTES,
    HEADER_BYTES,
    PREFIX_BYTES,
    PRODUCER_BYTES,
    key_of,
)

AT_ONCE = 2_000
POLL_S = 1.0
SETTLE_S = 60.0
QUEUED_KB = 32 * 1024
SPOILT = frozenset(
    {
        KafkaError._BAD_MSG,
        KafkaError._BAD_COMPRESSION,
        KafkaError._UNDERFLOW,
        KafkaError.INVALID_MSG,
    }
)
"""librdkafka's errors for a batch with a wrong CRC or malformed bytes."""


class OutOfTime(Exception):
    """The log could not be read before the time for verifying was over."""


class Reader:
    """Reads ranges of one topic, one after another."""

    def __init__(
        self,
        *,
        bootstrap: str,
        topic: str,
        login: Mapping[str, str],
        salt: bytes,
        keys: int,
        until_s: float,
    ) -> None:
        """`login`: settings of librdkafka; `until_s`: wall-clock time at which to give up."""
        self._topic = topic
        self._salt = salt
        self._keys = keys
        self._until_s = until_s
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "client.id": "plimsoll-verify",
                "group.id": "plimsoll-verify",
                "enable.auto.commit": False,
                "check.crcs": True,
                "enable.partition.eof": True,
                "auto.offset.reset": "error",
                "queued.max.messages.kbytes": QUEUED_KB,
                "fetch.message.max.bytes": 8 * 1024 * 1024,
                "log_level": 2,
                **login,
            }
        )

    def close(self) -> None:
        """Close the connections."""
        self._consumer.close()

    def read(self, span: Span, progress: Callable[[int], None]) -> tuple[LogRows, int | None]:
        """Return the records in the range, and the offset of an unreadable batch or None.

        `progress` is called with the number of records read so far. Raises `OutOfTime`.
        """
        rows = Columns()
        position, end_seen_s = span.first, 0.0
        self._consumer.assign([TopicPartition(self._topic, span.partition, position)])
        while position < span.end:
            if time.time() >= self._until_s:
                place = f"{self._topic}-{span.partition}"
                raise OutOfTime(f"offset {position} of {place} was not readable in time")
            for message in self._consumer.consume(AT_ONCE, timeout=POLL_S):
                error = message.error()
                if error is None:
                    position, end_seen_s = message.offset() + 1, 0.0
                    if position > span.end:
                        break
                    rows.append(message.offset() or 0, *self._identity(message))
                elif error.code() in SPOILT:
                    return rows.as_log(), _place(message, position)
                elif error.code() == KafkaError._PARTITION_EOF:
                    end_seen_s = end_seen_s or time.time()
                    position = max(position, message.offset())
                elif error.code() in (
                    KafkaError._AUTO_OFFSET_RESET,
                    KafkaError.OFFSET_OUT_OF_RANGE,
                ):
                    position = self._after_deletion(span, position)
            progress(len(rows))
            if end_seen_s and time.time() >= end_seen_s + SETTLE_S:
                break
        return rows.as_log(), None

    def _after_deletion(self, span: Span, position: int) -> int:
        """Go on at the log's start, which retention moved."""
        low, _ = self._consumer.get_watermark_offsets(
            TopicPartition(self._topic, span.partition), timeout=10.0, cached=False
        )
        position = min(max(position, low), span.end)
        self._consumer.assign([TopicPartition(self._topic, span.partition, position)])
        return position

    def _identity(self, message: Message) -> tuple[int, int, int]:
        """Return producer, sequence and key; all -1 if the record is not this run's, or not
        whole."""
        value = message.value() or b""
        stated = value[PREFIX_BYTES:HEADER_BYTES]
        whole = hashlib.sha256(self._salt + value[:PREFIX_BYTES] + value[HEADER_BYTES:])
        if len(value) < HEADER_BYTES or whole.digest()[:HASH_BYTES] != stated:
            return -1, -1, -1
        producer = int.from_bytes(value[:PRODUCER_BYTES], "big")
        sequence = int.from_bytes(value[PRODUCER_BYTES:PREFIX_BYTES], "big")
        key = key_of(producer, sequence, self._keys)
        return producer, sequence, int(key[1:]) if message.key() == key.encode() else -1


class Columns:
    """The columns of `LogRows` while they grow: eight bytes a value."""

    def __init__(self) -> None:
        self._offset, self._producer, self._sequence, self._key = (array("q") for _ in range(4))

    def __len__(self) -> int:
        return len(self._offset)

    def append(self, offset: int, producer: int, sequence: int, key: int) -> None:
        """Add a record; producer -1: not this run's."""
        self._offset.append(offset)
        self._producer.append(producer)
        self._sequence.append(sequence)
        self._key.append(key)

    def as_log(self) -> LogRows:
        """Return the records."""
        offset, producer, sequence, key = (
            np.frombuffer(column, np.int64)
            for column in (self._offset, self._producer, self._sequence, self._key)
        )
        ours = producer >= 0
        return LogRows(offset=offset, producer=producer, sequence=sequence, key=key, ours=ours)


def _place(message: Message, position: int) -> int:
    offset = message.offset()
    return position if offset is None or offset < 0 else offset
