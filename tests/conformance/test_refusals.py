"""What is not served is refused so that applications hear so, instead of waiting for it."""

from __future__ import annotations

import confluent_kafka
import pytest
from tests.conformance.conftest import Peer

WAIT_S = 20
QUIET = {"log_level": 0}


def test_transactional_producer_of_librdkafka_hears_that_there_are_no_transactions(
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
    assert "Transactions are not served here." in error.str()
