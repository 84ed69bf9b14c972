"""What is not served is refused so that applications hear so, instead of waiting for it."""

from __future__ import annotations

import confluent_kafka
import pytest
from confluent_kafka import KafkaError
from tests.conformance.conftest import Peer

WAIT_S = 20
QUIET = {"log_level": 0}


@pytest.fixture
def served(peer: Peer) -> bool:
    """Apache Kafka serves all of it."""
    return peer.local is None


def test_transactional_producer_of_librdkafka_hears_that_there_are_no_transactions(
    peer: Peer, served: bool
) -> None:
    producer = confluent_kafka.Producer({**peer.librdkafka, **QUIET, "transactional.id": "refused"})
    if served:
        producer.init_transactions(WAIT_S)
        return
    with pytest.raises(confluent_kafka.KafkaException) as caught:
        producer.init_transactions(WAIT_S)
    error = caught.value.args[0]
    assert error.fatal(), error
    assert "Transactions are not served here." in error.str()


def test_member_of_the_newer_protocol_of_librdkafka_hears_that_it_is_not_served(
    peer: Peer, peer_topic: str, served: bool
) -> None:
    config = {"group.id": f"{peer_topic}-newer", "group.protocol": "consumer"}
    consumer = confluent_kafka.Consumer({**peer.librdkafka, **QUIET, **config})
    consumer.subscribe([peer_topic])
    message = consumer.poll(2 if served else WAIT_S)
    consumer.close()
    if served:
        assert message is None
        return
    assert message is not None
    error = message.error()
    assert error is not None
    assert error.code() == KafkaError._FATAL
    assert "not supported" in error.str()
