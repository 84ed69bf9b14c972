"""The operator's HTTP server: metrics and the view of clusters on one port; liveness and readiness,
which the kubelet probes, on another."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError

from plimsoll_net.http_bounds import HttpConnections, Rendering, refused_page
from plimsoll_operator.leadership.process_parts import Parts
from plimsoll_operator.process.views import Guard, Views

Answer = web.Response
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

logger = logging.getLogger("plimsoll.http")


def _is_ours(record: logging.LogRecord) -> bool:
    """Return False for a log record about a malformed request. The reply tells the client, and
    clients could flood the log."""
    error = record.exc_info[1] if record.exc_info else None
    return not isinstance(error, HttpProcessingError)


logger.addFilter(_is_ours)


@web.middleware
async def _local(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Middleware that refuses requests of web pages with 403: a page in a user's browser must not
    read a port that is forwarded to the user's machine."""
    local = request.transport.get_extra_info("sockname") if request.transport else None
    headers = request.headers
    if why := refused_page(local, headers.get("Host", ""), from_page="Origin" in headers):
        return web.Response(status=403, text=f"{why}\n")
    return await handler(request)


class HttpServer:
    """Serves metrics, views and probes of one operator process. `/readyz` answers 200 once `ready`
    returns True, which it does after the watches have begun, and 503 before. `guard` decides access
    to the views; None admits every request that reaches the port."""

    def __init__(self, parts: Parts, ready: Callable[[], bool], guard: Guard | None = None) -> None:
        self._parts = parts
        self._views = Views(parts, guard)
        self._ready = ready
        self._rendering = Rendering(self._rendered)
        self._runners: list[web.AppRunner] = []
        self._servers: list[asyncio.Server] = []

    @property
    def views(self) -> list[web.RouteDef]:
        """Return the routes of the clusters' views, for a host that serves them on a port of its
        own."""
        return self._views.routes

    async def start(self, metrics_port: int, health_port: int) -> None:
        health = [web.get("/healthz", self._alive), web.get("/readyz", self._readiness)]
        await self._serve([*self._of_metrics, *self.views], None, metrics_port)
        await self._serve(health, None, health_port)

    async def start_metrics(self, host: str, port: int) -> None:
        await self._serve(self._of_metrics, host, port)

    @property
    def _of_metrics(self) -> list[web.RouteDef]:
        return [web.get("/metrics", self._metrics)]

    async def _serve(self, routes: list[web.RouteDef], host: str | None, port: int) -> None:
        """Serve the routes on a port of `host`; None: on every address, IPv4 and IPv6."""
        connections = HttpConnections()

        @web.middleware
        async def bounded(request: web.Request, handler: Handler) -> web.StreamResponse:
            """Middleware that has peers which do not take their replies make room for others."""
            answer = await handler(request)
            if isinstance(answer, web.Response) and isinstance(answer.body, bytes):
                connections.makes_room(len(answer.body))
            return answer

        app = web.Application(middlewares=[bounded, _local])
        app.add_routes(routes)
        runner = web.AppRunner(app, access_log=None, logger=logger)
        self._runners.append(runner)
        await runner.setup()
        assert runner.server is not None, "set up"
        factory = connections.bounded(runner.server)
        loop = asyncio.get_running_loop()
        self._servers.append(await loop.create_server(factory, host, port))

    @property
    def addresses(self) -> list[list[Any]]:
        """Return the socket addresses on which each server listens, that of metrics and views
        first."""
        return [[one.getsockname() for one in server.sockets] for server in self._servers]

    async def close(self) -> None:
        for server in self._servers:
            server.close()
        for runner in self._runners:
            await runner.cleanup()

    async def _alive(self, request: web.Request) -> Answer:
        return web.Response(text="ok\n")

    async def _readiness(self, request: web.Request) -> Answer:
        ready = self._ready()
        return web.Response(text="ready\n" if ready else "starting\n", status=200 if ready else 503)

    async def _metrics(self, request: web.Request) -> Answer:
        return web.Response(
            body=await self._rendering.page(),
            headers={"Content-Type": "text/plain; version=0.0.4; charset=utf-8"},
        )

    async def _rendered(self) -> bytes:
        await self._parts.metrics.prepare()
        return self._parts.metrics.render()
