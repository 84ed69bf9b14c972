"""`Transport` over an API server in memory: every request is answered at once, none is lost.

A simulator adds latency and loss around it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator

import msgspec

from plimsoll_operator.api_server.server import MemoryApiServer
from plimsoll_operator.api_server.status_errors import StatusError
from plimsoll_operator.kube.errors import answered
from plimsoll_operator.kube.kube_api import HttpRequest, HttpResponse
from plimsoll_process.waits import set_within

WATCH_SECONDS_DEFAULT = 300.0


class MemoryTransport:
    """Transport to one server."""

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
                if not watch.lines and not await set_within(woken, max(end_s - loop.time(), 0)):
                    return
        finally:
            watch.close()

    async def close(self) -> None:
        """Do nothing: no connection is open."""
