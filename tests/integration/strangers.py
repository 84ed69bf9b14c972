"""Slow, idle and half-said peers of one broker, kept up as long as they are wanted.

Runs in a process of its own, so that it takes no turn from whoever measures.  Whoever is closed
comes back at once, as real ones do.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import random
import resource
import socket
import struct
from dataclasses import dataclass
from multiprocessing.synchronize import Event

import uvloop
from tests.fetch_values import MIB, fetch_values

from plimsoll_wire.api_versions import ApiKey
from plimsoll_wire.headers import request_frame
from plimsoll_wire.messages import encode_request

FETCH_VERSION = 11
RECEIVE_BUFFER = 4096
BACK_S = 1.0
IDLE_BACK_S = 5.0
"""As long as clients wait at most before they connect again, and pools that are idle."""
BACK_JITTER = 0.2
"""Of it, either way, as Kafka's clients do: those that were closed together come back apart."""
TOGETHER = 100
"""Connections that are opened at a time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Crowd:
    """How many of each kind.  `polls`: pipelined long polls of each sleeper."""

    sleepers: int = 200
    polls: int = 64
    idle: int = 5_000
    halves: int = 50
    half_bytes: int = MIB


def fetch_frame(
    topic: str, partitions: int, offset: int, *, wait_ms: int = 0, version: int = FETCH_VERSION
) -> bytes:
    """A consumer's fetch of all of a topic's partitions, as much as may be."""
    values = fetch_values(
        topic, range(partitions), offset, partition_bytes_max=50 * MIB, max_wait=wait_ms
    )
    body = encode_request(ApiKey.FETCH, version, values)
    return request_frame(ApiKey.FETCH, version, 1, "stranger", body)


class _Deaf(asyncio.Protocol):
    """Says its part and reads nothing."""

    def __init__(self, says: bytes, gone: asyncio.Semaphore) -> None:
        self._says = says
        self._gone = gone

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport) or hasattr(transport, "write")
        if self._says:
            transport.write(self._says)  # type: ignore[attr-defined]
            transport.pause_reading()  # type: ignore[attr-defined]

    def connection_lost(self, exc: Exception | None) -> None:
        self._gone.release()


async def _keep(number: int, says: bytes, target: tuple[str, int], opening: asyncio.Semaphore):
    """One peer, again and again."""
    loop = asyncio.get_running_loop()
    own = f"127.0.{1 + number // 250 % 250}.{1 + number % 250}"
    gone = asyncio.Semaphore(0)
    jitter = random.Random(number)
    while True:
        async with opening:
            sock = socket.socket()
            sock.setblocking(False)
            if says:
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVE_BUFFER)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            sock.bind((own, 0))
            try:
                await loop.sock_connect(sock, target)
                await loop.create_connection(lambda: _Deaf(says, gone), sock=sock)
            except OSError:
                sock.close()
                gone.release()
        await gone.acquire()
        back_s = BACK_S if says else IDLE_BACK_S
        await asyncio.sleep(back_s * jitter.uniform(1 - BACK_JITTER, 1 + BACK_JITTER))


async def _crowd(crowd: Crowd, topic: tuple[str, int, int], target: tuple[str, int]) -> None:
    name, partitions, end = topic
    polls = fetch_frame(name, partitions, end, wait_ms=30_000) * crowd.polls
    sleeping = fetch_frame(name, partitions, 0) + polls
    whole = request_frame(ApiKey.PRODUCE, 7, 1, "half", bytes(50 * MIB))
    half = whole[: crowd.half_bytes]
    said = [sleeping] * crowd.sleepers + [half] * crowd.halves + [b""] * crowd.idle
    opening = asyncio.Semaphore(TOGETHER)
    async with asyncio.TaskGroup() as group:
        for number, says in enumerate(said):
            group.create_task(_keep(number, says, target, opening))


def _run(crowd: Crowd, topic: tuple[str, int, int], target: tuple[str, int], stop: Event) -> None:
    os.nice(19)  # real ones take no processor from the machine that they trouble
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))

    async def until_stopped() -> None:
        running = asyncio.ensure_future(_crowd(crowd, topic, target))
        while not stop.is_set() and not running.done():  # noqa: ASYNC110 - another process's
            await asyncio.sleep(0.1)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)

    uvloop.run(until_stopped())


class Strangers:
    """`with Strangers(...)`: they are there.  `topic`: name, partitions, an offset at the end."""

    def __init__(self, crowd: Crowd, topic: tuple[str, int, int], target: tuple[str, int]) -> None:
        self._stop = multiprocessing.Event()
        self._process = multiprocessing.Process(
            target=_run, args=(crowd, topic, target, self._stop), daemon=True
        )

    def __enter__(self) -> Strangers:
        self._process.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._process.join(20)
        if self._process.is_alive():
            self._process.kill()
            self._process.join()

    @property
    def alive(self) -> bool:
        return self._process.is_alive()
