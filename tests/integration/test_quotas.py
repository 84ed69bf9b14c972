"""Quotas of a local cluster on real processes: real clients keep to them, and they change while
the brokers run."""

from __future__ import annotations

import socket
import struct
import threading
import time
from collections.abc import Iterator
from typing import Any

import confluent_kafka
import pytest
from tests.integration.local_cluster import LocalCluster

from plimsoll_wire.api_versions import ApiKey
from plimsoll_wire.headers import request_frame
from plimsoll_wire.messages import decode_response, encode_request

RATE = 400_000
"""Bytes a second."""
RECORD = b"x" * 1000
WARM_S = 11.0
"""Kafka's window: what a client may use at once before it is held to its rate."""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    with LocalCluster(tmp_path_factory.mktemp("quotas") / "cluster", brokers=1) as running:
        running.create_topic("orders", 1)
        yield running


def asked(cluster: LocalCluster, key: ApiKey, version: int, values: dict[str, Any]) -> Any:
    """One request to a broker; its answer."""
    body = encode_request(key, version, values)
    with socket.create_connection(cluster.address(0), timeout=10) as connection:
        connection.sendall(request_frame(key, version, 1, "test", body))
        stream = connection.makefile("rb")
        (length,) = struct.unpack(">i", stream.read(4))
        return decode_response(key, version, stream.read(length)[5:])


def limit(cluster: LocalCluster, entity: dict[str, str | None], **values: float | None) -> Any:
    """AlterClientQuotas for one entity; its outcome."""
    ops = [
        {"key": key, "value": value or 0.0, "remove": value is None}
        for key, value in values.items()
    ]
    parts = [{"entity_type": kind, "entity_name": name} for kind, name in entity.items()]
    entries = [{"entity": parts, "ops": ops}]
    request = {"entries": entries, "validate_only": False}
    answer = asked(cluster, ApiKey.ALTER_CLIENT_QUOTAS, 1, request)
    return answer.entries[0]


def test_producer_that_does_not_wait_is_held_to_its_rate_by_the_broker(
    cluster: LocalCluster,
) -> None:
    told = limit(cluster, {"user": "ANONYMOUS"}, producer_byte_rate=RATE)
    assert told.error_code == 0
    stop, sent = threading.Event(), [0]
    throttled: list[int] = []
    producer = confluent_kafka.Producer(
        {
            "bootstrap.servers": cluster.bootstrap,
            "linger.ms": 5,
            "acks": "all",
            "queue.buffering.max.messages": 2_000,
        },
        throttle_cb=lambda event: throttled.append(event.throttle_time),
    )

    def acknowledged(error: object, message: confluent_kafka.Message) -> None:
        if error is None:
            sent[0] += len(message.value())

    def produce() -> None:
        while not stop.is_set():
            try:
                producer.produce("orders", RECORD, on_delivery=acknowledged)
            except BufferError:
                producer.poll(0.05)
            producer.poll(0)

    thread = threading.Thread(target=produce)
    thread.start()
    try:
        time.sleep(WARM_S)
        before, began = sent[0], time.monotonic()
        time.sleep(12)
        rate = (sent[0] - before) / (time.monotonic() - began)
    finally:
        stop.set()
        thread.join()
    print("rate", rate, sent, throttled[:10])
    assert 0.8 * RATE < rate < 1.2 * RATE
    assert throttled
