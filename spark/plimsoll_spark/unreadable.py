"""Finds batches that no consumer can read, after Spark's own source has failed on the log.

Called by `run`. Spark ends a whole job at the first such batch, with a Java stack trace. Here a
plain consumer that checks CRCs reads each partition to its end and names the unreadable batches. A
partition without data for `STALLED_S` proves nothing: a broker may be away.
"""

from __future__ import annotations

import time
from collections.abc import Mapping

from confluent_kafka import Consumer, KafkaError, TopicPartition

from plimsoll_spark.login import librdkafka
from plimsoll_spark.settings import Settings
from plimsoll_spark.topics import OffsetRange, Ranges
from plimsoll_spark.values import Example

UNREADABLE_MAX = 20
STALLED_S = 30.0
AT_ONCE = 10_000
SPOILT = frozenset(
    {
        KafkaError._BAD_MSG,
        KafkaError._BAD_COMPRESSION,
        KafkaError._UNDERFLOW,
        KafkaError.INVALID_MSG,
    }
)
"""librdkafka's errors for a batch with a wrong CRC or malformed bytes."""


def unreadable(settings: Settings, ranges: Ranges, until_s: float) -> tuple[Example, ...]:
    """Return the first unreadable batch of each partition, at most `UNREADABLE_MAX`; stop reading
    at the wall-clock time `until_s`."""
    consumer = Consumer(_config(settings.bootstrap, librdkafka(settings.login)))
    found: list[Example] = []
    try:
        for partition, span in sorted(ranges.items()):
            if len(found) == UNREADABLE_MAX:
                break
            example = _first_in(consumer, settings.topic, partition, span, until_s)
            if example is not None:
                found.append(example)
    finally:
        consumer.close()
    return tuple(found)


def _config(bootstrap: str, login: Mapping[str, str]) -> dict[str, str | bool | int]:
    return {
        "bootstrap.servers": bootstrap,
        "client.id": "plimsoll-verify",
        "group.id": "plimsoll-verify",
        "enable.auto.commit": False,
        "check.crcs": True,
        "enable.partition.eof": True,
        "log_level": 2,
        **login,
    }


def _first_in(
    consumer: Consumer, topic: str, partition: int, span: OffsetRange, until_s: float
) -> Example | None:
    position = span.log_start_offset
    consumer.assign([TopicPartition(topic, partition, position)])
    stalled_s = time.time() + STALLED_S
    while position < span.log_end_offset and time.time() < min(until_s, stalled_s):
        for message in consumer.consume(AT_ONCE, timeout=1.0):
            error = message.error()
            if error is None:
                position = message.offset() + 1
                stalled_s = time.time() + STALLED_S
            elif error.code() in SPOILT:
                offset = message.offset()
                at = position if offset is None or offset < 0 else offset
                return Example(topic=topic, partition=partition, offset=at, kind="unreadable")
            elif error.code() == KafkaError._PARTITION_EOF:
                return None
    return None
