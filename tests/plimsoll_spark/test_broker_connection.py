"""The audit's connection reads answers that say nothing as such."""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Callable, Iterator

import pytest

from plimsoll_spark.broker_connection import BrokerConnection

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
