"""Where a partition ends, asked for while its leader may be changing."""

from __future__ import annotations

import contextlib
import time

import confluent_kafka
from confluent_kafka import KafkaError

OFFSET_NOT_AVAILABLE = 78
FOUND_S = 30.0
ASK_S = 10.0
AGAIN_S = 0.1

LEADER_CHANGES = frozenset(
    {
        OFFSET_NOT_AVAILABLE,  # a new leader does not know yet how far the last one committed
        KafkaError.NOT_LEADER_FOR_PARTITION,
        KafkaError.LEADER_NOT_AVAILABLE,
        KafkaError.FENCED_LEADER_EPOCH,
        KafkaError.UNKNOWN_LEADER_EPOCH,
        KafkaError._TRANSPORT,
        KafkaError._DESTROY_BROKER,  # metadata do not name the broker any more that was asked
        KafkaError._UNKNOWN_PARTITION,  # metadata name no leader for now
    }
)
"""What ListOffsets and librdkafka say while metadata change.  Consumers look at newer metadata and
ask again; librdkafka leaves that to the caller of `get_watermark_offsets`."""


def log_end(consumer: confluent_kafka.Consumer, place: confluent_kafka.TopicPartition) -> int:
    """The high watermark; raises what was said last when no leader tells it within 30 s."""
    deadline = time.monotonic() + FOUND_S
    while True:
        try:
            return int(consumer.get_watermark_offsets(place, timeout=FOUND_S)[1])
        except confluent_kafka.KafkaException as error:
            if error.args[0].code() not in LEADER_CHANGES or time.monotonic() > deadline:
                raise
        time.sleep(AGAIN_S)
        with contextlib.suppress(confluent_kafka.KafkaException):
            consumer.list_topics(place.topic, timeout=ASK_S)
