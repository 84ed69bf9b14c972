"""Quotas of a local cluster on real processes: real clients keep to them, objects own what they
declare, and all of it changes while the brokers run."""

from __future__ import annotations

import json
import socket
import struct
import time
from collections.abc import Callable, Iterator
from typing import Any

import confluent_kafka
import pytest
from tests.integration.declared import log_cluster
from tests.integration.local_cluster import LocalCluster, wait_for

from plimsoll_wire.api_versions import ApiKey
from plimsoll_wire.headers import request_frame
from plimsoll_wire.messages import decode_response, encode_request

RATE = 300_000
"""Bytes a second."""
RECORD = b"x" * 1000
LENT_S = 6.0
MEASURED_S = 24.0
"""A client uses at once what a window of eleven seconds lends, and again when that is over, eleven
to fourteen seconds later: two of these times are measured, from one wait to another."""
DECLARED_PERCENTAGE = 90
A_USER = {
    "apiVersion": "plimsoll.dev/v1alpha1",
    "kind": "User",
    "metadata": {"name": "alice"},
    "spec": {"clusterRef": {"name": "main"}, "quotas": {"consumerBytesPerSecond": "20Mi"}},
}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    place = tmp_path_factory.mktemp("quotas")
    file = place / "cluster.yaml"
    defaults = {"defaultUser": {"requestPercentage": DECLARED_PERCENTAGE}}
    documents = [log_cluster(brokers=1, quotas=defaults), json.dumps(A_USER)]
    file.write_text("\n---\n".join(documents))
    with LocalCluster(place / "cluster", brokers=None, files=(file,)) as running:
        running.brokers = 1
        for topic in ("written", "read"):
            running.create_topic(topic, 1)
        yield running


def asked(cluster: LocalCluster, key: ApiKey, values: dict[str, Any]) -> Any:
    """One request to a broker; its answer."""
    body = encode_request(key, 1, values)
    with socket.create_connection(cluster.address(0), timeout=10) as connection:
        connection.sendall(request_frame(key, 1, 1, "test", body))
        stream = connection.makefile("rb")
        (length,) = struct.unpack(">i", stream.read(4))
        return decode_response(key, 1, stream.read(length)[5:])


def limited(
    cluster: LocalCluster, entity: dict[str, str | None], **values: float | None
) -> tuple[int, str | None]:
    """AlterClientQuotas for one entity; its outcome."""
    ops = [
        {"key": key, "value": value or 0.0, "remove": value is None}
        for key, value in values.items()
    ]
    parts = [{"entity_type": kind, "entity_name": name} for kind, name in entity.items()]
    request = {"entries": [{"entity": parts, "ops": ops}], "validate_only": False}
    (entry,) = asked(cluster, ApiKey.ALTER_CLIENT_QUOTAS, request).entries
    return int(entry.error_code), entry.error_message


def quotas(cluster: LocalCluster) -> dict[str, dict[str, float]]:
    """All of them, as DescribeClientQuotas shows them."""
    told = asked(cluster, ApiKey.DESCRIBE_CLIENT_QUOTAS, {"components": [], "strict": False})
    return {
        ", ".join(f"{part.entity_type}={part.entity_name}" for part in one.entity): {
            value.key: value.value for value in one.values
        }
        for one in told.entries
    }


def writer(cluster: LocalCluster, told: list[float], name: str) -> confluent_kafka.Producer:
    settings = {
        "bootstrap.servers": cluster.bootstrap,
        "client.id": name,
        "acks": "all",
        "batch.size": 30_000,
        "queue.buffering.max.messages": 2_000,
    }
    return confluent_kafka.Producer(
        settings, throttle_cb=lambda event: told.append(event.throttle_time)
    )


def rate_of(step: Callable[[], int]) -> float:
    """Bytes a second; `step`: bytes since the last one."""

    def moved(seconds: float) -> float:
        began, size = time.monotonic(), 0
        while time.monotonic() - began < seconds:
            size += step()
        return size / (time.monotonic() - began)

    moved(LENT_S)
    return moved(MEASURED_S)


def test_producer_is_held_to_its_rate(cluster: LocalCluster) -> None:
    assert limited(cluster, {"client-id": "writer"}, producer_byte_rate=RATE) == (0, None)
    told: list[float] = []
    producer = writer(cluster, told, "writer")
    size = [0]

    def delivered(error: object, message: confluent_kafka.Message) -> None:
        if error is None:
            size[0] += len(message.value())

    def step() -> int:
        before = size[0]
        try:
            producer.produce("written", RECORD, on_delivery=delivered)
        except BufferError:
            producer.poll(0.05)
        producer.poll(0)
        return size[0] - before

    rate = rate_of(step)
    producer.purge()
    producer.flush(10)
    assert 0.75 * RATE < rate < 1.2 * RATE
    assert any(told)
    count = 'throttle_seconds_count{quota="producer_byte_rate"}'
    assert cluster.metric(0, count) >= len([each for each in told if each])


def test_consumer_is_held_to_its_rate(cluster: LocalCluster) -> None:
    producer = writer(cluster, [], "filler")
    for _ in range(int(RATE * (LENT_S + MEASURED_S) * 1.5 / len(RECORD))):
        while True:
            try:
                producer.produce("read", RECORD)
                break
            except BufferError:
                producer.poll(0.05)
    assert producer.flush(60) == 0, "nobody limits this one"
    assert limited(cluster, {"client-id": "reader"}, consumer_byte_rate=RATE) == (0, None)
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": cluster.bootstrap,
            "client.id": "reader",
            "group.id": "readers",
            "auto.offset.reset": "earliest",
            "fetch.message.max.bytes": 60_000,
            "queued.max.messages.kbytes": 64,
        }
    )
    consumer.assign([confluent_kafka.TopicPartition("read", 0, 0)])

    def step() -> int:
        message = consumer.poll(0.1)
        return 0 if message is None or message.error() else len(message.value())

    try:
        rate = rate_of(step)
    finally:
        consumer.close()
    assert 0.75 * RATE < rate < 1.2 * RATE


def test_declared_quota_is_committed_and_protected(
    cluster: LocalCluster,
) -> None:
    declared = {"request_percentage": float(DECLARED_PERCENTAGE)}
    wait_for("the LogCluster's", lambda: quotas(cluster).get("user=None") == declared)
    wait_for(
        "the User's",
        lambda: quotas(cluster).get("user=alice") == {"consumer_byte_rate": 20.0 * 2**20},
    )
    code, message = limited(cluster, {"user": "alice"}, producer_byte_rate=5.0)
    assert (code, "User default/alice" in str(message)) == (44, True)
    code, message = limited(cluster, {"user": None}, producer_byte_rate=5.0)
    assert (code, "LogCluster" in str(message)) == (44, True)
    assert limited(cluster, {"user": "bob"}, producer_byte_rate=5.0) == (0, None)
    assert quotas(cluster)["user=bob"] == {"producer_byte_rate": 5.0}
    assert limited(cluster, {"user": "bob"}, producer_byte_rate=None) == (0, None)
    assert "user=bob" not in quotas(cluster)
