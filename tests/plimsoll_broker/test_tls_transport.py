"""What a session with TLS is told of the room to send, by whatever rest the kernel leaves.

`Kernel` is a plain transport as asyncio describes it: it says that writing is to pause when more is
left than its limit, and to go on when as little is left as its low one, and else nothing.
"""

import asyncio
import socket
from pathlib import Path
from typing import Any

import pytest
import uvloop
from tests.plimsoll_broker.tls_listening import tls_serving

from plimsoll_net.tls_connection import TlsConnection
from plimsoll_net.tls_transport import BYTES_A_TURN, TlsTransport
from plimsoll_wire.api_versions import ApiKey

KIB = 1024
REPLY = 3 * BYTES_A_TURN + 100 * KIB
LIMITS = (0, 1, 64 * KIB, BYTES_A_TURN, 4 * BYTES_A_TURN)


@pytest.fixture
def event_loop_policy() -> uvloop.EventLoopPolicy:
    return uvloop.EventLoopPolicy()


class Kernel:
    """Takes `room` bytes, and more when the peer has read."""

    def __init__(self, room: int) -> None:
        self.room = room
        self.taken = self.left = 0
        self.high = self.low = 0
        self.paused = False
        self.protocol: Any = None

    def write(self, data: bytes) -> None:
        self.left += len(data)
        self._take()
        self._look()

    def peer_reads(self, count: int) -> None:
        self.room += count
        self._take()
        if self.paused and self.left <= self.low:
            self.paused = False
            self.protocol.resume_writing()

    def set_write_buffer_limits(self, high: int, low: int) -> None:
        self.high, self.low = high, low
        self._look()

    def get_write_buffer_size(self) -> int:
        return self.left

    def is_closing(self) -> bool:
        return False

    def resume_reading(self) -> None: ...
    def pause_reading(self) -> None: ...

    def _take(self) -> None:
        count = min(self.room, self.left)
        self.room -= count
        self.left -= count
        self.taken += count

    def _look(self) -> None:
        if not self.paused and self.left > self.high:
            self.paused = True
            self.protocol.pause_writing()


class Told:
    """A session: whether it may send."""

    def __init__(self) -> None:
        self.may_send = True

    def pause_writing(self) -> None:
        self.may_send = False

    def resume_writing(self) -> None:
        self.may_send = True


class NotEncrypted:
    """In place of OpenSSL: what is written is what leaves."""

    def __init__(self, outgoing: Any) -> None:
        self.write = outgoing.write


class Admitted:
    def arrived(self, connection: TlsConnection) -> bool:
        return True


def connected(room: int, limit: int) -> tuple[Kernel, Told, TlsTransport]:
    kernel, session = Kernel(room), Told()
    connection = kernel.protocol = TlsConnection(Admitted())  # type: ignore[arg-type]
    connection.connection_made(kernel)  # type: ignore[arg-type]
    connection._tls = NotEncrypted(connection._outgoing)  # type: ignore[assignment]
    connection.session = session  # type: ignore[assignment]
    transport = connection._transport = TlsTransport(connection, kernel)  # type: ignore[arg-type]
    transport.set_write_buffer_limits(high=limit, low=0)
    return kernel, session, transport


async def until_nothing_happens() -> None:
    for _ in range(REPLY // BYTES_A_TURN + 3):
        await asyncio.sleep(0)


@pytest.mark.parametrize("limit", LIMITS)
@pytest.mark.parametrize("rest", [1, 100 * KIB, BYTES_A_TURN, BYTES_A_TURN + 1, REPLY])
async def test_session_resumes_once_reply_has_left(rest: int, limit: int) -> None:
    kernel, session, transport = connected(REPLY - rest, limit)
    transport.write(bytes(REPLY))
    await until_nothing_happens()
    assert transport.get_write_buffer_size() == rest
    while kernel.taken < REPLY:
        kernel.peer_reads(70 * KIB)
        await until_nothing_happens()
    assert session.may_send


@pytest.mark.parametrize("limit", LIMITS)
async def test_slow_reader_gets_everything(limit: int) -> None:
    for size in range(KIB, REPLY, 37 * KIB):
        kernel, session, transport = connected(64 * KIB, limit)
        transport.write(bytes(size))
        while kernel.taken < size:
            await until_nothing_happens()
            kernel.peer_reads(64 * KIB)
        await until_nothing_happens()
        assert session.may_send, size
        assert kernel.high == BYTES_A_TURN, "small rests pause nothing from now on"


async def test_session_that_is_full_is_told_once() -> None:
    kernel, session, transport = connected(0, 64 * KIB)
    transport.write(bytes(65 * KIB))
    assert not session.may_send
    kernel.peer_reads(64 * KIB)
    await until_nothing_happens()
    assert not session.may_send, "some of it is here still"
    kernel.peer_reads(KIB)
    assert session.may_send


@pytest.mark.parametrize("size", [620 * KIB, 680 * KIB, 1_150 * KIB])
async def test_request_behind_partially_sent_reply_is_answered(tmp_path: Path, size: int) -> None:
    """Small buffers, as between pods: on loopback the kernel takes megabytes at once."""
    async with tls_serving(tmp_path) as harness:
        client = await harness.connect()
        client.send(ApiKey.METADATA, 1)
        assert await client.reply() == (1, b"at once ")
        (session,) = harness.server._open
        sends = session._transport.get_extra_info("socket")
        sends.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 16 * KIB)
        takes = client.writer.get_extra_info("socket")
        takes.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 16 * KIB)
        client.writer.transport.pause_reading()
        client.send(ApiKey.METADATA, 2, bytes(size))
        await harness.handlers.until_seen(2)
        client.send(ApiKey.METADATA, 3, b"behind it")
        client.writer.transport.resume_reading()
        assert await client.reply() == (2, b"at once " + bytes(size))
        assert await client.reply() == (3, b"at once behind it")
