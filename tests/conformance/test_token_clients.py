"""Unmodified clients log in with a ServiceAccount's token over TLS, and renew their sessions."""

from __future__ import annotations

import asyncio
import os
import ssl
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.abc import AbstractTokenProvider
from confluent_kafka.admin import AdminClient, NewTopic
from kafka import KafkaConsumer, KafkaProducer
from kafka.net.sasl.oauth import AbstractTokenProvider as KafkaPythonTokenProvider
from tests.conformance.kafka_jars import KafkaJars
from tests.integration.declared import log_cluster
from tests.integration.listening import CORE, asked, free_ports
from tests.integration.local_cluster import LocalCluster, consume_all
from tests.integration.test_tokens import account_token, an_object, client, counted
from tests.kafka_python import left_sockets

TOPIC = "t"
TIMEOUT_S = 120
REAUTH_S = 3
"""A session; each of the clients below lives for more than two."""


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    place = tmp_path_factory.mktemp("token-clients")
    (port,) = free_ports(1)
    listener = {
        "name": "pods",
        "port": port,
        "tls": {},
        "authentication": ["ServiceAccount"],
        "limits": {"reauthSeconds": REAUTH_S},
    }
    file = place / "cluster.yaml"
    config = {"offsets.topic.num.partitions": 1, "group.initial.rebalance.delay.ms": 0}
    file.write_text(log_cluster(1, listeners=[listener], config=config))
    with LocalCluster(place / "cluster", brokers=None, files=(file,)) as running:
        asked(running, "POST", f"{CORE}/serviceaccounts", an_object("ServiceAccount", "app"))
        admin = AdminClient(client(running, lambda: account_token(running, "app")))
        admin.create_topics([NewTopic(TOPIC, 1, 1)])[TOPIC].result(TIMEOUT_S)
        yield running


@pytest.fixture
def token_file(secured: LocalCluster, tmp_path: Path) -> Path:
    """What the kubelet mounts."""
    path = tmp_path / "token"
    path.write_text(account_token(secured, "app"))
    return path


def slowly(lines: set[str], into: subprocess.Popen[bytes]) -> None:
    """For longer than two sessions."""
    assert into.stdin is not None
    for line in sorted(lines):
        into.stdin.write(f"{line}\n".encode())
        into.stdin.flush()
        time.sleep(2.5 * REAUTH_S / len(lines))  # the load, not a wait for something
    into.stdin.close()


@pytest.mark.client("Java {jars}", "OAUTHBEARER")
def test_kafka_console_tools_renew_token_sessions(
    secured: LocalCluster, token_file: Path, jars: KafkaJars, tmp_path: Path
) -> None:
    package = "org.apache.kafka.common.security.oauthbearer"
    handler = f"{package}.OAuthBearerLoginCallbackHandler"
    if jars.version.startswith("3."):
        handler = f"{package}.secured.OAuthBearerLoginCallbackHandler"
    url = token_file.as_uri()
    config = tmp_path / "client.properties"
    config.write_text(
        "security.protocol=SASL_SSL\nssl.truststore.type=PEM\n"
        f"ssl.truststore.location={secured.ready['authority']}\n"
        f"sasl.mechanism=OAUTHBEARER\nsasl.login.callback.handler.class={handler}\n"
        f"sasl.oauthbearer.token.endpoint.url={url}\n"
        f"sasl.jaas.config={package}.OAuthBearerLoginModule required;\n"
    )
    option = f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls={url}"
    environment = {**os.environ, "JAVA_TOOL_OPTIONS": option}
    servers = ("--bootstrap-server", secured.ready["bootstrap"], "--topic", TOPIC)
    before = counted(secured, "logins_total")
    sent = {f"java {jars.version} {number}" for number in range(60)}
    command = jars.command(jars.console_producer, *servers, "--producer.config", str(config))
    with subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        env=environment,
    ) as producer:
        slowly(sent, producer)
        assert producer.stderr is not None
        said = producer.stderr.read().decode()
    assert producer.returncode == 0, said[-2000:]
    # One for the bootstrap's connection, one for the leader's, and this one's renewals.
    assert counted(secured, "logins_total") >= before + 4, said[-2000:]
    own = client(secured, lambda: account_token(secured, "app"))
    there = sum(map(len, consume_all(own.pop("bootstrap.servers"), TOPIC, 1, **own).values()))
    consumer = jars.command(
        jars.console_consumer,
        # It ends with the last one; the time is for a machine that has much else to do.
        *(*servers, "--from-beginning", "--max-messages", str(there), "--timeout-ms", "90000"),
        *("--consumer.config", str(config)),
    )
    done = subprocess.run(
        consumer, capture_output=True, timeout=TIMEOUT_S, check=False, env=environment
    )
    assert sent <= set(done.stdout.decode().splitlines()), done.stderr.decode()[-2000:]


@pytest.mark.client("aiokafka", "OAUTHBEARER")
async def test_aiokafka_reauthenticates_with_a_token(
    secured: LocalCluster,
) -> None:
    class Tokens(AbstractTokenProvider):
        async def token(self) -> str:
            return await asyncio.to_thread(account_token, secured, "app")

    config = {
        "bootstrap_servers": secured.ready["bootstrap"],
        "security_protocol": "SASL_SSL",
        "sasl_mechanism": "OAUTHBEARER",
        "sasl_oauth_token_provider": Tokens(),
        "ssl_context": ssl.create_default_context(cafile=secured.ready["authority"]),
    }
    sent = {b"aiokafka %d" % number for number in range(40)}
    async with AIOKafkaProducer(acks="all", enable_idempotence=True, **config) as producer:
        for value in sorted(sent):
            await producer.send_and_wait(TOPIC, value)
            await asyncio.sleep(2 * REAUTH_S / len(sent))
    read: set[bytes | None] = set()
    async with AIOKafkaConsumer(TOPIC, auto_offset_reset="earliest", **config) as consumer:
        async with asyncio.timeout(TIMEOUT_S):
            while not sent <= read:
                read.add((await consumer.getone()).value)


@pytest.mark.client("kafka-python", "OAUTHBEARER")
@left_sockets()
def test_kafka_python_renews_its_token_session(secured: LocalCluster) -> None:
    class Tokens(KafkaPythonTokenProvider):
        def token(self) -> str:
            return account_token(secured, "app")

    config = {
        "bootstrap_servers": secured.ready["bootstrap"],
        "security_protocol": "SASL_SSL",
        "ssl_cafile": secured.ready["authority"],
        "ssl_check_hostname": False,
        "sasl_mechanism": "OAUTHBEARER",
        "sasl_oauth_token_provider": Tokens(),
    }
    sent = {b"kafka-python %d" % number for number in range(40)}
    producer = KafkaProducer(acks="all", **config)
    for value in sorted(sent):
        producer.send(TOPIC, value).get(TIMEOUT_S)
        time.sleep(2 * REAUTH_S / len(sent))
    producer.close()
    consumer = KafkaConsumer(
        TOPIC, auto_offset_reset="earliest", consumer_timeout_ms=TIMEOUT_S * 1000, **config
    )
    read: set[bytes] = set()
    for record in consumer:
        read.add(record.value)
        if sent <= read:
            break
    consumer.close()
    assert sent <= read
