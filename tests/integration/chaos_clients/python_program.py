"""kafka-python's and aiokafka's clients of chaos, as the programs that frame.py describes.

`python -m tests.integration.chaos_clients.python_program LIBRARY producer TOPIC KEYS SEED
SERVERS LOGIN`, or `… consumer TOPIC GROUP INSTANCE SERVERS LOGIN` (INSTANCE may be empty;
LOGIN: a user's folder, empty where the cluster is open).
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import random
import sys
import threading
from collections.abc import Iterator
from typing import Any

import aiokafka
import aiokafka.errors
import kafka
import kafka.errors
from aiokafka.coordinator.assignors.range import RangePartitionAssignor as AiokafkaRange
from tests.integration.chaos_clients.frame import (
    COMMIT_EACH,
    DELIVERY_MS,
    GOES_ON_S_MAX,
    PARTITIONS,
    SESSION_MS,
    value_of,
)
from tests.integration.chaos_clients.logins import aiokafka_login, python_login

STOPPED = threading.Event()
SAYING = threading.Lock()
BETWEEN_S = 0.007
RECONNECT_MS_MAX = 1_000
"""As Java's clients; kafka-python's own is 30 s."""


def say(**event: object) -> None:
    with SAYING:
        print(json.dumps(event), flush=True)


def said_of(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"


def wait_for_the_end() -> None:
    # Not through `sys.stdin`, whose lock an interpreter that ends on its own waits for.
    while os.read(0, 1):
        pass
    STOPPED.set()


class Sent:
    """Records to send, and how many are not answered."""

    def __init__(self, keys: int, seed: int) -> None:
        self.keys = keys
        self.left = 0
        self._rng = random.Random(seed)

    def records(self) -> Iterator[tuple[int, int, bytes | None, bytes]]:
        """Number, partition, key and value."""
        number = 0
        while not STOPPED.is_set():
            key = self._rng.randrange(self.keys) if self.keys else number
            value = value_of(number, self._rng)
            self.left += 1
            yield number, key % PARTITIONS, b"%d" % key if self.keys else None, value
            number += 1

    def acked(self, number: int, key: bytes | None, metadata: Any) -> None:
        self.left -= 1
        offset = metadata.offset if metadata.offset >= 0 else None
        name = None if key is None else key.decode()
        say(acked=[metadata.partition, offset, number, name])

    def failed(self, error: BaseException) -> None:
        self.left -= 1
        say(failed=said_of(error))


def membership(group: str, instance: str) -> dict[str, Any]:
    """Of a consumer's arguments those that both libraries call alike."""
    return {
        "group_id": group,
        "group_instance_id": instance or None,
        "auto_offset_reset": "earliest",
        "enable_auto_commit": False,
        "session_timeout_ms": SESSION_MS,
    }


# --- kafka-python ---------------------------------------------------------------------------------


def kafka_python_producer(topic: str, keys: str, seed: str, servers: str, login: str) -> None:
    producer = kafka.KafkaProducer(
        bootstrap_servers=servers.split(","),
        reconnect_backoff_max_ms=RECONNECT_MS_MAX,
        acks="all",
        enable_idempotence=True,
        linger_ms=2,
        delivery_timeout_ms=DELIVERY_MS,
        max_block_ms=DELIVERY_MS,
        **python_login(login),
    )
    sent = Sent(int(keys), int(seed))
    for number, partition, key, value in sent.records():
        try:
            future = producer.send(topic, value, key, partition=partition)
        except kafka.errors.KafkaError as error:
            sent.failed(error)
            continue
        future.add_callback(lambda told, n=number, k=key: sent.acked(n, k, told))
        future.add_errback(sent.failed)
        STOPPED.wait(BETWEEN_S)
    try:
        producer.flush(GOES_ON_S_MAX)
    except kafka.errors.KafkaError as error:
        say(failed=said_of(error))
    say(left=sent.left)


def kafka_python_consumer(topic: str, group: str, instance: str, servers: str, login: str) -> None:
    consumer = kafka.KafkaConsumer(
        topic,
        bootstrap_servers=servers.split(","),
        reconnect_backoff_max_ms=RECONNECT_MS_MAX,
        **membership(group, instance),
        **python_login(login),
    )
    while not STOPPED.is_set():
        try:
            polled = consumer.poll(200)
        except kafka.errors.KafkaConnectionError as error:  # a coordinator that is not there
            logging.warning("poll: %s", error)
            continue
        for place, records in polled.items():
            for record in records:
                say(read=[record.partition, record.offset])
                if record.offset % COMMIT_EACH == 0:
                    _commit(consumer, place, record.offset + 1)
    consumer.close()


def _commit(consumer: kafka.KafkaConsumer, place: Any, offset: int) -> None:
    try:
        consumer.commit({place: kafka.OffsetAndMetadata(offset, "", -1)})
    except (kafka.errors.CommitFailedError, kafka.errors.KafkaConnectionError) as error:
        # The second is raised for a broker that refuses connections, and not tried again.
        say(refused=said_of(error))
    except kafka.errors.KafkaError as error:
        say(failed=said_of(error))


# --- aiokafka -------------------------------------------------------------------------------------


async def aiokafka_producer(topic: str, keys: str, seed: str, servers: str, login: str) -> None:
    producer = aiokafka.AIOKafkaProducer(
        bootstrap_servers=servers,
        enable_idempotence=True,
        linger_ms=2,
        # How long it tries, too: it has no delivery timeout.
        request_timeout_ms=DELIVERY_MS,
        **aiokafka_login(login),
    )
    await producer.start()
    sent = Sent(int(keys), int(seed))

    def told(future: asyncio.Future[Any], number: int, key: bytes | None) -> None:
        error = future.exception()
        if error is not None:
            sent.failed(error)
        else:
            sent.acked(number, key, future.result())

    for number, partition, key, value in sent.records():
        try:
            future = await producer.send(topic, value, key, partition=partition)
        except aiokafka.errors.KafkaError as error:
            sent.failed(error)
            continue
        future.add_done_callback(lambda future, n=number, k=key: told(future, n, k))
        await asyncio.sleep(BETWEEN_S)
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(producer.flush(), GOES_ON_S_MAX)
    say(left=sent.left)


async def aiokafka_consumer(
    topic: str, group: str, instance: str, servers: str, login: str
) -> None:
    consumer = aiokafka.AIOKafkaConsumer(
        topic,
        bootstrap_servers=servers,
        **membership(group, instance),
        partition_assignment_strategy=(AiokafkaRange,),
        **aiokafka_login(login),
    )
    await consumer.start()
    while not STOPPED.is_set():
        for place, records in (await consumer.getmany(timeout_ms=200)).items():
            for record in records:
                say(read=[record.partition, record.offset])
                if record.offset % COMMIT_EACH == 0:
                    await _commit_of_aiokafka(consumer, place, record.offset + 1)
    await consumer.stop()


async def _commit_of_aiokafka(consumer: Any, place: Any, offset: int) -> None:
    refusals = (aiokafka.errors.CommitFailedError, aiokafka.errors.IllegalStateError)
    try:
        await consumer.commit({place: offset})
    except refusals as error:  # the second: the partition is another member's by now
        say(refused=said_of(error))
    except aiokafka.errors.KafkaError as error:
        say(failed=said_of(error))


def main() -> None:
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(levelname)s %(message)s")
    library, work, *words = sys.argv[1:]
    threading.Thread(target=wait_for_the_end, daemon=True).start()
    if library == "kafka-python":
        {"producer": kafka_python_producer, "consumer": kafka_python_consumer}[work](*words)
    else:
        chosen = {"producer": aiokafka_producer, "consumer": aiokafka_consumer}[work]
        asyncio.run(chosen(*words))


if __name__ == "__main__":
    main()
