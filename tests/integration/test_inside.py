"""Mutual TLS of brokers and operator on real processes: strangers, migration, rotation."""

from __future__ import annotations

import asyncio
import os
import signal
import ssl
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from tests.integration.declared import log_cluster
from tests.integration.listening import CLUSTER, CORE, Load, asked, touch
from tests.integration.local_cluster import (
    LocalCluster,
    assert_nothing_lost,
    consume_all,
    wait_for,
)

from plimsoll_broker.control.controller_client import ControlConnection
from plimsoll_broker.inside import InsidePeers
from plimsoll_broker.replication.peer_connection import PeerConnection, PeerLost
from plimsoll_core.ids import BrokerId, MetadataOffset
from plimsoll_core.messages.metadata_stream import FetchMetadata
from plimsoll_core.security.inside import broker_identity, controller_identity, controller_name
from plimsoll_net.dialling import Dialler, PeerAddress, Refusals
from plimsoll_net.inside_identity import InsideIdentity, identity_of
from plimsoll_operator.api.labels import ROTATE_INSIDE
from plimsoll_operator.pki.authority import issue_inside, new_authority
from plimsoll_wire.api_versions import ApiKey
from plimsoll_wire.headers import request_frame
from plimsoll_wire.messages import encode_request

TOPIC = "t"
PARTITIONS = 3
NOTHING = MetadataOffset(0)
FILES = ("broker-inside.crt", "broker-inside.key", "broker-inside-ca.crt")


def secured(mode: str) -> dict[str, Any]:
    return {"internal": {"mode": mode}}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    """Three brokers that begin in plaintext."""
    place = tmp_path_factory.mktemp("inside")
    file = place / "cluster.yaml"
    file.write_text(log_cluster())
    with LocalCluster(place / "cluster", brokers=None, files=(file,)) as running:
        running.create_topic(TOPIC, partitions=PARTITIONS)
        running.wait_isr(TOPIC, 3)
        yield running


def inside(cluster: LocalCluster) -> dict[str, Any]:
    """What is committed last, as a broker's copy has it."""
    found: dict[str, Any] = {"mode": "Off", "certificates": {}}
    for record in cluster.metadata_records():
        if record["type"] == "InsideModeSet":
            found["mode"] = record["mode"]
        if record["type"] == "CertificatesAllowed":
            found["certificates"][record["broker_id"]] = tuple(record["sha256"])
    return found


def set_mode(cluster: LocalCluster, mode: str) -> None:
    asked(cluster, "PATCH", CLUSTER, {"spec": {"certificates": secured(mode)}})
    wait_for(f"mode {mode}", lambda: inside(cluster)["mode"] == mode, 90, 0.2)


def plaintext(cluster: LocalCluster) -> float:
    return sum(cluster.metric(broker, "inside_plaintext_connections") for broker in range(3))


def shrinks(cluster: LocalCluster) -> int:
    """ISRs that a replica left, so far."""
    sizes: dict[tuple[Any, ...], int] = {}
    count = 0
    for record in cluster.metadata_records():
        if record["type"] == "PartitionsChanged" and "isr" in record:
            key = (record["topic_id"], str(record["ranges"]))
            count += len(record["isr"]) < sizes.get(key, 3)
            sizes[key] = len(record["isr"])
    return count


def cluster_id(cluster: LocalCluster) -> UUID:
    return UUID(cluster.config(0)["cluster_id"])


def files_of(cluster: LocalCluster, broker: int) -> InsideIdentity:
    """What a thief of the broker's Secret has."""
    place = cluster.directory / "pki" / f"broker-{broker}" / "..data"
    certificate, key, authorities = ((place / name).read_bytes() for name in FILES)
    return identity_of(certificate, key, authorities)


def authority(cluster: LocalCluster) -> bytes:
    return (cluster.directory / "pki" / "broker-0" / "..data" / FILES[2]).read_bytes()


async def fetch_of(cluster: LocalCluster, shown: InsideIdentity | None, replica_id: int) -> int:
    """Ask broker 0 for the end of a log as a follower: Kafka's code of the answer.  Raises OSError,
    PeerLost."""
    address = PeerAddress("127.0.0.1", cluster.config(0)["replication"]["port"])
    dialler = Dialler(lambda: shown, lambda: shown is not None, Refusals())
    async with asyncio.timeout(30):
        connection, _ = await dialler.dial(PeerConnection, address, "", lambda peer: "")
        body = {
            "replica_id": replica_id,
            "isolation_level": 0,
            "topics": [
                {
                    "name": TOPIC,
                    "partitions": [
                        {"partition_index": 0, "current_leader_epoch": -1, "timestamp": -1}
                    ],
                }
            ],
        }
        frame = request_frame(
            ApiKey.LIST_OFFSETS, 5, 1, "x", encode_request(ApiKey.LIST_OFFSETS, 5, body)
        )
        try:
            reply = await connection.request(frame, 5.0)
            return len(bytes(reply))
        finally:
            connection.close()


async def metadata_of(cluster: LocalCluster, shown: InsideIdentity | None, broker: int) -> None:
    """Ask the controller for the whole metadata as a broker.  Raises OSError."""
    identity = cluster_id(cluster)
    dialler = Dialler(lambda: shown, lambda: shown is not None, Refusals())
    fetch = FetchMetadata(
        cluster_id=identity, broker_id=BrokerId(broker), offset=NOTHING, nonce=None, wait_ms_max=0
    )
    async with asyncio.timeout(30):
        connection, _ = await dialler.dial(
            partial(ControlConnection, "x"),
            PeerAddress(*cluster.controller),
            controller_name(identity),
            lambda peer: "",
        )
        try:
            reply = await connection.fetch_metadata(fetch, 5_000)
            if reply.refused is not None:
                raise PermissionError(reply.refused.message)
            assert reply.update is not None
        finally:
            connection.close("asked")


def refused(coroutine: Any) -> None:
    with pytest.raises((OSError, PeerLost, ssl.SSLError)):
        asyncio.run(coroutine)


def test_plaintext_cluster_closes_without_restart(
    cluster: LocalCluster,
) -> None:
    pids = dict(cluster.pids)
    before = shrinks(cluster)
    with Load(cluster.bootstrap) as load:
        load.goes_on()
        for mode in ("Permissive", "Required"):
            set_mode(cluster, mode)
            load.goes_on()
    assert not load.acked.errors
    assert plaintext(cluster) == 0
    assert shrinks(cluster) == before
    assert dict(cluster.pids) == pids
    assert_nothing_lost(load.acked, consume_all(cluster.bootstrap, TOPIC, PARTITIONS))


def test_broker_is_answered_where_its_certificate_names_it(cluster: LocalCluster) -> None:
    """The other side of the refusals below: they are about who asks, and not about how."""
    mine = files_of(cluster, 1)
    assert asyncio.run(fetch_of(cluster, mine, 1)) > 0
    asyncio.run(metadata_of(cluster, mine, 1))


def test_plaintext_stranger_gets_no_answer(cluster: LocalCluster) -> None:
    refused(fetch_of(cluster, None, 1))
    refused(metadata_of(cluster, None, 1))


def test_peer_of_another_authority_gets_no_answer(cluster: LocalCluster) -> None:
    now_ms = time.time_ns() // 1_000_000
    other = new_authority("other", now_ms)
    pair = issue_inside(other, broker_identity(cluster_id(cluster), 1), now_ms)
    # It believes the cluster's own, and would go on.
    stranger = identity_of(pair.certificate, pair.key, authority(cluster))
    refused(fetch_of(cluster, stranger, 1))
    refused(metadata_of(cluster, stranger, 1))


def test_another_brokers_certificate_is_refused(cluster: LocalCluster) -> None:
    refused(fetch_of(cluster, files_of(cluster, 1), 2))
    refused(metadata_of(cluster, files_of(cluster, 1), 2))


def test_killed_broker_rejoins_closed_cluster(cluster: LocalCluster) -> None:
    cluster.wait_rejoined(1, cluster.kill_broker(1))
    cluster.wait_isr(TOPIC, 3, 60)
    assert plaintext(cluster) == 0


def test_certificates_rotate_under_load_without_shrink(cluster: LocalCluster) -> None:
    stolen = files_of(cluster, 1)
    asyncio.run(metadata_of(cluster, stolen, 1))
    old, before = authority(cluster), shrinks(cluster)
    with Load(cluster.bootstrap) as load:
        load.goes_on()
        patch = {"metadata": {"annotations": {ROTATE_INSIDE: "1"}}}
        asked(cluster, "PATCH", CLUSTER, patch)

        def over() -> bool:
            present = authority(cluster)
            one = len(inside(cluster)["certificates"][1]) == 1
            return present != old and present.count(b"BEGIN") == 1 and one

        wait_for("another authority, and no other beside it", over, 120, 0.5)
        load.goes_on()
    assert not load.acked.errors
    assert shrinks(cluster) == before
    assert_nothing_lost(load.acked, consume_all(cluster.bootstrap, TOPIC, PARTITIONS))
    refused(metadata_of(cluster, stolen, 1))
    refused(fetch_of(cluster, stolen, 1))
    asyncio.run(metadata_of(cluster, files_of(cluster, 1), 1))


def test_authority_rotates_while_broker_is_absent(cluster: LocalCluster) -> None:
    """It is fenced meanwhile, and comes back with certificates of an authority that is gone."""
    old = authority(cluster)
    frozen = cluster.pids["2"]
    os.kill(frozen, signal.SIGSTOP)
    try:
        cluster.wait_isr(TOPIC, 2, 60)
        patch = {"metadata": {"annotations": {ROTATE_INSIDE: "2"}}}
        asked(cluster, "PATCH", CLUSTER, patch)

        def over() -> bool:
            present = authority(cluster)
            return present != old and present.count(b"BEGIN") == 1

        wait_for("another authority, and no other beside it", over, 120, 0.5)
    finally:
        os.kill(frozen, signal.SIGCONT)
    cluster.wait_isr(TOPIC, 3, 60)
    assert cluster.pids["2"] == frozen
    wait_for("one certificate", lambda: len(inside(cluster)["certificates"][2]) == 1, 60, 0.5)
    assert plaintext(cluster) == 0


def test_older_broker_secret_is_refused_once_replaced(
    cluster: LocalCluster,
) -> None:
    """The same authority has signed it."""
    stolen, sha256 = files_of(cluster, 2), inside(cluster)["certificates"][2]
    name = f"{CORE}/secrets/main-broker-2-tls"
    asked(cluster, "PATCH", name, {"data": {FILES[0]: "c3BvaWx0"}})
    touch(cluster, "renewal")

    def renewed() -> bool:
        allowed = inside(cluster)["certificates"][2]
        return len(allowed) == 1 and allowed != sha256

    wait_for("another certificate", renewed, 60, 0.2)
    refused(metadata_of(cluster, stolen, 2))
    refused(fetch_of(cluster, stolen, 2))
    cluster.wait_isr(TOPIC, 3)
    assert plaintext(cluster) == 0


def test_false_controller_is_not_believed(cluster: LocalCluster) -> None:
    """A broker's certificate does not make a controller, for whoever calls one."""
    mine = files_of(cluster, 0)
    assert controller_identity(cluster_id(cluster)) != broker_identity(cluster_id(cluster), 0)
    address = PeerAddress("127.0.0.1", cluster.config(1)["replication"]["port"])

    async def call() -> None:
        peers = InsidePeers(cluster_id(cluster), str(Path(cluster.config(0)["certificates"])))
        assert peers.only_tls
        await peers.controller(PeerConnection, address)

    assert mine.sha256
    refused(call())


def test_closed_cluster_is_opened_again_under_load(cluster: LocalCluster) -> None:
    pids = dict(cluster.pids)
    before = shrinks(cluster)
    with Load(cluster.bootstrap) as load:
        load.goes_on()
        set_mode(cluster, "Off")
        load.goes_on()
        wait_for("plaintext again", lambda: plaintext(cluster) >= 6, 60, 0.5)
        load.goes_on()
    assert not load.acked.errors
    assert shrinks(cluster) == before
    assert dict(cluster.pids) == pids
    assert_nothing_lost(load.acked, consume_all(cluster.bootstrap, TOPIC, PARTITIONS))


def test_absent_broker_returns_after_cluster_opened(
    cluster: LocalCluster,
) -> None:
    """All that its copy of the metadata says is Required: it calls nobody without a certificate."""
    set_mode(cluster, "Required")
    place = cluster.directory / "pki" / "broker-2" / "..data"
    wait_for("files of broker 2", (place / FILES[0]).exists, 60, 0.2)
    away = cluster.pids["2"]
    os.kill(away, signal.SIGSTOP)
    cluster.wait_isr(TOPIC, 2, 60)
    set_mode(cluster, "Off")
    wait_for("no certificate of broker 0", lambda: 0 not in allowed(cluster), 60, 0.2)
    assert allowed(cluster)[2]
    cluster.wait_rejoined(2, cluster.kill_broker(2))
    cluster.wait_isr(TOPIC, 3, 60)
    wait_for("no certificate of broker 2", lambda: 2 not in allowed(cluster), 120, 0.5)
    # As a kubelet does, somewhat later.
    wait_for("no files of broker 2", lambda: not (place / FILES[0]).exists(), 60, 0.2)


def allowed(cluster: LocalCluster) -> dict[int, tuple[str, ...]]:
    return {one: sha256 for one, sha256 in inside(cluster)["certificates"].items() if sha256}
