"""The API server in memory behind a socket, so that `kubectl` and other clients work against it.

No TLS and no credentials: every client that connects is an administrator; a host binds it to
loopback.  Protobuf is not spoken, so `kubectl create` needs a file (`-f`); `apply`, `get`,
`describe`, `patch`, `label` and `delete` work.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from email.utils import formatdate

import msgspec
from aiohttp import web

from plimsoll_operator.kube.memory import discovery, field_validation, tables
from plimsoll_operator.kube.memory.server import BODY_BYTES_MAX, MemoryApiServer
from plimsoll_operator.kube.memory.status_errors import StatusError
from plimsoll_operator.kube.memory.transport import MemoryTransport
from plimsoll_operator.kube.port import JSON, HttpRequest, Object

STOP_SECONDS = 1.0
OPENAPI_V2 = "/openapi/v2"
"""Where `kubectl` looks for a kind that is not in `/openapi/v3`, before it says that there is none:
an empty document in protobuf is no bytes at all."""
_OPENAPI_V2_TYPE = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf"
_OF_OBJECTS = frozenset({"ADDED", "MODIFIED", "DELETED"})
_WATCHES = ("1", "true")


class ServedApi:
    """`start`, then `url`; `stop` ends what is being watched."""

    def __init__(
        self,
        server: MemoryApiServer,
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        views: Iterable[web.RouteDef] = (),
    ) -> None:
        """Port 0: the kernel picks one.  `views`: what else is served there."""
        self._server = server
        self._transport = MemoryTransport(server)
        self._address = (host, port)
        application = web.Application(client_max_size=2 * BODY_BYTES_MAX)
        application.add_routes(views)
        application.router.add_route("*", "/{path:.*}", self._serve)
        self._runner = web.AppRunner(
            application,
            shutdown_timeout=STOP_SECONDS,
            handler_cancellation=True,
            access_log=None,
        )
        self.url = ""

    async def start(self) -> None:
        await self._runner.setup()
        await web.TCPSite(self._runner, *self._address).start()
        host, port = self._runner.addresses[0][:2]
        self.url = f"http://{host}:{port}"

    async def stop(self) -> None:
        await self._runner.cleanup()

    async def _serve(self, http: web.Request) -> web.StreamResponse:
        if http.method == "GET":
            resources = list(self._server.store.resources.values())
            found = discovery.document(http.path.rstrip("/"), resources)
            if found is not None:
                return web.json_response(found)
            if http.path == OPENAPI_V2:
                return web.Response(content_type=_OPENAPI_V2_TYPE)
        request = HttpRequest(
            method=http.method,
            path=http.path,
            params=dict(http.query),
            body=await http.read(),
            content_type=http.headers.get("Content-Type", JSON),
            accept=http.headers.get("Accept", JSON),
        )
        if http.method == "GET" and http.query.get("watch") in _WATCHES:
            return await self._watch(http, request)
        if self._server.is_of_tokens(request):
            told = self._server.handle(request)
            return web.Response(status=told.status, body=told.body, content_type=JSON)
        try:
            warnings = field_validation.unknown(self._server, request)
        except StatusError as error:
            return web.json_response(error.body, status=error.status)
        answer = await self._transport.send(request)
        body = answer.body
        if http.method == "GET" and answer.status == 200 and tables.ACCEPT in request.accept:
            body = msgspec.json.encode(self._table(request, msgspec.json.decode(body)))
        response = web.Response(status=answer.status, body=body, content_type=JSON)
        if answer.server_ms is not None:
            response.headers["Date"] = _date(answer.server_ms)
        for text in warnings:
            response.headers.add("Warning", f"299 - {json.dumps(text)}")
        return response

    async def _watch(self, http: web.Request, request: HttpRequest) -> web.StreamResponse:
        try:
            self._server.watch(request).close()
        except StatusError as error:
            return web.json_response(error.body, status=error.status)
        response = web.StreamResponse(headers={"Content-Type": JSON})
        # The first line comes when something happens; the client waits for the status now.
        await response.prepare(http)
        as_table = tables.ACCEPT in request.accept
        async for line in self._transport.watch(request):
            if as_table:
                change = msgspec.json.decode(line)
                if change["type"] in _OF_OBJECTS:
                    change["object"] = self._table(request, change["object"])
                line = msgspec.json.encode(change)
            await response.write(line + b"\n")
        return response

    def _table(self, request: HttpRequest, body: Object) -> Object:
        resource = self._server.target(request.path).resource
        return tables.table(resource, body, self._server.now_ms())


def _date(server_ms: int) -> str:
    return formatdate(server_ms / 1_000, usegmt=True)
