"""A Kubernetes API server that may be slow, away, or lose requests and replies.

What it stores and by which rules is `plimsoll_operator.kube.memory`, as in unit tests; here is what
a process sees of it through a network.  A request without an answer may still happen later.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncGenerator
from dataclasses import dataclass, field

from plimsoll_operator.kube.errors import Unavailable
from plimsoll_operator.kube.memory.definitions import shipped
from plimsoll_operator.kube.memory.server import MemoryApiServer
from plimsoll_operator.kube.memory.transport import MemoryTransport
from plimsoll_operator.kube.port import HttpRequest, HttpResponse
from plimsoll_sim.engine.loop import SimLoop
from plimsoll_sim.engine.process import Process, current
from plimsoll_sim.environment.latency import QUICK_US, LatencyUs

GIVE_UP_US = 2_000_000
PATIENCE_S_MAX = 30.0
"""Nobody waits for longer than that: such a request needs no timer of its own."""
NAMESPACE = "sim"


@dataclass
class Weather:
    """How the API server is doing.  Chances are per request; `down` answers nobody, `hung` takes
    requests and does not answer.  `kept` are a process's writes of one kind of object that are on
    their way for as long as its entry is there: nobody answers them."""

    lose_request: float = 0.0
    lose_reply: float = 0.0
    late: float = 0.0
    throttle: float = 0.0
    down: bool = False
    hung: bool = False
    latency_us: LatencyUs = QUICK_US
    away_from: dict[Process, None] = field(default_factory=dict)
    kept: dict[tuple[Process, str], list[HttpRequest]] = field(default_factory=dict)

    def calm(self) -> None:
        self.lose_request = self.lose_reply = self.late = self.throttle = 0.0
        self.down = self.hung = False
        self.away_from.clear()
        self.kept.clear()


def simulated_server(loop: SimLoop, rng: random.Random) -> MemoryApiServer:
    """On virtual time, with uids of this stream."""
    return MemoryApiServer(
        lambda: loop.now_us // 1_000,
        lambda: f"uid-{rng.getrandbits(64):016x}",
        definitions=shipped(),
        namespaces=(NAMESPACE,),
    )


class SimulatedTransport:
    """`plimsoll_operator.kube.port.Transport`, for the process that makes it."""

    def __init__(
        self, server: MemoryApiServer, weather: Weather, loop: SimLoop, rng: random.Random
    ) -> None:
        process = current()
        assert process is not None
        self._process = process
        self._server = server
        self._weather = weather
        self._loop = loop
        self._rng = rng

    async def send(self, request: HttpRequest) -> HttpResponse:
        if request.timeout_s > PATIENCE_S_MAX:
            return await self._sent(request)
        try:
            async with asyncio.timeout(request.timeout_s):
                return await self._sent(request)
        except TimeoutError:
            raise Unavailable(0, "no answer") from None

    async def _sent(self, request: HttpRequest) -> HttpResponse:
        weather, rng = self._weather, self._rng
        await self._travel()
        if not self._reachable() or rng.random() < weather.lose_request:
            await self._give_up()
        if rng.random() < weather.throttle:
            return HttpResponse(status=429, body=b'{"message": "too many requests"}')
        writes = request.method != "GET"
        kept = weather.kept.get((self._process, request.path.split("/")[6]))
        if writes and kept is not None:
            kept.append(request)
            await self._give_up()
        if writes and rng.random() < weather.late:
            delay_us = rng.randint(1_000, 8_000_000)
            self._loop.at_us(self._loop.now_us + delay_us, self._server.handle, request)
            await self._give_up()
        answer = self._server.handle(request)
        await self._travel()
        if not self._reachable() or rng.random() < weather.lose_reply:
            await self._give_up()
        return answer

    def watch(self, request: HttpRequest) -> AsyncGenerator[bytes, None]:
        """No simulated process watches, so no weather is around this."""
        return MemoryTransport(self._server).watch(request)

    async def close(self) -> None:
        """Nothing is open."""

    def _reachable(self) -> bool:
        weather = self._weather
        return not (weather.down or weather.hung or self._process in weather.away_from)

    async def _travel(self) -> None:
        await asyncio.sleep(self._rng.randint(*self._weather.latency_us) / 1_000_000)

    async def _give_up(self) -> None:
        # A connection that was closed is known at once; silence takes its time.
        quick = self._weather.down or self._rng.random() < 0.3
        await asyncio.sleep(0.001 if quick else GIVE_UP_US / 1_000_000)
        raise Unavailable(0, "no answer")
