"""The audit's connection reads answers of every form."""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Callable, Iterator

import pytest

from plimsoll_spark.broker_connection import BrokerConnection, Leader, Standing
from plimsoll_wire.api_versions import ApiKey
from plimsoll_wire.messages import encode_response

Serve = Callable[[bytes], BrokerConnection]


@pytest.fixture
def serve() -> Iterator[Serve]:
    """Returns a connection to a server that answers one request with the given bytes."""
    listener = socket.create_server(("127.0.0.1", 0))
    opened: list[BrokerConnection] = []

    def answer(body: bytes) -> None:
        with listener.accept()[0] as peer, peer.makefile("rb") as requests:
            (size,) = struct.unpack(">i", requests.read(4))
            frame = requests.read(size)[4:8] + body
            peer.sendall(struct.pack(">i", len(frame)) + frame)
            requests.read()

    def connected(body: bytes) -> BrokerConnection:
        threading.Thread(target=answer, args=(body,), daemon=True).start()
        opened.append(BrokerConnection(*listener.getsockname(), {}, 30.0))
        return opened[-1]

    yield connected
    for one in opened:
        one.close()
    listener.close()


@pytest.mark.parametrize(("code", "is_held_back"), [(0, True), (70, False)])
def test_reply_without_topics_is_held_back(serve: Serve, code: int, is_held_back: bool) -> None:
    connection = serve(b"\0" + struct.pack(">ihi", 1, code, 0) + b"\x01\0")
    connection.ask("t", 0, 0, 1, own_copy=True)
    fetched = connection.answer()
    assert (fetched.code, fetched.is_held_back) == (code, is_held_back)


def test_standing_is_read_from_metadata(serve: Serve) -> None:
    values = {
        "brokers": [{"node_id": 4, "host": "h", "port": 1, "rack": rack} for rack in (None, "a")],
        "cluster_id": "c",
        "controller_id": 4,
        "topics": [
            {
                "error_code": 0,
                "name": "t",
                "is_internal": False,
                "partitions": [
                    {
                        "error_code": 0,
                        "partition_index": number,
                        "leader_id": 4,
                        "leader_epoch": 7 + number,
                        "replica_nodes": [4, 5, 6],
                        "isr_nodes": [4, 5][: number + 1],
                        "offline_replicas": [6],
                    }
                    for number in (0, 1)
                ],
            }
        ],
    }
    connection = serve(encode_response(ApiKey.METADATA, 7, values))
    assert connection.standing("t", 1) == Standing(8, frozenset({4, 5}), Leader(4, "h", 1))


def test_standing_of_unknown_topic_is_none(serve: Serve) -> None:
    topic = {"error_code": 3, "name": "t", "is_internal": False, "partitions": []}
    values = {"brokers": [], "cluster_id": None, "controller_id": -1, "topics": [topic]}
    connection = serve(encode_response(ApiKey.METADATA, 7, values))
    assert connection.standing("t", 0) is None
