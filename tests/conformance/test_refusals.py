"""What is not served is refused so that applications hear so, instead of waiting for it."""

from __future__ import annotations

import asyncio
import subprocess

import aiokafka
import confluent_kafka
import kafka
import pytest
from aiokafka.errors import TransactionalIdAuthorizationFailed
from kafka.errors import KafkaError
from tests.conformance.conftest import Peer
from tests.conformance.kafka_jars import KafkaJars, kafka_jars
from tests.kafka_python import left_sockets

WAIT_S = 20
TOOL_S = 120
QUIET = {"log_level": 0}


def test_librdkafka_transactional_producer_is_refused_clearly(
    peer: Peer,
) -> None:
    producer = confluent_kafka.Producer({**peer.librdkafka, **QUIET, "transactional.id": "refused"})
    if peer.local is None:  # Apache Kafka serves them
        producer.init_transactions(WAIT_S)
        return
    with pytest.raises(confluent_kafka.KafkaException) as caught:
        producer.init_transactions(WAIT_S)
    error = caught.value.args[0]
    assert error.fatal(), error
    assert "This cluster does not support transactions." in error.str()


def test_librdkafka_member_of_newer_protocol_hears_refusal(peer: Peer) -> None:
    """It waited in silence where ConsumerGroupHeartbeat was not advertised."""
    if peer.local is None:  # Apache Kafka serves the protocol
        return
    settings = {"group.protocol": "consumer", "group.id": "newer"}
    consumer = confluent_kafka.Consumer({**peer.librdkafka, **QUIET, **settings})
    try:
        consumer.subscribe(["any"])
        told = consumer.poll(WAIT_S)
    finally:
        consumer.close()
    assert told is not None, "neither a record nor an error"
    error = told.error()
    assert error is not None
    assert error.code() == confluent_kafka.KafkaError._FATAL
    assert "API version not supported: ConsumerGroupHeartbeat" in error.str()


def test_librdkafka_member_of_share_group_hears_refusal(peer: Peer) -> None:
    """It waited in silence where ShareGroupHeartbeat was not advertised."""
    if peer.local is None:  # Apache Kafka serves share groups
        return
    consumer = confluent_kafka.ShareConsumer({**peer.librdkafka, **QUIET, "group.id": "shared"})
    try:
        consumer.subscribe(["any"])
        with pytest.raises(confluent_kafka.KafkaException) as caught:
            consumer.poll(timeout=WAIT_S)
    finally:
        consumer.close()
    error = caught.value.args[0]
    assert error.fatal(), error
    assert "API version not supported" in error.str()


@left_sockets()
def test_kafka_pythons_transactional_producer_is_refused(peer: Peer) -> None:
    if peer.local is None:  # Apache Kafka serves them
        return
    producer = kafka.KafkaProducer(bootstrap_servers=peer.bootstrap, transactional_id="refused")
    try:
        with pytest.raises(KafkaError, match=r"coordinator with type .* InvalidRequestError"):
            producer.init_transactions()
    finally:
        producer.close(timeout=WAIT_S)


async def test_aiokafkas_transactional_producer_is_refused(peer: Peer) -> None:
    if peer.local is None:  # Apache Kafka serves them
        return
    producer = aiokafka.AIOKafkaProducer(
        bootstrap_servers=peer.bootstrap, transactional_id="refused"
    )
    try:
        async with asyncio.timeout(WAIT_S):
            with pytest.raises(TransactionalIdAuthorizationFailed):
                await producer.start()
    finally:
        await producer.stop()


@pytest.fixture(scope="module")
def tools() -> KafkaJars:
    return kafka_jars()


def said(tools: KafkaJars, main_class: str, *arguments: str) -> str:
    """What the tool says before it ends; the console consumer then ends as if it had succeeded."""
    done = subprocess.run(
        tools.command(main_class, *arguments),
        capture_output=True,
        text=True,
        timeout=TOOL_S,
        check=False,
    )
    return done.stdout + done.stderr


def test_java_transactional_producer_is_refused_in_words(peer: Peer, tools: KafkaJars) -> None:
    if peer.local is None:  # Apache Kafka serves them
        return
    text = said(
        tools,
        "org.apache.kafka.tools.ProducerPerformance",
        *("--topic", "any", "--num-records", "1", "--record-size", "1", "--throughput", "-1"),
        *("--transactional-id", "refused", "--producer-props"),
        f"bootstrap.servers={peer.bootstrap}",
    )
    assert "This cluster does not support transactions." in text


def test_java_member_of_newer_protocol_is_refused(peer: Peer, tools: KafkaJars) -> None:
    if peer.local is None:  # Apache Kafka serves the protocol
        return
    text = said(
        tools,
        tools.console_consumer,
        *("--bootstrap-server", peer.bootstrap, "--topic", "any", "--group", "newer"),
        *("--consumer-property", "group.protocol=consumer"),
    )
    assert "group.protocol=classic" in text
