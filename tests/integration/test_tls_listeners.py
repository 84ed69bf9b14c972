"""Declared listeners on real processes: several at a time, with TLS, changed while clients run."""

from __future__ import annotations

import base64
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest
from confluent_kafka.admin import AdminClient
from kafka import KafkaConsumer, KafkaProducer
from tests.integration.listening import (
    CLUSTER,
    CORE,
    HOST,
    Load,
    asked,
    declared,
    encoded,
    free_ports,
    shown_certificate,
    tls_client,
    touch,
)
from tests.integration.local_cluster import (
    LocalCluster,
    assert_nothing_lost,
    consume_all,
    produce,
    wait_for,
)
from tests.kafka_python import left_sockets

from plimsoll_operator.api.labels import ROTATE_LISTENERS
from plimsoll_operator.pki.authority import issue, new_authority
from plimsoll_operator.pki.rotation import AGAIN_MS

TOPIC = "t"
PARTITIONS = 3


@pytest.fixture(scope="module")
def ports() -> list[int]:
    return free_ports(3)


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory, ports: list[int]) -> Iterator[LocalCluster]:
    """Three brokers, a plaintext listener and one with TLS."""
    place = tmp_path_factory.mktemp("tls")
    file = declared(
        place / "cluster.yaml",
        [{"name": "internal", "port": ports[0]}, {"name": "tls", "port": ports[1], "tls": {}}],
    )
    with LocalCluster(place / "cluster", brokers=None, files=(file,)) as running:
        running.create_topic(TOPIC, partitions=PARTITIONS)
        running.wait_isr(TOPIC, 3)
        yield running


def bootstrap(cluster: LocalCluster, name: str = "tls") -> str:
    found: str = cluster.ready["listeners"][name]
    return found


def first_port(cluster: LocalCluster, name: str = "tls") -> int:
    return int(bootstrap(cluster, name).partition(",")[0].rpartition(":")[2])


def shown_brokers(servers: str, **config: str) -> set[tuple[str, int]]:
    """The addresses that clients of a listener are told."""
    admin = AdminClient({"bootstrap.servers": servers, **config})
    brokers = admin.list_topics(timeout=15).brokers.values()
    return {(broker.host, broker.port) for broker in brokers}


def authorities(cluster: LocalCluster) -> str:
    shown = asked(cluster, "GET", f"{CORE}/configmaps/main-listener-ca")
    found: str = shown["data"]["ca.crt"]
    return found


# --- clients --------------------------------------------------------------------------------------


def test_clients_learn_their_own_listeners_endpoints(secured: LocalCluster) -> None:
    for name, config in (("internal", {}), ("tls", tls_client(secured))):
        expected = {
            (host, int(port))
            for host, _, port in (one.partition(":") for one in bootstrap(secured, name).split(","))
        }
        assert len(expected) == 3
        wait_for(
            f"all brokers on listener {name}",
            lambda name=name, config=config, expected=expected: (
                shown_brokers(bootstrap(secured, name), **config) == expected
            ),
        )


def test_librdkafka_writes_and_reads_over_tls(secured: LocalCluster) -> None:
    values = [b"librdkafka %d" % number for number in range(2_000)]
    acked = produce(bootstrap(secured), TOPIC, values, **tls_client(secured))
    found = consume_all(bootstrap(secured), TOPIC, PARTITIONS, **tls_client(secured))
    assert not acked.errors
    assert_nothing_lost(acked, found)


def test_kcat_writes_and_reads_over_tls(secured: LocalCluster) -> None:
    config = [f"-X{key}={value}" for key, value in tls_client(secured).items()]
    command = ["kcat", "-b", bootstrap(secured), *config, "-t", TOPIC]
    sent = "\n".join(f"kcat {number}" for number in range(500))
    subprocess.run([*command, "-P"], input=sent.encode(), timeout=60, check=True)
    read = subprocess.run([*command, "-C", "-e", "-q"], capture_output=True, timeout=60, check=True)
    assert set(sent.splitlines()) <= set(read.stdout.decode().splitlines())


@left_sockets()
def test_kafka_python_writes_and_reads_over_tls(secured: LocalCluster) -> None:
    config: dict[str, Any] = {
        "bootstrap_servers": bootstrap(secured).split(","),
        "security_protocol": "SSL",
        "ssl_cafile": secured.ready["authority"],
    }
    producer = KafkaProducer(acks="all", **config)
    sent = {b"kafka-python %d" % number for number in range(200)}
    for future in [producer.send(TOPIC, value) for value in sent]:
        future.get(timeout=60)
    producer.close()
    consumer = KafkaConsumer(
        TOPIC, auto_offset_reset="earliest", consumer_timeout_ms=10_000, **config
    )
    read = set()
    for message in consumer:
        read.add(message.value)
        if sent <= read:
            break
    consumer.close()
    assert sent <= read


def test_client_without_authority_or_tls_gets_nothing(secured: LocalCluster) -> None:
    stranger = new_authority("stranger", time.time_ns() // 1_000_000).certificate.decode()
    for config in (
        {"security.protocol": "SSL", "ssl.ca.pem": stranger},
        {"security.protocol": "PLAINTEXT"},
    ):
        admin = AdminClient({"bootstrap.servers": bootstrap(secured), **config})
        with pytest.raises(confluent_kafka.KafkaException):
            admin.list_topics(timeout=3)
    assert shown_brokers(bootstrap(secured), **tls_client(secured))


def test_keys_are_readable_by_their_user_alone(secured: LocalCluster) -> None:
    pki = Path(secured.ready["authority"]).parent
    assert pki.stat().st_mode & 0o077 == 0
    keys = list(pki.rglob("*.key"))
    assert len(keys) == 3
    for path in (*keys, secured.directory / "objects.json"):
        assert path.stat().st_mode & 0o077 == 0, path


# --- changes while it runs ------------------------------------------------------------------------


def test_listener_opens_and_closes_under_load(secured: LocalCluster, ports: list[int]) -> None:
    pids = dict(secured.ready["pids"])
    listeners = asked(secured, "GET", CLUSTER)["spec"]["listeners"]
    servers = f"127.0.0.1:{ports[2]}"
    trusted = tls_client(secured)
    with Load(bootstrap(secured), **trusted) as load:
        load.goes_on()
        added = [*listeners, {"name": "more", "port": ports[2], "tls": {"minVersion": "1.3"}}]
        asked(secured, "PATCH", CLUSTER, {"spec": {"listeners": added}})

        def opened() -> bool:
            try:
                return len(shown_brokers(servers, **trusted)) == 3
            except confluent_kafka.KafkaException:
                return False

        wait_for("the new listener on every broker", opened, 60, 0.5)
        acked = produce(servers, TOPIC, [b"more %d" % n for n in range(100)], **trusted)
        assert len(acked.records) == 100
        load.goes_on()
        asked(secured, "PATCH", CLUSTER, {"spec": {"listeners": listeners}})

        def closed() -> bool:
            try:
                shown_certificate(ports[2], authorities(secured))
            except ConnectionRefusedError:
                return True
            except OSError:
                return False  # it closes this very moment
            return False

        wait_for("the listener is closed", closed, 30, 0.2)
        load.goes_on()
    assert not load.acked.errors
    assert dict(secured.ready["pids"]) == pids
    found = consume_all(bootstrap(secured, "internal"), TOPIC, PARTITIONS)
    assert_nothing_lost(load.acked, found)


def ready_condition(cluster: LocalCluster) -> dict[str, Any]:
    conditions = asked(cluster, "GET", CLUSTER)["status"]["conditions"]
    return next(one for one in conditions if one["type"] == "Ready")


def test_unopened_listener_is_reported_by_ready(secured: LocalCluster, ports: list[int]) -> None:
    listeners = asked(secured, "GET", CLUSTER)["spec"]["listeners"]
    with socket.create_server(("127.0.0.1", ports[2] + 1)):
        added = [*listeners, {"name": "taken", "port": ports[2]}]
        asked(secured, "PATCH", CLUSTER, {"spec": {"listeners": added}})
        sentence = (
            "Listener taken is not open on broker 1"
            f" (broker 1: the listener's port {ports[2] + 1} cannot be used: Address already in "
            "use)."
        )
        wait_for(
            "who lacks it, and why",
            lambda: (
                (ready := ready_condition(secured))["reason"] == "ListenerNotOpen"
                and ready["message"] == sentence
            ),
            60,
            0.2,
        )
    wait_for("it is open", lambda: ready_condition(secured)["status"] == "True", 60, 0.2)
    asked(secured, "PATCH", CLUSTER, {"spec": {"listeners": listeners}})


def secret_of(cluster: LocalCluster, broker: int) -> dict[str, Any]:
    found: dict[str, Any] = asked(cluster, "GET", f"{CORE}/secrets/main-broker-{broker}-tls")
    return found


def test_renewed_certificates_lose_and_double_nothing(
    secured: LocalCluster,
) -> None:
    trusted = authorities(secured)
    before = shown_certificate(first_port(secured), trusted)
    with Load(bootstrap(secured), **tls_client(secured)) as load:
        load.goes_on()
        for broker in range(3):
            name = f"{CORE}/secrets/main-broker-{broker}-tls"
            asked(secured, "PATCH", name, {"data": {"tls.crt": encoded(b"spoilt")}})
        touch(secured, "renewal")
        wait_for(
            "another certificate",
            lambda: shown_certificate(first_port(secured), trusted) != before,
            60,
            0.2,
        )
        load.goes_on()
    assert not load.acked.errors
    found = consume_all(bootstrap(secured, "internal"), TOPIC, PARTITIONS)
    assert_nothing_lost(load.acked, found)


def test_outside_clients_follow_changing_addresses(secured: LocalCluster, ports: list[int]) -> None:
    """What is stated stands for what the operator finds on Kubernetes."""
    pids = dict(secured.ready["pids"])
    listeners = asked(secured, "GET", CLUSTER)["spec"]["listeners"]
    told = {("localhost", ports[2] + broker_id) for broker_id in range(3)}

    def tell(addresses: set[tuple[str, int]]) -> None:
        outside = {
            "name": "outside",
            "port": ports[2],
            "type": "NodePort",
            "tls": {},
            "advertised": [
                {"id": port - ports[2], "host": host, "port": port} for host, port in addresses
            ],
        }
        asked(secured, "PATCH", CLUSTER, {"spec": {"listeners": [*listeners, outside]}})

    def shown() -> set[tuple[str, int]]:
        return shown_brokers(f"localhost:{ports[2]}", **tls_client(secured))

    tell(told)
    wait_for("the listener with its addresses", lambda: shown() == told, 60, 0.2)
    with Load(f"localhost:{ports[2]}", topic=TOPIC, **tls_client(secured)) as load:
        load.goes_on()
        other = {*told - {("localhost", ports[2] + 2)}, (HOST, ports[2] + 2)}
        tell(other)
        wait_for("another address of one broker", lambda: shown() == other, 60, 0.2)
        load.goes_on()
    asked(secured, "PATCH", CLUSTER, {"spec": {"listeners": listeners}})
    assert not load.acked.errors
    found = consume_all(bootstrap(secured, "internal"), TOPIC, PARTITIONS)
    assert_nothing_lost(load.acked, found)
    assert secured.pids == pids


def test_replaced_authority_loses_and_doubles_nothing(secured: LocalCluster) -> None:
    """Announced, then signing, then alone: each step is asked for.  A client that trusts what the
    ConfigMap showed meanwhile is cut off at no time."""
    name = asked(secured, "GET", f"{CORE}/configmaps/main-listener-ca")["metadata"]["labels"]
    secret = f"{CORE}/secrets/plimsoll-{name['plimsoll.dev/cluster-id']}-listener-ca"
    old = authorities(secured)

    def ask_for_the_next_step(request: str) -> None:
        """So long after the one before that it is another one."""
        past_ms = time.time_ns() // 1_000_000 - AGAIN_MS - 1_000
        asked(secured, "PATCH", secret, {"data": {"since": encoded(str(past_ms).encode())}})
        patch = {"metadata": {"annotations": {ROTATE_LISTENERS: request}}}
        asked(secured, "PATCH", CLUSTER, patch)

    ask_for_the_next_step("1")
    wait_for("clients see another", lambda: authorities(secured) != old, 60, 0.1)
    both = authorities(secured)
    assert both.startswith(old)
    new = both.removeprefix(old)
    shown_certificate(first_port(secured), old)
    client = {"security.protocol": "SSL", "ssl.ca.pem": both}
    with Load(bootstrap(secured), **client) as load:
        load.goes_on()
        ask_for_the_next_step("2")

        def signs() -> bool:
            try:
                shown_certificate(first_port(secured), new)
            except OSError:
                return False
            return True

        wait_for("the new authority's certificate", signs, 60, 0.2)
        load.goes_on()
        # Connections end and begin anew under it, too.
        secured.wait_rejoined(1, secured.kill_broker(1))
        secured.wait_isr(TOPIC, 3, 60)
        load.goes_on()
    assert not load.acked.errors
    with pytest.raises(OSError, match="certificate verify failed"):
        shown_certificate(first_port(secured), old)
    shown_certificate(first_port(secured), authorities(secured))
    ask_for_the_next_step("3")
    wait_for("the next one alone", lambda: authorities(secured) == new, 60, 0.1)
    found = consume_all(bootstrap(secured, "internal"), TOPIC, PARTITIONS)
    assert_nothing_lost(load.acked, found)


def test_users_key_pair_is_followed_and_checked(secured: LocalCluster) -> None:
    """A user's Secret; without it the listener goes on with what it has."""
    now_ms = time.time_ns() // 1_000_000
    mine = new_authority("mine", now_ms)
    pair = issue(mine, ("127.0.0.1",), now_ms)
    body = {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": "mine", "namespace": "default"},
        "data": {"tls.crt": encoded(pair.certificate), "tls.key": encoded(pair.key)},
    }
    asked(secured, "POST", f"{CORE}/secrets", body)
    listeners = asked(secured, "GET", CLUSTER)["spec"]["listeners"]
    given = [
        {**one, "tls": {"certificateSecret": "mine"}} if one["name"] == "tls" else one
        for one in listeners
    ]
    asked(secured, "PATCH", CLUSTER, {"spec": {"listeners": given}})

    def shown() -> bool:
        try:
            return bool(shown_certificate(first_port(secured), mine.certificate.decode()))
        except OSError:
            return False

    wait_for("the user's certificate", shown, 60, 0.2)
    wrong = {"data": {"tls.key": encoded(issue(mine, ("127.0.0.1",), now_ms).key)}}
    asked(secured, "PATCH", f"{CORE}/secrets/mine", wrong)
    touch(secured, "wrong")

    def said() -> str:
        status = asked(secured, "GET", CLUSTER).get("status") or {}
        shown = {one["type"]: one for one in status.get("conditions") or ()}
        found = shown.get("Stalled") or {}
        return found.get("message", "") if found.get("status") == "True" else ""

    wait_for(
        "what is wrong", lambda: "the private key does not match the certificate" in said(), 60, 0.2
    )
    assert base64.b64decode(secret_of(secured, 0)["data"]["tls.crt"]) == pair.certificate
    assert shown()
    asked(secured, "PATCH", CLUSTER, {"spec": {"listeners": listeners}})
    wait_for("nothing is wrong any more", lambda: not said(), 60, 0.2)
