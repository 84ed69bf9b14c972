"""Reads a range of offsets of one partition, record by record, and identifies the records that this
run wrote.

Called in Spark's tasks (`checks`). It is a plain consumer that checks CRCs; a batch that it cannot
read ends the range. Of other clients' transactions it reads aborted and open ones, too, so that
each offset is known; it shows no markers (`markers`). It waits for brokers that are away, until the
time for verifying is over. If a log ends below the range, it waits up to `SETTLE_S` seconds for
more records, since the high watermark may move again only some time after a failover.
"""

from __future__ import annotations

import hashlib
import re
import time
from array import array
from collections.abc import Callable, Mapping
from typing import NamedTuple

import numpy as np
from confluent_kafka import Consumer, KafkaError, Message, TopicPartition

from plimsoll_spark.range_check import LogRows, Span
from plimsoll_spark.records import (
    HASH_BYTES,
    HEADER_BYTES,
    PREFIX_BYTES,
    PRODUCER_BYTES,
    key_number,
)

AT_ONCE = 2_000
_KEY = re.compile(rb"k(0|[1-9][0-9]{0,17})")
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
"""Error codes of librdkafka for a batch with a wrong CRC or malformed bytes."""


class SomeRows(NamedTuple):
    """The records of the first part of a range. `end`: everything before it was read; `unreadable`:
    the offset of a batch that cannot be read, None if there is none; `is_late`: True if the time
    was up before the end of the range."""

    rows: LogRows
    end: int
    unreadable: int | None = None
    is_late: bool = False


class OutOfTime(Exception):
    """Raised if the time for verifying is over and the range has not been read to its end."""


class Reader:
    """A consumer that reads ranges of one topic, one after another."""

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
        """Create a reader. `login`: settings of librdkafka; `salt`, `keys`: those of the run's
        records; `until_s`: the wall-clock time at which to give up, in seconds since 1970."""
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
                "isolation.level": "read_uncommitted",
                "queued.max.messages.kbytes": QUEUED_KB,
                "fetch.message.max.bytes": 8 * 1024 * 1024,
                "log_level": 2,
                **login,
            }
        )

    def close(self) -> None:
        """Close the consumer and its connections."""
        self._consumer.close()

    def read(self, span: Span, progress: Callable[[int], None]) -> tuple[LogRows, int | None]:
        """Return the records in the range, up to a batch that cannot be read, and the offset of
        that batch; None if there is none. If the log ends below the range for `SETTLE_S`, return
        the records up to its end; records that retention has deleted are left out.

        `progress` is called repeatedly with the number of records read until then. Raises
        `OutOfTime`.
        """
        found = self.read_some(span, progress, until_s=self._until_s, settle_s=SETTLE_S)
        if found.is_late:
            place = f"{self._topic}-{span.partition}"
            raise OutOfTime(
                f"offset {found.end} of {place} could not be read before the time for verifying"
                " was over"
            )
        return found.rows, found.unreadable

    def read_some(
        self, span: Span, progress: Callable[[int], None], *, until_s: float, settle_s: float
    ) -> SomeRows:
        """Return the records in the range as `read` does, but at `until_s` (seconds since 1970)
        those that were read until then."""
        rows = Columns()
        position, end_seen_s = span.first, 0.0
        self._consumer.assign([TopicPartition(self._topic, span.partition, position)])
        while position < span.end:
            if time.time() >= until_s:
                return SomeRows(rows.as_log(), position, is_late=True)
            for message in self._consumer.consume(AT_ONCE, timeout=POLL_S):
                error = message.error()
                if error is None:
                    position, end_seen_s = message.offset() + 1, 0.0
                    if position > span.end:
                        break
                    rows.append(message.offset() or 0, *self._identity(message))
                elif error.code() in SPOILT:
                    unreadable = _place(message, position)
                    return SomeRows(rows.as_log(), unreadable, unreadable=unreadable)
                elif error.code() == KafkaError._PARTITION_EOF:
                    end_seen_s = end_seen_s or time.time()
                    position = max(position, message.offset())
                elif error.code() in (
                    KafkaError._AUTO_OFFSET_RESET,
                    KafkaError.OFFSET_OUT_OF_RANGE,
                ):
                    position = self._after_deletion(span, position)
            progress(len(rows))
            if end_seen_s and time.time() >= end_seen_s + settle_s:
                break
        return SomeRows(rows.as_log(), min(position, span.end))

    def _after_deletion(self, span: Span, position: int) -> int:
        """Continue at the log start offset, since retention has deleted the records at `position`.
        Return the new position, at most the end of the range."""
        low, _ = self._consumer.get_watermark_offsets(
            TopicPartition(self._topic, span.partition), timeout=10.0, cached=False
        )
        position = min(max(position, low), span.end)
        self._consumer.assign([TopicPartition(self._topic, span.partition, position)])
        return position

    def _identity(self, message: Message) -> tuple[int, int, int]:
        """Return producer, sequence and number of the key in a record that this run wrote; the
        number is -1 if the record has another key. Return -1 for producer and sequence if its
        content hash is wrong, because another writer wrote it or it is damaged; the number is then
        that of the run's key that it has, or -1."""
        value = message.value() or b""
        stated = value[PREFIX_BYTES:HEADER_BYTES]
        whole = hashlib.sha256(self._salt + value[:PREFIX_BYTES] + value[HEADER_BYTES:])
        if len(value) < HEADER_BYTES or whole.digest()[:HASH_BYTES] != stated:
            return -1, -1, self._number(message.key())
        producer = int.from_bytes(value[:PRODUCER_BYTES], "big")
        sequence = int.from_bytes(value[PRODUCER_BYTES:PREFIX_BYTES], "big")
        number = key_number(producer, sequence, self._keys)
        return producer, sequence, number if message.key() == b"k%d" % number else -1

    def _number(self, key: bytes | None) -> int:
        if key is None or not _KEY.fullmatch(key):
            return -1
        number = int(key[1:])
        return number if number < self._keys else -1


class Columns:
    """Collects the records of a range column by column, with eight bytes for each value."""

    def __init__(self) -> None:
        self._offset, self._producer, self._sequence, self._key = (array("q") for _ in range(4))

    def __len__(self) -> int:
        return len(self._offset)

    def append(self, offset: int, producer: int, sequence: int, key: int) -> None:
        """Add a record. `producer`: -1 if this run did not write it."""
        self._offset.append(offset)
        self._producer.append(producer)
        self._sequence.append(sequence)
        self._key.append(key)

    def as_log(self) -> LogRows:
        """Return the collected records as `LogRows`."""
        offset, producer, sequence, key = (
            np.frombuffer(column, np.int64)
            for column in (self._offset, self._producer, self._sequence, self._key)
        )
        ours = producer >= 0
        return LogRows(offset=offset, producer=producer, sequence=sequence, key=key, ours=ours)


def _place(message: Message, position: int) -> int:
    offset = message.offset()
    return position if offset is None or offset < 0 else offset
