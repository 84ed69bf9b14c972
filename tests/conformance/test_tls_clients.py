"""Unmodified clients over TLS: what they write is read back, in each version of TLS that they
speak; with a certificate, they are its user, for as long as that may log in."""

from __future__ import annotations

import asyncio
import json
import socket
import ssl
import struct
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, NewTopic
from kafka import KafkaConsumer, KafkaProducer
from tests.conformance import go_suites
from tests.conformance.kafka_jars import KafkaJars
from tests.integration.listening import asked, declared, free_ports, tls_client
from tests.integration.local_cluster import LocalCluster, consume_all, produce, wait_for
from tests.kafka_python import left_sockets

from plimsoll_operator.pki.authority import new_authority
from plimsoll_wire.api_versions import ApiKey
from plimsoll_wire.headers import request_frame
from plimsoll_wire.messages import encode_request

TOPIC, PARTITIONS = "t", 3
CERTIFIED = {
    "apiVersion": "plimsoll.dev/v1alpha1",
    "kind": "User",
    "metadata": {"name": "certified"},
    "spec": {
        "clusterRef": {"name": "main"},
        "authentication": {"tls": {}},
        "acls": [
            {"resource": {"type": "Topic", "name": TOPIC}, "operations": ["Read", "Write"]},
            {"resource": {"type": "Group", "name": "*"}, "operations": ["Read"]},
        ],
    },
}
USER = "/apis/plimsoll.dev/v1alpha1/namespaces/default/users/certified"
VERSIONS = (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3)
JAVA_VERSIONS = (pytest.param("TLSv1.2", marks=pytest.mark.long), "TLSv1.3")
TIMEOUT_S = 120


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    place = tmp_path_factory.mktemp("tls")
    ports = free_ports(2)
    listeners: list[dict[str, Any]] = [
        {"name": "tls", "port": ports[0], "tls": {}},
        {"name": "usercert", "port": ports[1], "tls": {}, "authentication": ["Tls"]},
    ]
    access = {"mode": "Enforce", "superUsers": ["User:ANONYMOUS"]}
    file = declared(place / "c.yaml", listeners, brokers=2, authorization=access)
    file.write_text(f"{file.read_text()}\n---\n{json.dumps(CERTIFIED)}")
    with LocalCluster(place / "cluster", brokers=None, files=(file,)) as running:
        servers = {"bootstrap.servers": running.ready["bootstrap"], **tls_client(running)}
        admin = AdminClient(servers)
        admin.create_topics([NewTopic(TOPIC, PARTITIONS)])[TOPIC].result(TIMEOUT_S)
        produce(running.ready["bootstrap"], TOPIC, [b"first"], **tls_client(running))
        wait_for("the user's certificate", (place / "cluster/users/certified/tls.key").exists)
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


def write_and_read(
    secured: LocalCluster, jars: KafkaJars, bootstrap: str, config: Path, sent: set[str]
) -> None:
    """Lines, by Kafka's own console tools; what is there besides is read, too."""
    servers = ("--bootstrap-server", bootstrap, "--topic", TOPIC)
    producer = jars.command(jars.console_producer, *servers, "--producer.config", str(config))
    lines = "".join(f"{line}\n" for line in sent).encode()
    subprocess.run(producer, input=lines, capture_output=True, timeout=TIMEOUT_S, check=True)
    there = len(consume_all(secured.ready["bootstrap"], TOPIC, PARTITIONS, **tls_client(secured)))
    consumer = jars.command(
        jars.console_consumer,
        # It ends with the last one; the time is for a machine that has much else to do.
        *(*servers, "--from-beginning", "--max-messages", str(there), "--timeout-ms", "90000"),
        *("--consumer.config", str(config)),
    )
    done = subprocess.run(consumer, capture_output=True, timeout=TIMEOUT_S, check=False)
    assert sent <= set(done.stdout.decode().splitlines()), done.stderr.decode()[-2000:]


@pytest.mark.client("Java {jars}", "TLS")
@pytest.mark.parametrize("version", JAVA_VERSIONS)
def test_kafka_console_tools_round_trip_over_tls(
    secured: LocalCluster, java_config: Path, jars: KafkaJars, version: str
) -> None:
    with java_config.open("a") as file:
        file.write(f"ssl.enabled.protocols={version}\nssl.protocol={version}\n")
    sent = {f"java {jars.version} {version} {number}" for number in range(300)}
    write_and_read(secured, jars, secured.ready["bootstrap"], java_config, sent)


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


# --- certificates as logins ----------------------------------------------------------------------


def files_of(running: LocalCluster) -> Path:
    """The user's, as they are written for clients on this machine."""
    return running.directory / "users" / "certified"


def certified(running: LocalCluster) -> dict[str, Any]:
    """What librdkafka's file says."""
    lines = (files_of(running) / "librdkafka.conf").read_text().splitlines()
    return dict(line.split("=", 1) for line in lines)


def context_of(running: LocalCluster, version: ssl.TLSVersion) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=files_of(running) / "ca.crt")
    context.minimum_version = context.maximum_version = version
    context.load_cert_chain(files_of(running) / "tls.crt", files_of(running) / "tls.key")
    return context


@contextmanager
def open_connection(running: LocalCluster) -> Iterator[ssl.SSLSocket]:
    """The user's, let in: a broker has answered it."""
    server = certified(running)["bootstrap.servers"].split(",")[0]
    host, _, port = server.rpartition(":")
    context = context_of(running, ssl.TLSVersion.TLSv1_3)
    with (
        socket.create_connection((host, int(port)), timeout=TIMEOUT_S) as plain,
        context.wrap_socket(plain, server_hostname=host) as connection,
    ):
        asked_for = {"topics": [{"name": TOPIC}]}
        body = encode_request(ApiKey.METADATA, 1, asked_for)
        connection.sendall(request_frame(ApiKey.METADATA, 1, 1, "open", body))
        (size,) = struct.unpack(">i", connection.recv(4))
        reply = bytearray()
        while len(reply) < size:
            reply += connection.recv(size - len(reply))
        yield connection


@pytest.mark.client("Java {jars}", "client certificates")
@pytest.mark.parametrize("version", JAVA_VERSIONS)
def test_kafkas_own_console_tools_are_their_certificates_user(
    secured: LocalCluster, tmp_path: Path, jars: KafkaJars, version: str
) -> None:
    config = tmp_path / "client.properties"
    ready_made = (files_of(secured) / "java.properties").read_text()
    config.write_text(f"{ready_made}ssl.enabled.protocols={version}\nssl.protocol={version}\n")
    sent = {f"certified java {jars.version} {version} {number}" for number in range(100)}
    write_and_read(secured, jars, certified(secured)["bootstrap.servers"], config, sent)


@pytest.mark.client("kcat", "client certificates")
def test_kcat_is_its_certificates_user(secured: LocalCluster) -> None:
    base = ["kcat", "-F", str(files_of(secured) / "librdkafka.conf")]
    command = [*base, "-P", "-t", TOPIC]
    subprocess.run(command, input=b"certified kcat\n", timeout=TIMEOUT_S, check=True)
    reading = [*base, "-C", "-t", TOPIC, "-o", "beginning", "-e", "-q"]
    done = subprocess.run(reading, capture_output=True, timeout=TIMEOUT_S, check=True)
    assert b"certified kcat" in done.stdout.splitlines()
    listed = subprocess.run([*base, "-L"], capture_output=True, timeout=TIMEOUT_S, check=True)
    assert b'topic "t"' in listed.stdout
    assert b"1 topics" in listed.stdout, "it is told of what its rules name"


@pytest.mark.client("aiokafka", "client certificates")
@pytest.mark.parametrize("version", VERSIONS)
async def test_aiokafka_is_its_certificates_user(
    secured: LocalCluster, version: ssl.TLSVersion
) -> None:
    config = {
        "bootstrap_servers": certified(secured)["bootstrap.servers"],
        "security_protocol": "SSL",
        "ssl_context": context_of(secured, version),
    }
    sent = b"certified aiokafka %d" % version
    async with AIOKafkaProducer(acks="all", **config) as producer:
        await producer.send_and_wait(TOPIC, sent)
    async with AIOKafkaConsumer(TOPIC, auto_offset_reset="earliest", **config) as consumer:
        async with asyncio.timeout(TIMEOUT_S):
            while (await consumer.getone()).value != sent:
                pass


@pytest.mark.client("kafka-python", "client certificates")
@pytest.mark.parametrize("version", VERSIONS)
@left_sockets()
def test_kafka_python_is_its_certificates_user(
    secured: LocalCluster, version: ssl.TLSVersion
) -> None:
    config = {
        "bootstrap_servers": certified(secured)["bootstrap.servers"],
        "security_protocol": "SSL",
        "ssl_context": context_of(secured, version),
    }
    sent = b"certified python %d" % version
    producer = KafkaProducer(**config)
    producer.send(TOPIC, sent).get(TIMEOUT_S)
    producer.close()
    more = {"auto_offset_reset": "earliest", "consumer_timeout_ms": 30_000}
    consumer = KafkaConsumer(TOPIC, **config, **more)
    try:
        assert any(record.value == sent for record in consumer)
    finally:
        consumer.close()


@pytest.mark.long
@pytest.mark.client("sarama", "TLS")
@pytest.mark.client("sarama", "client certificates")
@pytest.mark.parametrize("version", ["1.2", "1.3"])
def test_sarama_authenticates_by_certificate_over_tls(secured: LocalCluster, version: str) -> None:
    files, client = files_of(secured), str(go_suites.sarama_client())
    options = ("-topic", TOPIC, "-ca", str(files / "ca.crt"), "-tls", version)
    shows = ("-cert", str(files / "tls.crt"), "-key", str(files / "tls.key"))
    certified_at = certified(secured)["bootstrap.servers"]
    ways = {"anonymous": (secured.ready["bootstrap"], ()), "certified": (certified_at, shows)}
    for way, (servers, shown) in ways.items():
        words = [client, "-servers", servers, *options, *shown]
        sent = {f"{way} sarama {version} {number}" for number in range(100)}
        lines = "".join(f"{line}\n" for line in sent).encode()
        subprocess.run(words, input=lines, capture_output=True, timeout=TIMEOUT_S, check=True)
        there = len(
            consume_all(secured.ready["bootstrap"], TOPIC, PARTITIONS, **tls_client(secured))
        )
        reading = [*words, "-read", str(there)]
        done = subprocess.run(reading, capture_output=True, timeout=TIMEOUT_S, check=False)
        assert sent <= set(done.stdout.decode().splitlines()), done.stderr.decode()[-2000:]
    nobody = [client, "-servers", certified_at, *options]
    refused = subprocess.run(
        nobody, input=b"never written\n", capture_output=True, timeout=TIMEOUT_S, check=False
    )
    assert refused.returncode != 0, "it shows no certificate"


@pytest.mark.client("confluent-kafka", "client certificates")
def test_disabled_certificate_user_is_disconnected_and_refused(
    secured: LocalCluster,
) -> None:
    def cut_off() -> float:
        return sum(secured.metric(broker, "sessions_cut_off_total") for broker in range(2))

    assert TOPIC in AdminClient(certified(secured)).list_topics(timeout=TIMEOUT_S).topics
    # One that is open for certain: librdkafka closes and makes its own as it likes.
    with open_connection(secured) as connection:
        before = cut_off()
        asked(secured, "PATCH", USER, {"spec": {"disabled": True}})
        with suppress(ConnectionResetError):
            assert connection.recv(1) == b"", "it ends, and nothing is answered"
    wait_for("it is counted", lambda: cut_off() > before)
    with pytest.raises(KafkaException):
        AdminClient(certified(secured)).list_topics(timeout=3)
    asked(secured, "PATCH", USER, {"spec": {"disabled": False}})
    found = AdminClient(certified(secured)).list_topics(timeout=TIMEOUT_S)
    assert TOPIC in found.topics


def test_without_the_users_certificate_nobody_is_answered(secured: LocalCluster) -> None:
    config = certified(secured)
    del config["ssl.certificate.location"], config["ssl.key.location"]
    with pytest.raises(KafkaException):
        AdminClient(config).list_topics(timeout=3)
