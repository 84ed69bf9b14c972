"""A Kubernetes API server that may be slow or unreachable, or lose requests, replies and watches.

`plimsoll_operator.api_server` stores the objects and applies the API's rules, as in unit tests.
This module adds the network between it and a process: a request without an answer may still be
carried out later, and watch events are late.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass, field
from uuid import UUID

import msgspec

from plimsoll_operator.api_server.kinds import shipped
from plimsoll_operator.api_server.server import MemoryApiServer
from plimsoll_operator.api_server.status_errors import StatusError
from plimsoll_operator.api_server.watches import Watch
from plimsoll_operator.kube.errors import Unavailable, answered
from plimsoll_operator.kube.kube_api import HttpRequest, HttpResponse
from plimsoll_sim.engine.determinism import EPOCH_NS
from plimsoll_sim.engine.draws import QUICK_US, LatencyUs, numbers_between
from plimsoll_sim.engine.loop import SimLoop
from plimsoll_sim.engine.process import Process, current

GIVE_UP_US = 2_000_000
PATIENCE_S_MAX = 30.0
"""Longest timeout of a request in any process, in seconds. A request with this timeout needs no
timer of its own."""
NAMESPACE = "sim"


@dataclass
class Weather:
    """Present faults of the API server. Chances are per request. `down`: every request is refused.
    `hung`: requests are accepted and not answered. `kept`: for a process and a kind of object, the
    writes that are delayed without an answer for as long as the entry exists."""

    lose_request: float = 0.0
    lose_reply: float = 0.0
    late: float = 0.0
    throttle: float = 0.0
    down: bool = False
    hung: bool = False
    latency_us: LatencyUs = QUICK_US
    # How far its clock is ahead of the start of the run; healing does not correct it.
    ahead_ms: int = 0
    away_from: dict[Process, None] = field(default_factory=dict)
    kept: dict[tuple[Process, str], list[HttpRequest]] = field(default_factory=dict)

    def calm(self) -> None:
        self.lose_request = self.lose_reply = self.late = self.throttle = 0.0
        self.down = self.hung = False
        self.away_from.clear()
        self.kept.clear()


def simulated_server(loop: SimLoop, rng: random.Random, weather: Weather) -> MemoryApiServer:
    """Return an API server on virtual time that draws its uids from `rng`."""
    return MemoryApiServer(
        lambda: EPOCH_NS // 1_000_000 + loop.now_us // 1_000 + weather.ahead_ms,
        lambda: str(UUID(int=rng.getrandbits(128), version=4)),
        definitions=shipped(),
        namespaces=(NAMESPACE,),
    )


class SimulatedTransport:
    """The transport of one process: implements `plimsoll_operator.kube.kube_api.Transport`, with
    the faults of `Weather`."""

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
        self._between = numbers_between(rng)
        # The watches that this process has open: a dead process reads no more.
        self._watches: dict[Watch, None] = {}
        process.at_death.append(self._close_watches)

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
        kept = self._kept(request) if writes and weather.kept else None
        if kept is not None:
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

    async def watch(self, request: HttpRequest) -> AsyncGenerator[bytes, None]:
        """Yield the lines of a watch. Each is as late as any packet; lines keep their order."""
        await self._travel()
        if not self._reachable() or self._rng.random() < self._weather.lose_request:
            await self._give_up()
        try:
            watch = self._server.watch(request)
        except StatusError as refused:
            body = msgspec.json.encode(refused.body)
            raise answered(request.method, request.path, refused.status, body) from refused
        self._watches[watch] = None
        try:
            lines = self._lines(watch, float(request.params["timeoutSeconds"]))
            async with aclosing(lines):
                async for line in lines:
                    yield line
        finally:
            self._watches.pop(watch, None)
            watch.close()

    async def _lines(self, watch: Watch, seconds: float) -> AsyncGenerator[bytes, None]:
        """Yield lines until the API server ends the watch. Raises `Unavailable` if the connection
        is lost."""
        loop, weather = self._loop, self._weather
        end_s = loop.time() + seconds
        woken: asyncio.Future[None] | None = None

        def wake() -> None:
            if woken is not None and not woken.done():
                woken.set_result(None)

        watch.on_line = wake
        while not watch.ended or watch.lines:
            if not watch.lines:
                woken = loop.create_future()
                timer = loop.call_at(end_s, wake)
                try:
                    await woken
                finally:
                    timer.cancel()
                if not watch.lines and not watch.ended:
                    return
            await self._travel()
            if not self._reachable() or self._rng.random() < weather.lose_reply:
                await self._give_up()
            for line in watch.take():
                yield line

    def _close_watches(self) -> None:
        for watch in self._watches:
            watch.close()
        self._watches.clear()

    async def close(self) -> None:
        """Do nothing: there is no connection to close."""

    def _kept(self, request: HttpRequest) -> list[HttpRequest] | None:
        return next(
            (
                requests
                for (process, plural), requests in self._weather.kept.items()
                if process is self._process and plural in request.path.split("/")
            ),
            None,
        )

    def _reachable(self) -> bool:
        weather = self._weather
        return not (weather.down or weather.hung or self._process in weather.away_from)

    async def _travel(self) -> None:
        await asyncio.sleep(self._between(*self._weather.latency_us) / 1_000_000)

    async def _give_up(self) -> None:
        # A connection that was closed is known at once; silence takes its time.
        quick = self._weather.down or self._rng.random() < 0.3
        await asyncio.sleep(0.001 if quick else GIVE_UP_US / 1_000_000)
        raise Unavailable(0, "no answer")
