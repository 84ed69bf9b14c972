"""What is not served is refused so that applications hear so, instead of waiting for it."""

from __future__ import annotations

import confluent_kafka
import pytest
from tests.conformance.conftest import Peer

WAIT_S = 20
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
