"""librdkafka's clients of chaos, through confluent-kafka, as threads of this process."""

from __future__ import annotations

import contextlib
import random

import confluent_kafka
from tests.integration.chaos_clients.frame import (
    COMMIT_EACH,
    GOES_ON_S_MAX,
    GROUP,
    PARTITIONS,
    PLAIN,
    SESSION_MS,
    Kind,
    Place,
    Reader,
    Record,
    Writer,
    value_of,
)
from tests.integration.chaos_clients.logins import librdkafka_login
from tests.integration.local_cluster import a_producer

QUIET = {"log_level": 0}
"""Each connection that is refused would be a line."""


class LibrdkafkaWriter(Writer):
    def _work(self) -> None:
        login = librdkafka_login(self.place.writer)
        config = {**QUIET, "message.timeout.ms": self.place.delivery_ms, **login}
        producer = a_producer(self.place.bootstrap, **config)
        rng = random.Random(self.place.seed)
        number = 0
        while not self.stop.is_set():
            key = rng.randrange(self.keys) if self.keys else number
            with contextlib.suppress(BufferError):
                producer.produce(
                    self.topic,
                    value_of(number, rng),
                    b"%d" % key if self.keys else None,
                    partition=key % PARTITIONS,
                    on_delivery=self._delivered,
                )
                number += 1
            producer.poll(0.007)
        self.left = producer.flush(GOES_ON_S_MAX)

    def _delivered(
        self, error: confluent_kafka.KafkaError | None, message: confluent_kafka.Message
    ) -> None:
        if error is not None:
            self.failed.append(str(error))
            return
        self.acked[message.partition() or 0].append(as_record(message))
        self.done()


class LibrdkafkaReader(Reader):
    """Not static: when its session has timed out it may send a heartbeat without its member id,
    which Kafka's coordinator, too, takes for another instance, and then it ends for good."""

    def _work(self) -> None:
        consumer = confluent_kafka.Consumer(
            {
                **QUIET,
                "bootstrap.servers": self.place.bootstrap,
                "group.id": GROUP,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "session.timeout.ms": SESSION_MS,
                **librdkafka_login(self.place.reader),
            }
        )
        consumer.subscribe([PLAIN])
        while not self.stop.is_set():
            message = consumer.poll(0.2)
            if message is None or message.error() is not None:
                continue
            offset = message.offset() or 0
            self.seen[message.partition() or 0].add(offset)
            self.done()
            if offset % COMMIT_EACH == 0:
                try:
                    consumer.commit(message=message, asynchronous=False)
                except confluent_kafka.KafkaException as error:  # the group has gone on without it
                    self.refused.append(str(error))
        consumer.close()


class Librdkafka(Kind):
    def writer(self, place: Place, topic: str, keys: int) -> Writer:
        return LibrdkafkaWriter(place, topic, keys)

    def reader(self, place: Place, number: int) -> Reader:
        return LibrdkafkaReader(place, number)


def as_record(message: confluent_kafka.Message) -> Record:
    key, value = message.key(), message.value()
    assert value is not None
    return Record(message.offset(), key if isinstance(key, bytes) else None, value)
