"""Connections to a host that loses power: silent while it is away, refused by it afterwards."""

import asyncio
import random

from plimsoll_sim.engine.determinism import instead
from plimsoll_sim.engine.draws import LatencyUs
from plimsoll_sim.engine.loop import SimLoop
from plimsoll_sim.engine.process import Process
from plimsoll_sim.environment.network import Network

PORT = 9


class Peer(asyncio.Protocol):
    def __init__(self) -> None:
        self.received = b""
        self.lost: list[Exception | None] = []
        self.transport: asyncio.BaseTransport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.received += data

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost.append(exc)


class Two:
    """A client on one host, connected to a server on another."""

    def __init__(self) -> None:
        rng = random.Random(7)
        self.loop = SimLoop(random.Random(7))  # type: ignore[abstract]
        self.network = self.loop.network = Network(self.loop, rng, LatencyUs(100, 200))
        self.client, self.server = Peer(), Peer()
        self.there = Process(self.loop, "server", "server")
        self.there.at_death.append(lambda: self.network.process_died(self.there))
        self.here = Process(self.loop, "client", "client")
        self.there.start(self._serve())
        self.here.start(self._live())

    async def _serve(self) -> None:
        self.network.listen(lambda: self.server, "server", PORT)
        await asyncio.Event().wait()

    async def _live(self) -> None:
        while self.client.transport is None:
            try:
                await self.network.connect(lambda: self.client, "server", PORT)
            except ConnectionRefusedError:
                await asyncio.sleep(0.01)
        await asyncio.Event().wait()

    def write(self, data: bytes) -> None:
        self.here.call(lambda: self.client.transport.write(data))  # type: ignore[union-attr]

    def run(self, ms: int) -> None:
        end = self.loop.now_us + ms * 1_000
        self.loop.at_us(end, lambda: None)
        while self.loop.now_us < end:
            self.loop.step()

    def power_cut(self) -> None:
        self.network.dark.add("server")
        self.there.die()


def test_connection_to_unpowered_host_is_reset_later() -> None:
    two = Two()
    with instead(two.loop, random.Random(1)):
        two.run(50)
        two.write(b"before")
        two.run(50)
        assert two.server.received == b"before"
        two.write(b"on its way")
        two.power_cut()
        two.run(60_000)
        assert two.client.lost == [], "the peer is not notified"
        two.network.light("server")
        two.run(50)
        assert [type(error) for error in two.client.lost] == [ConnectionResetError]
        assert two.server.received == b"before"
        two.loop.close()


def test_idle_connection_to_rebooted_host_is_reset() -> None:
    two = Two()
    with instead(two.loop, random.Random(1)):
        two.run(50)
        two.power_cut()
        two.network.light("server")
        two.run(60_000)
        assert two.client.lost == []
        two.write(b"after")
        two.run(50)
        assert [type(error) for error in two.client.lost] == [ConnectionResetError]
        two.loop.close()
