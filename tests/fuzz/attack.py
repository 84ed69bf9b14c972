"""Sends spoilt frames to a cluster's ports, and looks what it does to the processes.

A connection carries a handful of frames and ends with a reset, so that the machine keeps no trace.
A frame counts as looked at when its reply came, or the connection was closed at it.
"""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import Callable
from dataclasses import dataclass, field

WORKERS = 64
FRAMES_A_CONNECTION = 4
QUIET_S = 0.1
REFUSED_MAX = 1_000
"""After so many refused connections a port is closed, and further frames would be lost."""
RESET = struct.pack("ii", 1, 0)


@dataclass(slots=True)
class Port:
    """Where to, and what is sent there."""

    name: str
    address: tuple[str, int]
    frame: Callable[[], bytes]
    share: int = 1
    """How many of its connections for one of the others'."""


@dataclass(slots=True)
class Outcome:
    """By port: frames sent, replies, connections that the other side closed."""

    sent: dict[str, int] = field(default_factory=dict)
    answered: dict[str, int] = field(default_factory=dict)
    closed: dict[str, int] = field(default_factory=dict)
    refused: int = 0

    @property
    def looked_at(self) -> int:
        return sum(self.answered.values()) + sum(self.closed.values())


class Link(asyncio.Protocol):
    """Counts replies; `over` when the other side closed, or has said all that it will."""

    def __init__(self, expected: int) -> None:
        self._expected = expected
        self._buffer = bytearray()
        self.replies = 0
        self.closed = False
        self.over: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def data_received(self, data: bytes) -> None:
        buffer = self._buffer
        buffer += data
        while len(buffer) >= 4 and len(buffer) >= 4 + (size := struct.unpack_from(">i", buffer)[0]):
            del buffer[: 4 + size]
            self.replies += 1
        if self.replies >= self._expected:
            self._end()

    def connection_lost(self, exc: Exception | None) -> None:
        self.closed = True
        self._end()

    def _end(self) -> None:
        if not self.over.done():
            self.over.set_result(None)


async def _connection(port: Port, outcome: Outcome, number: int) -> None:
    loop = asyncio.get_running_loop()
    frames = [port.frame() for _ in range(FRAMES_A_CONNECTION)]
    # Other addresses of the loopback: ports of one would run out.
    own = (f"127.0.{number // 200 % 200}.{number % 200 + 2}", 0)
    try:
        transport, link = await loop.create_connection(
            lambda: Link(len(frames)), *port.address, local_addr=own
        )
    except OSError:
        outcome.refused += 1
        return
    sock = transport.get_extra_info("socket")
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
    transport.write(b"".join(frames))
    done, _ = await asyncio.wait([link.over], timeout=QUIET_S)
    transport.abort()
    name = port.name
    outcome.sent[name] = outcome.sent.get(name, 0) + len(frames)
    outcome.answered[name] = outcome.answered.get(name, 0) + min(link.replies, len(frames))
    if done and link.closed:
        outcome.closed[name] = outcome.closed.get(name, 0) + 1


async def attack(
    ports: list[Port], frames: int, look: Callable[[Outcome], None] | None = None
) -> Outcome:
    """Until that many frames were looked at; `look` is called now and then."""
    outcome = Outcome()
    turns = [port for port in ports for _ in range(port.share)]
    numbers = iter(range(2**62))

    async def work() -> None:
        for number in numbers:
            if outcome.looked_at >= frames or outcome.refused > REFUSED_MAX:
                return
            await _connection(turns[number % len(turns)], outcome, number)
            if look is not None and number % 5_000 == 0:
                look(outcome)

    async with asyncio.TaskGroup() as group:
        for _ in range(WORKERS):
            group.create_task(work())
    return outcome
