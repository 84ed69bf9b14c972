"""The API server in memory behind a socket, so that `kubectl` and other clients work against it.

It answers only the person who has its token, and as an administrator; its host binds it to
loopback. A web page that this person visits can send requests to loopback. Such a request lacks the
token, and is refused even before that check, because the browser names the page's site in `Origin`,
or in `Host` if a name was made to resolve to this machine (DNS rebinding). Protobuf is not
supported, so `kubectl create` needs a file (`-f`); `apply`, `get`, `describe`, `patch`, `label` and
`delete` work.
"""

from __future__ import annotations

import hmac
import json
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from email.utils import formatdate

import msgspec
from aiohttp import web

from plimsoll_core.addresses import host_and_port
from plimsoll_net.tls_policy import ServerTls
from plimsoll_operator.api_server import discovery, field_validation, tables
from plimsoll_operator.api_server.server import BODY_BYTES_MAX, MemoryApiServer, MemoryTransport
from plimsoll_operator.api_server.status_errors import StatusError
from plimsoll_operator.kube.kube_api import JSON, HttpRequest, Object

BEARER = "bearer"


@dataclass(frozen=True, slots=True)
class OwnerAccess:
    """Decides which HTTP requests a local API server answers. `token`: the secret that grants full
    access; `hosts`: the accepted values of the header Host, `name:port` in lower case."""

    token: str = field(repr=False)
    hosts: frozenset[str]

    def refusal(self, headers: Mapping[str, str]) -> StatusError | None:
        """Return None if a request with these headers states an accepted Host, comes from no web
        page and carries the token; else the error to answer. `headers` must look names up in any
        case."""
        if headers.get("Host", "").lower() not in self.hosts:
            text = f"the header Host must be {' or '.join(sorted(self.hosts))}"
            return StatusError(403, "Forbidden", text)
        if "Origin" in headers:
            return StatusError(
                403, "Forbidden", "requests from web pages (with the header Origin) are refused"
            )
        scheme, _, given = headers.get("Authorization", "").partition(" ")
        # Bytes that are not UTF-8 arrive as lone surrogates, which cannot be encoded otherwise.
        shown = given.strip().encode(errors="surrogatepass")
        right = hmac.compare_digest(shown, self.token.encode())
        if scheme.lower() != BEARER or not right:
            text = "Unauthorized: send the token that is in the local cluster's kubeconfig"
            return StatusError(401, "Unauthorized", text)
        return None


STOP_SECONDS = 1.0
OPENAPI_V2 = "/openapi/v2"
"""Path that `kubectl` requests for a kind that is not in `/openapi/v3`, before it reports the kind
as unknown. The response is an empty body, which is an empty Protobuf document."""
_OPENAPI_V2_TYPE = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf"
_OF_OBJECTS = frozenset({"ADDED", "MODIFIED", "DELETED"})
_WATCHES = ("1", "true")
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class ServedApi:
    """Serves a `MemoryApiServer` over HTTP. Call `start`, then read `url`; call `stop` to end all
    connections and watches."""

    def __init__(
        self,
        server: MemoryApiServer,
        *,
        token: str,
        host: str = "127.0.0.1",
        port: int = 0,
        views: Iterable[web.RouteDef] = (),
        tls: ServerTls | None = None,
    ) -> None:
        """Create a server that does not listen yet.

        `token`: the bearer token that every request must carry. `port`: 0 lets the kernel pick one.
        `views`: further routes to serve. `tls`: must have a certificate for `host`; None: plain
        HTTP, over which `kubectl` sends no token.
        """
        self._server = server
        self._transport = MemoryTransport(server)
        self._address = (host, port)
        self._token, self._tls = token, tls
        # No request is answered before the port is known.
        self._access = OwnerAccess(token, frozenset())

        @web.middleware
        async def admit(request: web.Request, handler: Handler) -> web.StreamResponse:
            refused = self._access.refusal(request.headers)
            if refused is not None:
                return web.json_response(refused.body, status=refused.status)
            return await handler(request)

        application = web.Application(client_max_size=2 * BODY_BYTES_MAX, middlewares=[admit])
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
        await web.TCPSite(self._runner, *self._address, ssl_context=self._tls).start()
        host, port = self._runner.addresses[0][:2]
        called = host_and_port(host, port)
        self._access = OwnerAccess(self._token, frozenset({called, f"localhost:{port}"}))
        self.url = f"{'http' if self._tls is None else 'https'}://{called}"

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
        body = await http.read()
        request = HttpRequest(
            method=http.method,
            path=http.path,
            params=dict(http.query),
            body=body,
            content_type=http.headers.get("Content-Type", "" if body else JSON),
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
        # The first line comes with the first event; the client waits for the status now.
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
