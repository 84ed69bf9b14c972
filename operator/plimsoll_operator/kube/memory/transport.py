"""`Transport` over an API server in memory: every request is answered at once, none is lost.

A simulator puts latency and loss around this.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator

import msgspec

from plimsoll_operator.kube.errors import answered
from plimsoll_operator.kube.memory.server import MemoryApiServer
from plimsoll_operator.kube.memory.status import StatusError
from plimsoll_operator.kube.port import HttpRequest, HttpResponse

WATCH_SECONDS_DEFAULT = 300.0


class MemoryTransport:
    """Requests to one server."""

    def __init__(self, server: MemoryApiServer) -> None:
        self.server = server

    async def send(self, request: HttpRequest) -> HttpResponse:
        return self.server.handle(request)

    async def watch(self, request: HttpRequest) -> AsyncGenerator[bytes, None]:
        try:
            watch = self.server.watch(request)
        except StatusError as refused:
            body = msgspec.json.encode(refused.body)
            raise answered(request.method, request.path, refused.status, body) from refused
        woken = asyncio.Event()
        watch.on_line = woken.set
        seconds = float(request.params.get("timeoutSeconds") or WATCH_SECONDS_DEFAULT)
        loop = asyncio.get_running_loop()
        end_s = loop.time() + seconds
        try:
            while True:
                woken.clear()
                for line in watch.take():
                    yield line
                if watch.ended:
                    return
                if not watch.lines and not await _is_woken(woken, end_s - loop.time()):
                    return
        finally:
            watch.close()

    async def close(self) -> None:
        """Nothing is open."""


async def _is_woken(woken: asyncio.Event, seconds: float) -> bool:
    try:
        async with asyncio.timeout(max(seconds, 0)):
            await woken.wait()
    except TimeoutError:
        return False
    return True
