"""Kafka's own tools and quotas: what kafka-configs prints of them is what it prints of Apache
Kafka, and kafka-producer-perf-test is held to its rate."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator

import pytest
from tests.conformance.apache_kafka import ApacheKafka
from tests.conformance.kafka_jars import KafkaJars, kafka_jars
from tests.conformance.test_topic_admin import run
from tests.integration.local_cluster import LocalCluster

RATE = 200_000
"""Bytes a second."""
RECORD_BYTES = 1_000
LENT_WINDOWS = 2
"""Of five seconds, in which perf-test prints: what is lent is used up."""
MEASURED_WINDOWS = 4
"""It sends much in one and little in the next: Kafka's window has eleven seconds."""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    with LocalCluster(tmp_path_factory.mktemp("quotas") / "data", brokers=1) as local:
        local.create_topic("measured", 1)
        yield local


@pytest.fixture(scope="module")
def apache_kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApacheKafka]:
    with ApacheKafka(tmp_path_factory.mktemp("kafka")) as found:
        yield found


@pytest.fixture(scope="module")
def tools() -> KafkaJars:
    return kafka_jars()


ALICE = ("--entity-type", "users", "--entity-name", "alice")
APP = ("--entity-type", "clients", "--entity-name", "app")
EVERY_USER = ("--entity-type", "users", "--entity-default")
AN_ADDRESS = ("--entity-type", "ips", "--entity-name", "10.0.0.1")
EVERY_ADDRESS = ("--entity-type", "ips", "--entity-default")
OF_CLIENTS = "producer_byte_rate=1024,consumer_byte_rate=2048,request_percentage=12.5"
CLIENTS = [
    ("--alter", *ALICE, "--add-config", OF_CLIENTS),
    ("--alter", *ALICE, *APP, "--add-config", "controller_mutation_rate=5"),
    ("--alter", *EVERY_USER, "--add-config", "producer_byte_rate=4096"),
    ("--describe", "--entity-type", "users"),
    ("--alter", *ALICE, "--delete-config", "consumer_byte_rate"),
    ("--describe", *ALICE),
    ("--describe", *ALICE, *APP),
]
ADDRESSES = [
    ("--alter", *AN_ADDRESS, "--add-config", "connection_creation_rate=100"),
    ("--alter", *EVERY_ADDRESS, "--add-config", "connection_creation_rate=50"),
    ("--alter", *EVERY_ADDRESS, "--delete-config", "connection_creation_rate"),
    ("--describe", "--entity-type", "ips"),
]


def comparable(printed: str) -> list[list[str]]:
    """Lines and values in one order: both are those of a hash map."""
    return sorted(sorted(re.split(r", | are ", line)) for line in printed.splitlines())


@pytest.mark.timeout(600)
@pytest.mark.client("Java 4.1", "topics and configs", both=True)
@pytest.mark.parametrize("commands", [CLIENTS, ADDRESSES], ids=["clients", "addresses"])
def test_kafka_configs_reports_quotas_like_kafka(
    cluster: LocalCluster,
    apache_kafka: ApacheKafka,
    tools: KafkaJars,
    commands: list[tuple[str, ...]],
) -> None:
    for words in commands:
        ours = run(tools, cluster.bootstrap, tools.configs, *words)
        theirs = run(tools, apache_kafka.bootstrap, tools.configs, *words)
        assert comparable(ours) == comparable(theirs), words
        assert "Error" not in ours, words


@pytest.mark.long
@pytest.mark.timeout(300)
@pytest.mark.client("Java 4.1", "writes and reads")
def test_kafka_producer_perf_test_keeps_its_rate(cluster: LocalCluster, tools: KafkaJars) -> None:
    named = (*EVERY_USER, "--entity-type", "clients", "--entity-name", "perf")
    run(
        tools,
        cluster.bootstrap,
        tools.configs,
        *("--alter", *named, "--add-config", f"producer_byte_rate={RATE}"),
    )
    seconds = 5 * (LENT_WINDOWS + MEASURED_WINDOWS + 1)
    records = int(RATE * (seconds + 10) / RECORD_BYTES)
    command = tools.command(
        "org.apache.kafka.tools.ProducerPerformance",
        *("--topic", "measured", "--num-records", str(records)),
        *("--record-size", str(RECORD_BYTES), "--throughput", "-1", "--producer-props"),
        *(f"bootstrap.servers={cluster.bootstrap}", "client.id=perf", "buffer.memory=1000000"),
    )
    done = subprocess.run(command, check=True, capture_output=True, text=True, timeout=240)
    windows = re.findall(r"records sent, ([\d.]+) records/sec", done.stdout)
    measured = [float(one) for one in windows[LENT_WINDOWS:][:MEASURED_WINDOWS]]
    assert len(measured) == MEASURED_WINDOWS, done.stdout
    rate = sum(measured) / len(measured) * RECORD_BYTES
    assert 0.8 * RATE < rate < 1.2 * RATE, done.stdout
