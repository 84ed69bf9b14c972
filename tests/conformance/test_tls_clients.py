"""Unmodified clients over TLS: what they write is read back, in each version of TLS that they
speak."""

from __future__ import annotations

import asyncio
import ssl
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from confluent_kafka.admin import AdminClient, NewTopic
from tests.conformance.kafka_jars import KafkaJars
from tests.integration.listening import declared, free_ports, tls_client
from tests.integration.local_cluster import LocalCluster, consume_all, produce

from plimsoll_operator.pki.authority import new_authority

TOPIC, PARTITIONS = "t", 3
TIMEOUT_S = 120


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    place = tmp_path_factory.mktemp("tls")
    (port,) = free_ports(1)
    file = declared(place / "c.yaml", [{"name": "tls", "port": port, "tls": {}}], brokers=2)
    with LocalCluster(place / "cluster", brokers=None, files=(file,)) as running:
        servers = {"bootstrap.servers": running.ready["bootstrap"], **tls_client(running)}
        admin = AdminClient(servers)
        admin.create_topics([NewTopic(TOPIC, PARTITIONS)])[TOPIC].result(TIMEOUT_S)
        produce(running.ready["bootstrap"], TOPIC, [b"first"], **tls_client(running))
        yield running


def failed_handshakes(running: LocalCluster) -> int:
    """That the brokers have counted."""
    name = 'connections_closed_total{listener="tls",reason="handshake-failed"}'
    lines = [line for b in range(2) for line in running.http(b, "/metrics")[1].splitlines()]
    return int(sum(float(line.split()[-1]) for line in lines if name in line))


@pytest.fixture
def java_config(secured: LocalCluster, tmp_path: Path) -> Path:
    """As an application's file has it: PEM, and no store of Java's own."""
    path = tmp_path / "client.properties"
    path.write_text(
        "security.protocol=SSL\nssl.truststore.type=PEM\n"
        f"ssl.truststore.location={secured.ready['authority']}\n"
    )
    return path


@pytest.mark.client("Java {jars}", "TLS")
@pytest.mark.parametrize("version", ["TLSv1.2", "TLSv1.3"])
def test_kafkas_own_console_tools_write_and_read_over_tls(
    secured: LocalCluster, java_config: Path, jars: KafkaJars, version: str
) -> None:
    with java_config.open("a") as file:
        file.write(f"ssl.enabled.protocols={version}\nssl.protocol={version}\n")
    servers = ("--bootstrap-server", secured.ready["bootstrap"], "--topic", TOPIC)
    sent = {f"java {jars.version} {version} {number}" for number in range(300)}
    producer = jars.command(jars.console_producer, *servers, "--producer.config", str(java_config))
    lines = "".join(f"{line}\n" for line in sent).encode()
    subprocess.run(producer, input=lines, capture_output=True, timeout=TIMEOUT_S, check=True)
    found = consume_all(secured.ready["bootstrap"], TOPIC, PARTITIONS, **tls_client(secured))
    there = len(found)
    consumer = jars.command(
        jars.console_consumer,
        # It ends with the last one; the time is for a machine that has much else to do.
        *(*servers, "--from-beginning", "--max-messages", str(there), "--timeout-ms", "90000"),
        *("--consumer.config", str(java_config)),
    )
    done = subprocess.run(consumer, capture_output=True, timeout=TIMEOUT_S, check=False)
    assert sent <= set(done.stdout.decode().splitlines()), done.stderr.decode()[-2000:]


@pytest.mark.client("Java {jars}", "TLS")
def test_java_client_that_trusts_another_authority_writes_nothing(
    secured: LocalCluster, java_config: Path, jars: KafkaJars, tmp_path: Path
) -> None:
    other = tmp_path / "other.crt"
    other.write_bytes(new_authority("other", 1_800_000_000_000).certificate)
    text = java_config.read_text().replace(secured.ready["authority"], str(other))
    java_config.write_text(text + "max.block.ms=3000\n")
    servers = ("--bootstrap-server", secured.ready["bootstrap"], "--topic", TOPIC)
    producer = jars.command(jars.console_producer, *servers, "--producer.config", str(java_config))
    before = failed_handshakes(secured)
    subprocess.run(
        producer, input=b"never written\n", capture_output=True, timeout=TIMEOUT_S, check=False
    )
    assert failed_handshakes(secured) > before
    found = consume_all(secured.ready["bootstrap"], TOPIC, PARTITIONS, **tls_client(secured))
    assert b"never written" not in found


@pytest.mark.client("aiokafka", "TLS")
async def test_aiokafka_writes_and_reads_over_tls(secured: LocalCluster) -> None:
    context = ssl.create_default_context(cafile=secured.ready["authority"])
    config = {
        "bootstrap_servers": secured.ready["bootstrap"],
        "security_protocol": "SSL",
        "ssl_context": context,
    }
    sent = {b"aiokafka %d" % number for number in range(200)}
    async with AIOKafkaProducer(acks="all", enable_idempotence=True, **config) as producer:
        await asyncio.gather(*[producer.send_and_wait(TOPIC, value) for value in sent])
    read: set[bytes | None] = set()
    async with AIOKafkaConsumer(TOPIC, auto_offset_reset="earliest", **config) as consumer:
        async with asyncio.timeout(TIMEOUT_S):
            while not sent <= read:
                read.add((await consumer.getone()).value)
