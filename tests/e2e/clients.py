"""Kafka clients of this machine that reach brokers by the names they have inside the cluster.

Brokers advertise names that only the cluster's DNS knows; on a one-node cluster their addresses are
reachable from here all the same, so names are looked up in the API server instead.
"""

import json
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

from dev.kubectl import Cluster
from kafka import KafkaConsumer, KafkaProducer, TopicPartition
from tests.kafka_python import left_sockets

Mishap = Callable[[Cluster], AbstractContextManager[None]]

RECONNECT_MS_MAX = 1_000
ROUNDS_APART_S = 0.05
"""Without a pause they would take what processors there are."""
"""A Service refuses connections until its endpoints are known, a few seconds after a cluster is
Ready; kafka-python would ask six times in half a minute."""


@contextmanager
def cluster_names(cluster: Cluster, namespace: str) -> Iterator[None]:
    """Within: `<pod>.<service>.<namespace>.svc` and `<service>.<namespace>.svc` resolve."""
    original = socket.getaddrinfo
    known: dict[str, str] = {}

    def resolve(host: Any, *rest: Any, **more: Any) -> Any:
        if isinstance(host, str) and host.endswith(f".{namespace}.svc"):
            # A name that was found once is kept: DNS answers while the API server does not.
            if host not in known:
                known[host] = _address(cluster, namespace, host.split("."))
            host = known[host]
        return original(host, *rest, **more)

    socket.getaddrinfo = resolve
    try:
        yield
    finally:
        socket.getaddrinfo = original


def _address(cluster: Cluster, namespace: str, parts: list[str]) -> str:
    if len(parts) == 4:
        found = cluster.get("pod", parts[0], namespace)
        address = (found or {}).get("status", {}).get("podIP")
    else:
        found = cluster.get("service", parts[0], namespace)
        address = (found or {}).get("spec", {}).get("clusterIP")
    if not address:
        raise socket.gaierror(socket.EAI_NONAME, f"{parts[0]} has no address now")
    return str(address)


def bootstrap(cluster: Cluster, namespace: str, name: str = "main") -> str:
    found = cluster.get("logcluster", name, namespace)
    assert found is not None
    return str(found["status"]["bootstrapServers"]["internal"])


@left_sockets()
def produce(
    cluster: Cluster, namespace: str, topic: str, values: list[str], acks: int | str = "all"
) -> None:
    """Write and wait until everything is acknowledged, by all replicas or by leaders alone (1)."""
    with cluster_names(cluster, namespace):
        producer = KafkaProducer(
            bootstrap_servers=bootstrap(cluster, namespace),
            acks=acks,
            enable_idempotence=False,
            reconnect_backoff_max_ms=RECONNECT_MS_MAX,
        )
        sent = [producer.send(topic, json.dumps(value).encode()) for value in values]
        for future in sent:
            future.get(timeout=60)
        producer.close(timeout=10)


@left_sockets()
def consume(cluster: Cluster, namespace: str, topic: str, partitions: int) -> list[str]:
    """Everything from the beginning to the present end of every partition."""
    with cluster_names(cluster, namespace):
        consumer = KafkaConsumer(
            bootstrap_servers=bootstrap(cluster, namespace),
            enable_auto_commit=False,
            reconnect_backoff_max_ms=RECONNECT_MS_MAX,
        )
        wanted = [TopicPartition(topic, index) for index in range(partitions)]
        consumer.assign(wanted)
        ends = consumer.end_offsets(wanted)
        consumer.seek_to_beginning(*wanted)
        found: list[str] = []
        for _ in range(200):
            if all(consumer.position(p) >= ends[p] for p in wanted):
                break
            for records in consumer.poll(timeout_ms=500).values():
                found += [json.loads(record.value) for record in records]
        consumer.close()
    return sorted(found)


@left_sockets()
def write_during(
    cluster: Cluster, namespace: str, topic: str, *, partitions: int, seconds: float, mishap: Mishap
) -> float:
    """One record a time to each partition while `mishap` lasts; the slowest ack in milliseconds."""
    worst_ms = 0.0
    with cluster_names(cluster, namespace):
        producer = KafkaProducer(
            bootstrap_servers=bootstrap(cluster, namespace),
            acks="all",
            enable_idempotence=False,
            reconnect_backoff_max_ms=RECONNECT_MS_MAX,
        )
        write_round(producer, topic, partitions)
        with mishap(cluster):
            ends = time.monotonic() + seconds
            while time.monotonic() < ends:
                worst_ms = max(worst_ms, write_round(producer, topic, partitions))
                time.sleep(ROUNDS_APART_S)
        producer.close(timeout=10)
    return worst_ms


def write_round(producer: KafkaProducer, topic: str, partitions: int) -> float:
    """One record to each partition; milliseconds until all are acknowledged."""
    began = time.monotonic()
    sent = [producer.send(topic, b"x", partition=index) for index in range(partitions)]
    for future in sent:
        future.get(timeout=60)
    return 1000 * (time.monotonic() - began)
