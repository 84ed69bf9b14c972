"""A connection to another broker is left for silence, and not for being slow."""

from __future__ import annotations

import asyncio
import gc
import struct
from collections.abc import Iterable

import pytest

from plimsoll_broker.replication import peer_connection
from plimsoll_broker.replication.peer_connection import REPLY_S_MAX, PeerConnection, PeerLost

REPLY = b"\0\0\0\7" + b"x" * 100
FRAME = struct.pack(">i", len(REPLY)) + REPLY


class Link(asyncio.Transport):
    """Brings one byte whenever somebody waits, for so long; the clock moves with each."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, data: bytes, *, seconds: float) -> None:
        super().__init__()
        self.now_s = 0.0
        self.connection = PeerConnection()
        self.connection.connection_made(self)
        self._data = list(data)
        self._seconds = seconds
        monkeypatch.setattr(asyncio.get_running_loop(), "time", lambda: self.now_s)
        monkeypatch.setattr(peer_connection.asyncio, "wait", self._wait)

    async def _wait(self, futures: Iterable[asyncio.Future[object]], timeout: float) -> None:
        self.now_s += min(self._seconds, timeout)
        if self._data and self._seconds <= timeout:
            self.connection.get_buffer(0)[:1] = bytes([self._data.pop(0)])
            self.connection.buffer_updated(1)

    def write(self, data: bytes) -> None:
        pass

    def abort(self) -> None:
        pass


async def test_a_reply_that_takes_long_but_keeps_coming_is_waited_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A link below 400 kB/s never got a full fetch reply through, and its partitions no further."""
    link = Link(monkeypatch, FRAME, seconds=1.0)
    assert bytes(await link.connection.request(b"?", 10.0)) == REPLY
    assert link.now_s == len(FRAME)


async def test_a_peer_that_falls_silent_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    link = Link(monkeypatch, FRAME[:5], seconds=1.0)
    with pytest.raises(PeerLost, match="nothing came for"):
        await link.connection.request(b"?", 10.0)
    assert link.now_s == 15.0


async def test_a_peer_that_dribbles_for_ever_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    link = Link(monkeypatch, FRAME, seconds=9.0)
    with pytest.raises(PeerLost):
        await link.connection.request(b"?", 10.0)
    assert link.now_s == REPLY_S_MAX


async def test_a_connection_lost_while_its_asker_is_cancelled_leaves_nothing_to_the_event_loop(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The event loop's handler would take the loss for a bug of the broker, and count it."""
    loop = asyncio.get_running_loop()
    met: list[object] = []
    monkeypatch.setattr(loop, "call_exception_handler", met.append)
    connection = PeerConnection()
    connection.connection_made(asyncio.Transport())
    monkeypatch.setattr(asyncio.Transport, "write", lambda *_: None)
    asking = asyncio.ensure_future(connection.request(b"?", 10.0))
    await asyncio.sleep(0)
    asking.cancel()
    connection.connection_lost(None)
    with pytest.raises(asyncio.CancelledError):
        await asking
    del asking
    gc.collect()
    assert met == []
