"""What is asked of a topic is asked again while the broker that should answer is gone."""

from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from plimsoll_spark.topics import TopicClient

ID = "qk2rVn0cQ3u9"


class Admin:
    """Waits for a broker that is gone until it has read metadata as often as it is told."""

    def __init__(self, failures: int) -> None:
        self.failures = failures
        self.asked = 0
        self.metadata_reads = 0

    def describe_topics(self, topics: Any, request_timeout: float) -> dict[str, Future[Any]]:
        self.asked += 1
        answer: Future[Any] = Future()
        if self.metadata_reads < self.failures:
            answer.set_exception(KafkaException(KafkaError(KafkaError._TIMED_OUT)))
        else:
            answer.set_result(SimpleNamespace(topic_id=ID))
        return {"orders": answer}

    def list_topics(self, *, timeout: float) -> None:
        """Of all topics: to ask for one would make it."""
        self.metadata_reads += 1
        if self.metadata_reads == 1:
            raise KafkaException(KafkaError(KafkaError._TRANSPORT))

    def poll(self, timeout_s: float) -> None:
        """Nothing to wait for."""


def client(failures: int) -> tuple[TopicClient, Admin]:
    made = TopicClient("127.0.0.1:1", "orders")
    admin = Admin(failures)
    made._admin = admin
    return made, admin


def test_topic_id_is_retried_with_fresh_metadata() -> None:
    made, admin = client(3)
    assert made.topic_id(timeout_s=60) == ID
    assert admin.asked == 4
    made.close()


def test_topic_id_lookup_fails_after_its_timeout() -> None:
    made, admin = client(1)
    with pytest.raises(KafkaException):
        made.topic_id(timeout_s=0)
    assert admin.asked == 1
    made.close()
