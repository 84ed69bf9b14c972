"""Leaders, releases and logins of the brokers that an audit reads: it follows, or says what it did
not read."""

from __future__ import annotations

import struct
import time

import pytest
from tests.plimsoll_spark.replica_model import (
    ModelConnection,
    Replica,
    plain_batch,
    replica,
)

from plimsoll_broker.server.dispatch import Dispatch
from plimsoll_core.errors import Code
from plimsoll_spark.broker_connection import (
    BrokerConnection,
    Fetched,
    Leader,
    LoginRefused,
    Standing,
)
from plimsoll_spark.replica_reader import (
    NOT_LEADER,
    Connections,
    Place,
    RateLimit,
    ReplicaReader,
    Why,
)
from plimsoll_wire.api_versions import ApiKey
from plimsoll_wire.messages import encode_response


class Server(ModelConnection):
    """A broker that answers consumers if it leads, and auditors unless it is old."""

    def __init__(self, held: Replica, leader: Leader | None, *, old: bool = False) -> None:
        super().__init__(held, lambda: Standing(1, frozenset({2}), leader))
        self._leads = leader is None
        self.reads_own_copy = not old

    def ask(
        self,
        topic: str,
        partition: int,
        offset: int,
        max_bytes: int,
        *,
        own_copy: bool,
        committed: bool = False,
    ) -> None:
        super().ask(topic, partition, offset, max_bytes, own_copy=True)
        if not own_copy and not self._leads:
            self._fetched = Fetched(NOT_LEADER, -1, -1, memoryview(b""))


def reader(
    monkeypatch: pytest.MonkeyPatch, servers: dict[int, Server], *, own_copy: bool
) -> ReplicaReader:
    monkeypatch.setattr(Connections, "to", lambda self, place: servers[place.broker])
    monkeypatch.setattr("plimsoll_spark.replica_reader.RETRY_S", 0.0)
    return ReplicaReader(
        Connections({}),
        Place("t", 0, 0, "h", 1),
        own_copy=own_copy,
        until_s=time.time() + 60,
        limit=RateLimit(None),
    )


def test_memory_reader_follows_change_of_leader(monkeypatch: pytest.MonkeyPatch) -> None:
    log = replica([plain_batch(0), plain_batch(3)])
    servers = {0: Server(log, Leader(2, "h2", 3)), 2: Server(log, None)}
    held = reader(monkeypatch, servers, own_copy=False).read(0, 6)
    assert (held.why, held.broker, len(held.batches)) == (None, 2, 2)


def test_leader_that_is_not_found_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("plimsoll_spark.replica_reader.AWAY_S", 0.0)
    servers = {0: Server(replica([plain_batch(0)]), Leader(0, "h", 1))}
    assert reader(monkeypatch, servers, own_copy=False).read(0, 3).why is Why.NO_LEADER


def test_old_broker_counts_as_unread(monkeypatch: pytest.MonkeyPatch) -> None:
    servers = {0: Server(replica([plain_batch(0)]), None, old=True)}
    held = reader(monkeypatch, servers, own_copy=True).read(0, 3)
    assert (held.why, len(held.batches)) == (Why.OLD, 0)
    assert reader(monkeypatch, servers, own_copy=False).read(0, 3).why is None


def test_refused_login_counts_as_unread(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(self: Connections, place: Place) -> None:
        raise LoginRefused("no")

    found = reader(monkeypatch, {}, own_copy=True)
    monkeypatch.setattr(Connections, "to", refuse)
    assert found.read(0, 3).why is Why.LOGIN
    assert Connections({}).standing([Place("t", 0, 0, "h", 1)]) is None


class Answered(BrokerConnection):
    """A connection with the body of each reply given."""

    def __init__(self, body: bytes) -> None:
        self._reads_own_copy = None
        self._reply = memoryview(bytes(4) + body)

    def _send(self, key: int, version: int, body: bytes, *, flexible: bool) -> None:
        pass

    def _receive(self) -> memoryview:
        return self._reply


def apis(*keys: int, features: list[dict[str, object]]) -> bytes:
    values = {
        "error_code": 0,
        "api_keys": [{"api_key": key, "min_version": 0, "max_version": 1} for key in keys],
        "supported_features": features,
    }
    return encode_response(ApiKey.API_VERSIONS, 3, values)


KAFKAS = {"name": "metadata.version", "min_version": 7, "max_version": 29}


@pytest.mark.parametrize(
    ("body", "reads"),
    [
        (Dispatch({}).api_versions(3, 0), True),
        (apis(1, 76, features=[]), False),
        (apis(1, 76, features=[KAFKAS]), True),
        (apis(1, 68, features=[]), True),
        (struct.pack(">hi", Code.UNSUPPORTED_VERSION, 0), True),
    ],
    ids=["this release", "release 0.2", "Kafka", "Kafka with ZooKeeper", "Kafka before 2.4"],
)
def test_api_versions_tell_of_disk_reads(body: bytes, reads: bool) -> None:
    assert Answered(body).reads_own_copy is reads


def test_metadata_tell_leader_of_partition() -> None:
    brokers = [
        {"node_id": number, "host": f"h{number}", "port": 9092 + number, "rack": rack}
        for number, rack in ((1, None), (2, "r"))
    ]
    partitions = [
        {
            "error_code": 0,
            "partition_index": number,
            "leader_id": leader,
            "replica_nodes": [1, 2],
            "isr_nodes": [2],
            "leader_epoch": 4,
            "offline_replicas": [],
        }
        for number, leader in ((0, 1), (1, 2), (2, -1))
    ]
    topic = {"error_code": 0, "name": "t", "is_internal": False, "partitions": partitions}
    values = {"brokers": brokers, "cluster_id": "c", "controller_id": 1, "topics": [topic]}
    found = Answered(encode_response(ApiKey.METADATA, 7, values))
    assert [found.standing("t", number) for number in (0, 1, 2, 3)] == [
        Standing(4, frozenset({2}), Leader(1, "h1", 9093)),
        Standing(4, frozenset({2}), Leader(2, "h2", 9094)),
        Standing(4, frozenset({2}), None),
        None,
    ]
