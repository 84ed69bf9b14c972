"""A connection to another broker is left for silence, and not for being slow."""

from __future__ import annotations

import asyncio
import gc
import struct
from collections.abc import Callable
from functools import partial

import pytest

from plimsoll_broker.replication.peer_connection import (
    KEPT_BYTES_MAX,
    REPLY_S_MAX,
    PeerConnection,
    PeerLost,
)
from plimsoll_wire.tail_stream import PushedTo, decode_push, encode_push

REPLY = b"\0\0\0\7" + b"x" * 100
FRAME = struct.pack(">i", len(REPLY)) + REPLY


class Timer:
    """What `call_later` gave; the link's clock calls it."""

    def __init__(self, due_s: float, call: Callable[[], None]) -> None:
        self.due_s = due_s
        self.call = call
        self.cancelled = False

    def cancel(self) -> None:
        self.cancelled = True


class Link(asyncio.Transport):
    """Brings one byte after so many seconds, each time, while there are any, on its own clock."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, data: bytes, *, seconds: float) -> None:
        super().__init__()
        self.now_s = 0.0
        self.timers: list[Timer] = []
        self.connection = PeerConnection()
        self.connection.connection_made(self)
        self._data = list(data)
        self._seconds = seconds
        loop = asyncio.get_running_loop()
        monkeypatch.setattr(loop, "time", lambda: self.now_s)
        monkeypatch.setattr(loop, "call_later", self._call_later)

    def _call_later(self, delay_s: float, call: Callable[..., None], *of: object) -> Timer:
        timer = Timer(self.now_s + delay_s, partial(call, *of))
        self.timers.append(timer)
        return timer

    async def ask(self, silence_s: float) -> bytes:
        asking = asyncio.ensure_future(self.connection.request(b"?", silence_s))
        byte_s = self._seconds
        await asyncio.sleep(0)
        while not asking.done():
            self.timers = [timer for timer in self.timers if not timer.cancelled]
            timer = min(self.timers, key=lambda each: each.due_s)
            if self._data and byte_s < timer.due_s:
                self.now_s, byte_s = byte_s, byte_s + self._seconds
                self.connection.get_buffer(0)[:1] = bytes([self._data.pop(0)])
                self.connection.buffer_updated(1)
            else:
                self.now_s = timer.due_s
                self.timers.remove(timer)
                timer.call()
            await asyncio.sleep(0)
        return bytes(await asking)

    def write(self, data: bytes) -> None:
        pass

    def abort(self) -> None:
        pass


async def test_slow_but_steady_reply_is_awaited(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A link below 400 kB/s never got a full fetch reply through, and its partitions no further."""
    link = Link(monkeypatch, FRAME, seconds=1.0)
    assert await link.ask(10.0) == REPLY
    assert link.now_s == len(FRAME)


async def test_second_request_has_its_own_deadline(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    link = Link(monkeypatch, FRAME, seconds=0.05)
    assert await link.ask(10.0) == REPLY
    first_s = link.now_s
    assert len(link.timers) == 1, "it goes on, for the next request"
    with pytest.raises(PeerLost, match="sent nothing for"):
        await link.ask(10.0)
    assert link.now_s == first_s + 10.0
    assert not [timer for timer in link.timers if not timer.cancelled]


async def test_shorter_timeout_than_previous_request_is_kept(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    link = Link(monkeypatch, FRAME, seconds=0.05)
    assert await link.ask(10.0) == REPLY
    first_s = link.now_s
    with pytest.raises(PeerLost, match="sent nothing for"):
        await link.ask(2.0)
    assert link.now_s == first_s + 2.0


async def test_peer_that_falls_silent_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    link = Link(monkeypatch, FRAME[:5], seconds=1.0)
    with pytest.raises(PeerLost, match="sent nothing for"):
        await link.ask(10.0)
    assert link.now_s == 15.0


async def test_peer_that_dribbles_for_ever_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    link = Link(monkeypatch, FRAME, seconds=9.0)
    with pytest.raises(PeerLost):
        await link.ask(10.0)
    assert link.now_s == REPLY_S_MAX


@pytest.mark.parametrize("size", [1, 7, 1_000])
async def test_pushes_before_a_reply_are_taken_in_order(
    monkeypatch: pytest.MonkeyPatch, size: int
) -> None:
    pushes = [
        b"".join(encode_push(PushedTo(1, slot, bytes(16), 0), 0, at, 0, 0, b"x" * at))
        for at, slot in ((1, 0), (200, 1), (30, 0), (4, 0))
    ]
    taken: list[bytes] = []
    written: list[bytes] = []
    monkeypatch.setattr(asyncio.Transport, "write", lambda _, data: written.append(data))
    monkeypatch.setattr(asyncio.Transport, "abort", lambda _: None)

    def take(frame: memoryview) -> tuple[int, bytes]:
        taken.append(bytes(frame))
        return decode_push(frame).slot, b"%d " % len(taken)

    connection = PeerConnection()
    connection.connection_made(asyncio.Transport())
    connection.take_push = take
    asking = asyncio.ensure_future(connection.request(b"?", 10.0))
    await asyncio.sleep(0)
    data = b"".join(pushes) + FRAME
    while data:
        room = connection.get_buffer(0)
        part = data[: min(size, len(room))]
        room[: len(part)] = part
        connection.buffer_updated(len(part))
        data = data[len(part) :]
    assert bytes(await asking) == REPLY
    assert taken == pushes
    said = b"".join(written[1:])
    assert said == (b"4 2 " if size == 1_000 else b"1 2 3 4 ")
    connection.close()


async def test_connection_lost_during_cancellation_leaves_no_error(
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


def deliver(connection: PeerConnection, data: bytes) -> None:
    while data:
        room = connection.get_buffer(0)
        part, data = data[: len(room)], data[len(room) :]
        room[: len(part)] = part
        connection.buffer_updated(len(part))


async def test_memory_of_large_reply_is_released(monkeypatch: pytest.MonkeyPatch) -> None:
    connection = Link(monkeypatch, b"", seconds=1.0).connection
    for size in (KEPT_BYTES_MAX, 100, KEPT_BYTES_MAX // 2, 100):
        asking = asyncio.ensure_future(connection.request(b"?", 10.0))
        await asyncio.sleep(0)
        assert len(connection.get_buffer(0)) <= KEPT_BYTES_MAX
        deliver(connection, struct.pack(">i", size) + bytes(size))
        assert bytes(await asking) == bytes(size)
