"""Certificates inside on Kubernetes: a new cluster is closed, led on, opened, and closed again.

One cluster lives through all of it, test by test, in this order.
"""

from __future__ import annotations

import asyncio
import base64
import ssl
import threading
import uuid
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from dev.kubectl import Cluster, condition, is_true, wait_for
from kafka import KafkaConsumer, KafkaProducer, TopicPartition
from tests.e2e.clients import bootstrap, cluster_names, write_round
from tests.e2e.drill import SYSTEM, Drill, kill_operator, killed_operator
from tests.e2e.faults import REPLICATION_PORT, paused
from tests.e2e.rotation import (
    LISTENER,
    PORT,
    CertifiedClient,
    Rotation,
    cluster_id,
    trusted_by_clients,
)
from tests.kafka_python import left_sockets

from plimsoll_broker.replication.peer_connection import PeerConnection, PeerLost
from plimsoll_net.dialling import Dialler, PeerAddress, Refusals
from plimsoll_net.inside_identity import InsideIdentity, identity_of
from plimsoll_operator.api import labels
from plimsoll_wire.api_versions import ApiKey
from plimsoll_wire.headers import request_frame
from plimsoll_wire.messages import encode_request

TOPIC = {"partitions": 3, "replicationFactor": 3, "minInSyncReplicas": 2}
REACHED_S = 240
"""A kubelet shows a Secret that was changed within a minute or two, where nobody hurries it."""
BROKERS = range(3)


@pytest.fixture(scope="module")
def drill(operator: Cluster) -> Iterator[Drill]:
    namespace = f"inside-{uuid.uuid4().hex[:6]}"
    operator.kubectl("create", "namespace", namespace)
    operator.kubectl(
        "label", "namespace", namespace, "pod-security.kubernetes.io/enforce=restricted"
    )
    made = Drill(operator, namespace)
    made.apply("LogCluster", "main", made.spec)
    made.apply("Topic", "orders", TOPIC)
    wait_ready(made, "orders")
    yield made
    operator.kubectl("delete", "namespace", namespace, "--wait=false")


def wait_ready(drill: Drill, topic: str) -> None:
    wait_for(
        f"{topic} to be Ready", lambda: is_true(drill.get("topic", topic), "Ready") or None, 180
    )


def files(drill: Drill, broker: int) -> dict[str, bytes]:
    """What the operator has put into the broker's Secret."""
    secret = drill.cluster.get("secret", f"main-broker-{broker}-tls", drill.namespace) or {}
    data = secret.get("data") or {}
    return {name: base64.b64decode(text) for name, text in data.items() if "-inside" in name}


def metric(drill: Drill, name: str, brokers: Iterable[int] = BROKERS) -> float:
    """The sum over the brokers and all labels."""
    found = 0.0
    for broker in brokers:
        pod = f"/api/v1/namespaces/{drill.namespace}/pods/main-broker-{broker}-0"
        for line in drill.cluster.raw(f"{pod}:9100/proxy/metrics").splitlines():
            if line.startswith((f"plimsoll_broker_{name} ", f"plimsoll_broker_{name}{{")):
                found += float(line.rpartition(" ")[2])
    return found


def pods(drill: Drill) -> list[tuple[str, int]]:
    found = [drill.pod(broker) for broker in BROKERS]
    return [
        (p["metadata"]["uid"], p["status"]["containerStatuses"][0]["restartCount"])
        for p in found
        if p
    ]


def hurry(drill: Drill) -> None:
    """Have the kubelet look at the pods' Secrets now."""
    drill.cluster.kubectl(
        "annotate", "pods", "-n", drill.namespace, "-l", "plimsoll.dev/cluster=main",
        f"example.test/looked-at={uuid.uuid4().hex}", "--overwrite",
    )  # fmt: skip


def go_to(drill: Drill, mode: str) -> None:
    """State it, and wait."""
    drill.spec["certificates"] = {"internal": {"mode": mode}}
    drill.apply("LogCluster", "main", drill.spec)
    wait_for_mode(drill, mode)


def wait_for_mode(drill: Drill, mode: str) -> None:
    """Until the operator has told every broker that it is committed."""
    wanted = b"" if mode == "Off" else mode.encode()

    def reached() -> bool | None:
        hurry(drill)
        shown = {files(drill, broker).get("broker-inside.mode", b"") for broker in BROKERS}
        return shown == {wanted} or None

    wait_for(f"mode {mode}", reached, REACHED_S, every_s=2)


@contextmanager
def written(drill: Drill, servers: str = "", **config: Any) -> Iterator[list[int]]:
    """Within: a producer writes to every partition, all replicas acknowledge, and none fails; how
    many of each round were acknowledged.  `servers`: where to begin; empty: on the open listener.
    """
    with left_sockets(), writing(drill, servers, config) as acked:
        yield acked


@contextmanager
def writing(drill: Drill, servers: str, config: dict[str, Any]) -> Iterator[list[int]]:
    over, failed, acked = threading.Event(), list[BaseException](), list[int]()
    first = threading.Event()
    with cluster_names(drill.cluster, drill.namespace):
        servers = servers or bootstrap(drill.cluster, drill.namespace)
        producer = KafkaProducer(bootstrap_servers=servers, acks="all", **config)

        def write() -> None:
            try:
                while not over.wait(0.1):
                    write_round(producer, "orders", TOPIC["partitions"])
                    acked.append(TOPIC["partitions"])
                    first.set()
            except Exception as error:  # noqa: BLE001 - told by the thread that waits
                failed.append(error)

        thread = threading.Thread(target=write, daemon=True)
        thread.start()
        assert first.wait(60), failed
        try:
            yield acked
        finally:
            over.set()
            thread.join(timeout=90)
            producer.close(timeout=10)
    assert not failed, failed
    assert not thread.is_alive()


def test_new_cluster_is_closed_by_default(drill: Drill) -> None:
    assert "certificates" not in drill.spec
    wait_for_mode(drill, "Required")
    wait_for(
        "its status",
        lambda: (
            drill.get("logcluster", "main")["status"].get("certificates")
            == {"internal": {"mode": "Required", "pinned": "Required"}}
            or None
        ),
        60,
    )
    assert metric(drill, "inside_plaintext_connections") == 0


def listens(drill: Drill, name: str) -> bool | None:
    hurry(drill)
    shown = (drill.get("logcluster", "main").get("status") or {}).get("listeners") or ()
    return any(one["name"] == name and one["brokers"] == 3 for one in shown) or None


@left_sockets()
def ends(drill: Drill, tls: ssl.SSLContext) -> int:
    """How many records `orders` holds."""
    servers = f"main-bootstrap.{drill.namespace}.svc:{PORT}"
    with cluster_names(drill.cluster, drill.namespace):
        consumer = KafkaConsumer(
            bootstrap_servers=servers, security_protocol="SSL", ssl_context=tls
        )
        wanted = [TopicPartition("orders", index) for index in range(TOPIC["partitions"])]
        found = sum(consumer.end_offsets(wanted).values())
        consumer.close()
        return int(found)


def in_sync(drill: Drill, brokers: set[int]) -> bool | None:
    found = drill.view("orders")
    return (found is not None and all(set(one["isr"]) == brokers for one in found)) or None


def answered(drill: Drill, shown: InsideIdentity, broker: int) -> bool:
    """Whether a follower that shows this is answered by the broker."""
    pod = drill.pod(broker)
    assert pod is not None

    async def ask() -> bool:
        dialler = Dialler(lambda: shown, lambda: True, Refusals())
        address = PeerAddress(pod["status"]["podIP"], REPLICATION_PORT)
        body = {"replica_id": 1, "isolation_level": 0, "topics": []}
        asked = encode_request(ApiKey.LIST_OFFSETS, 5, body)
        async with asyncio.timeout(30):
            connection, _ = await dialler.dial(PeerConnection, address, "", lambda peer: "")
            try:
                reply = await connection.request(
                    request_frame(ApiKey.LIST_OFFSETS, 5, 1, "x", asked), 5.0
                )
            finally:
                connection.close()
            return bool(reply)

    try:
        return asyncio.run(ask())
    except (OSError, PeerLost):
        return False


def shows(drill: Drill, broker: int) -> InsideIdentity:
    """What a thief of the broker's Secret has."""
    found = files(drill, broker)
    return identity_of(
        found["broker-inside.crt"], found["broker-inside.key"], found["broker-inside-ca.crt"]
    )


class Rotations:
    """The internal authority and that of clients, side by side; the operator is killed in each
    state that either is in."""

    def __init__(self, drill: Drill, clients: Rotation, client: CertifiedClient) -> None:
        self._drill = drill
        self._client = client
        self.inside, self.clients = Rotation.inside(drill), clients
        # How many states both had reached when the operator was killed last.
        self._known = 0
        # In which states of that of clients was looked at what its users show.
        self._looked: set[str] = set()

    @contextmanager
    def followed(self) -> Iterator[None]:
        """Within: no state of either is missed."""
        with self.inside.followed(), self.clients.followed():
            yield

    def begun(self) -> bool | None:
        """Both were looked at."""
        return (self.inside.states and self.clients.states and True) or None

    def go_on(self) -> bool | None:
        """True when both have been replaced.  Nothing here waits: a state may last for a second."""
        reached = len(self.inside.states) + len(self.clients.states)
        # Whoever held the Lease may be dead already.
        if reached > self._known and killed_operator(self._drill):
            self._known = reached
        state = self.clients.states[-1]
        if state in ("announced", "signs") and state not in self._looked and self._learnt(state):
            self._looked.add(state)
            self.clients.let_time_pass()
        hurry(self._drill)
        return {self.inside.states[-1], self.clients.states[-1]} == {"retired"} or None

    def _learnt(self, state: str) -> bool:
        """Whether what the authority before signed is good; and, where the next one signs, users
        have certificates of it and brokers know it: both are good."""
        current = self.clients.known().current.certificate
        if state == "signs" and not self._client.learns(current):
            return False
        for broker in (0, 1):
            shown = self._client.let_in(broker, self._client.first)
            assert shown, f"{state}: broker {broker} refuses what the authority before signed"
        return state == "announced" or all(
            self._client.let_in(broker, self._client.newest) for broker in (0, 1)
        )


@pytest.mark.long
def test_authorities_rotate_despite_dead_broker_and_operator(drill: Drill, tmp_path: Path) -> None:
    wait_for_mode(drill, "Required")
    of_clients = Rotation.of_clients(drill)
    drill.spec["listeners"] = [{"name": "plain", "port": 9092}, LISTENER]
    drill.apply("LogCluster", "main", drill.spec)
    wait_for("the listener", lambda: listens(drill, LISTENER["name"]), REACHED_S, every_s=2)
    client = CertifiedClient(drill, tmp_path)
    rotations, before = Rotations(drill, of_clients, client), pods(drill)
    stolen, tls = shows(drill, 1), client.newest
    assert answered(drill, stolen, 0)
    first = ends(drill, tls)
    config = {"security_protocol": "SSL", "ssl_context": tls}
    with written(drill, f"main-bootstrap.{drill.namespace}.svc:{PORT}", **config) as acked:
        with paused(drill, 2):
            wait_for("broker 2 to be out", lambda: in_sync(drill, {0, 1}), 60)
            shrinks = metric(drill, "isr_shrinks_total", (0, 1))
            with rotations.followed():
                wait_for("the first look", rotations.begun, 30)
                asked = f"plimsoll.dev/rotate-internal-ca={uuid.uuid4().hex}"
                drill.cluster.kubectl(
                    "annotate", "logcluster", "main", "-n", drill.namespace, asked
                )
                wait_for("other authorities", rotations.go_on, REACHED_S, every_s=0.5)
            assert rotations.inside.states == ["idle", "announced", "signs", "retired"]
            assert rotations.clients.states == ["announced", "signs", "retired"]
            assert not answered(drill, stolen, 0), "its authority is trusted no more"
            assert answered(drill, shows(drill, 1), 0)
            for broker in (0, 1):
                wait_for("a refusal", lambda at=broker: client.refused(at, client.first), 60)
                assert client.let_in(broker, tls)
            assert metric(drill, "isr_shrinks_total", (0, 1)) == shrinks
        wait_for("broker 2 to be back", lambda: in_sync(drill, {0, 1, 2}), 120)
        client.wait_until_let_in(2)
        assert client.refused(2, client.first)
        known = trusted_by_clients(drill)
        listeners = labels.listener_authority(cluster_id(drill))
        drill.cluster.kubectl("delete", "secret", listeners, "-n", SYSTEM)

        def replaced() -> bool | None:
            return trusted_by_clients(drill) != known or None

        wait_for("another listener authority", replaced, REACHED_S, every_s=1)
        again = ("annotate", "logcluster", "main", "-n", drill.namespace, "--overwrite")
        drill.cluster.kubectl(
            *again,
            f"plimsoll.dev/rotate-client-ca={uuid.uuid4().hex}",
            f"plimsoll.dev/rotate-listener-ca={uuid.uuid4().hex}",
        )

        def announced() -> bool | None:
            return rotations.clients.known().announced is not None or None

        wait_for("the next authority of clients", announced, REACHED_S, every_s=1)

        def trusts_two() -> bool | None:
            return trusted_by_clients(drill).count("BEGIN CERTIFICATE") == 2 or None

        wait_for("the next authority of listeners", trusts_two, REACHED_S, every_s=1)
        tls.load_verify_locations(cadata=trusted_by_clients(drill))
        wait_for("the listener", lambda: listens(drill, LISTENER["name"]), REACHED_S, every_s=2)
    assert ends(drill, tls) - first >= sum(acked) > 0
    # What hung for long on a busy machine was restarted by the kubelet, and by nothing else.
    after = pods(drill)
    assert [after[broker] for broker in (0, 1)] == [before[broker] for broker in (0, 1)]


def test_operator_takes_over_cluster_with_refused_spec(drill: Drill) -> None:
    """The new one shows brokers a certificate before it may reconcile anything."""
    shrinks, spec = metric(drill, "isr_shrinks_total"), dict(drill.spec)

    def status() -> dict[str, Any]:
        found: dict[str, Any] = drill.get("logcluster", "main").get("status") or {}
        return found

    def refused() -> bool | None:
        found = condition(drill.get("logcluster", "main"), "Stalled")
        return (found is not None and found["reason"] == "InvalidConfig") or None

    drill.apply("LogCluster", "main", {**spec, "config": {"no.such": "1"}})
    wait_for("the config to be refused", refused, 60)
    term = status()["metadataLog"]["controllerEpoch"]
    with written(drill):
        kill_operator(drill)
        wait_for(
            "another term", lambda: status()["metadataLog"]["controllerEpoch"] > term or None, 90
        )
        wait_for("its refusal", refused, 60)
        drill.apply("Topic", "later", TOPIC)
        wait_ready(drill, "later")
    assert metric(drill, "isr_shrinks_total") == shrinks
    drill.apply("LogCluster", "main", spec)


@pytest.mark.long
def test_closed_cluster_opens_under_load_without_restarts(drill: Drill) -> None:
    before, shrinks = pods(drill), metric(drill, "isr_shrinks_total")
    with written(drill):
        go_to(drill, "Off")
    assert metric(drill, "isr_shrinks_total") == shrinks
    assert pods(drill) == before


@pytest.mark.long
def test_open_cluster_closes_under_load_without_restarts(drill: Drill) -> None:
    before, shrinks = pods(drill), metric(drill, "isr_shrinks_total")
    with written(drill):
        go_to(drill, "Required")
    assert metric(drill, "inside_plaintext_connections") == 0
    assert metric(drill, "isr_shrinks_total") == shrinks
    assert pods(drill) == before
