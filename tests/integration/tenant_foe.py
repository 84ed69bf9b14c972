"""A hostile client's connections, the bytes that it may send, and the names that are its own."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any

from tests.integration.tenant_client import LOST, Login, Peer, Place, Refused

MALLORY, NOBODY, STRANGER = "mallory", "nobody", "stranger"
PRINCIPALS = (MALLORY, NOBODY, STRANGER)
USERS = (MALLORY, NOBODY)
TOPIC, PARTITIONS = "mallory.t", 6
BYTES_MAX = 256 * 2**20
"""That one act sends."""
CONNECTIONS_MAX = 300
"""Of one act."""
BACK_S = (0.1, 1.0)
MIB = 2**20


class Foe:
    """One act's connections and what it has sent."""

    def __init__(self, place: Place, login: Login | None, seed: str) -> None:
        self.place, self.login = place, login
        self.dice = random.Random(seed)
        self.did: Counter[str] = Counter()
        self.tls = place.context()
        self._left = BYTES_MAX

    @contextlib.asynccontextmanager
    async def peer(
        self, *, deaf: bool = False, login: bool = True, broker: int | None = None
    ) -> Any:
        """A connection to any broker, or to that one, logged in as the principal."""
        addresses = self.place.addresses
        address = self.dice.choice(addresses) if broker is None else addresses[broker]
        peer = await Peer.connect(address, self.tls, deaf=deaf)
        self.did["connections"] += 1
        try:
            if login and self.login is not None:
                await peer.log_in(self.login)
            yield peer
        finally:
            peer.close()

    async def send(self, peer: Peer, data: bytes) -> None:
        if len(data) > self._left:
            await asyncio.Event().wait()  # it has sent its bytes: it only stays
        self._left -= len(data)
        self.did["bytes"] += len(data)
        self.did["sent"] += 1
        await peer.send(data)

    async def often(self, times: int, one: Callable[[], Awaitable[None]]) -> None:
        """So many at the same time, each again and again."""
        async with asyncio.TaskGroup() as group:
            for _ in range(min(times, CONNECTIONS_MAX)):
                group.create_task(self._again(one))

    async def _again(self, one: Callable[[], Awaitable[None]]) -> None:
        while True:
            await self.until(one)
            await asyncio.sleep(self.dice.uniform(*BACK_S))

    async def until(self, one: Callable[[], Awaitable[None]]) -> None:
        """Until it has not failed once."""
        while True:
            try:
                return await one()
            except (*LOST, Refused):
                self.did["ended by the broker"] += 1
            await asyncio.sleep(self.dice.uniform(*BACK_S))

    async def flood(
        self,
        requests: Callable[[], bytes],
        *,
        pause_s: float = 0.0,
        deaf: bool = False,
        broker: int | None = None,
    ) -> None:
        """One connection that sends until it is closed."""
        async with self.peer(deaf=deaf, broker=broker) as peer:
            reading = None if deaf else asyncio.create_task(peer.discard())
            try:
                while reading is None or not reading.done():
                    await self.send(peer, requests())
                    await asyncio.sleep(pause_s)
            finally:
                if reading is not None:
                    reading.cancel()
                    await asyncio.gather(reading, return_exceptions=True)
            raise ConnectionResetError("the broker closed it")
