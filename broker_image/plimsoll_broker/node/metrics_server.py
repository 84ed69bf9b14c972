"""MetricsServer: a broker's HTTP endpoints: /metrics, and for the kubelet /healthz and /readyz.

Prometheus, the kubelet and `plimsoll local` send requests. /healthz: 200 while the event loop runs.
/readyz: 200 if the broker is unfenced and no partition's min ISR waits for it, so that a disruption
budget is right even without a controller.
"""

from __future__ import annotations

import asyncio
from functools import partial

from prometheus_client import (
    CollectorRegistry,
    GCCollector,
    PlatformCollector,
    ProcessCollector,
    generate_latest,
)

from plimsoll_broker.config import Address
from plimsoll_broker.node.broker_metrics import BrokerCollector, MeasuredNode
from plimsoll_broker.node.partition_measures import measured_in_slices
from plimsoll_core.addresses import to_listen
from plimsoll_net.http_bounds import HttpConnections, Rendering, refused_page

REQUEST_BYTES_MAX = 8_192
REQUEST_MS_MAX = 5_000
CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


class MetricsServer:
    """Serves /metrics on one port, and /healthz and /readyz on another; one request a connection.
    Without a health port the metrics port serves all three."""

    def __init__(self, node: MeasuredNode) -> None:
        self._registry = CollectorRegistry()
        self._collector = BrokerCollector(node)
        self._registry.register(self._collector)
        for of_library in (ProcessCollector, PlatformCollector, GCCollector):
            of_library(registry=self._registry)
        self._node = node
        self._metrics = Rendering(self._rendered)
        self._servers: list[asyncio.Server] = []
        # One for each server, in the same order.
        self.connections: list[HttpConnections] = []

    async def start(self, metrics: Address | None, health: Address | None = None) -> None:
        """Listen on these addresses. With None, the port is not opened."""
        both = frozenset({b"/metrics", b"/healthz", b"/readyz"})
        alone = both - {b"/metrics"}
        await self._listen(metrics, both if health is None else both - alone)
        await self._listen(health, alone)

    async def _listen(self, address: Address | None, paths: frozenset[bytes]) -> None:
        if address is None:
            return
        loop = asyncio.get_running_loop()

        connections = HttpConnections()

        def session() -> asyncio.StreamReaderProtocol:
            reader = asyncio.StreamReader(REQUEST_BYTES_MAX, loop)
            serve = partial(self._serve, paths, connections)
            return asyncio.StreamReaderProtocol(reader, serve, loop)

        self.connections.append(connections)
        factory = connections.bounded(session)
        host = to_listen(address.host)
        self._servers.append(await loop.create_server(factory, host, address.port))

    @property
    def ports(self) -> list[int]:
        """The ports that are open, in the order in which they were opened."""
        return [server.sockets[0].getsockname()[1] for server in self._servers]

    async def close(self) -> None:
        for server in self._servers:
            server.close()

    async def _serve(
        self,
        paths: frozenset[bytes],
        connections: HttpConnections,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> None:
        answered = False
        try:
            async with asyncio.timeout(REQUEST_MS_MAX / 1000):
                head = await reader.readuntil(b"\r\n\r\n")
                answer = _refused(head, writer) or await self._answer(head, paths)
                # uvloop's transport, unlike asyncio's, rejects writes once its peer is gone.
                connections.makes_room(len(answer))
                if not writer.transport.is_closing():
                    writer.write(answer)
                    await writer.drain()
                    answered = True
        except (OSError, TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            return
        finally:
            if answered:
                writer.close()
            else:
                # Closing would wait for a peer that does not read.
                writer.transport.abort()

    async def _rendered(self) -> bytes:
        """Return the text of /metrics."""
        if self._node.manager is not None:
            self._collector.prepared = await measured_in_slices(self._node.manager)
        return generate_latest(self._registry) + self._lag

    @property
    def _lag(self) -> bytes:
        """The groups' lag as Prometheus text, from the last look at the groups; empty if lag is not
        measured."""
        found = self._node.coordinators
        return b"" if found is None else found.measures.seen.lag_text

    async def _answer(self, head: bytes, paths: frozenset[bytes]) -> bytes:
        words = head.split(b"\r\n", 1)[0].split(b" ")
        if len(words) != 3 or words[0] != b"GET":
            return _response("400 Bad Request", b"only GET\n")
        match words[1]:
            case path if path not in paths:
                return _response("404 Not Found", b"not found\n")
            case b"/metrics":
                return _response("200 OK", await self._metrics.page())
            case b"/healthz":
                return _response("200 OK", b"ok\n")
            case b"/readyz" if self._node.ready:
                return _response("200 OK", b"ready\n")
            case _:
                why = self._node.unknown_metadata or "not ready"
                return _response("503 Service Unavailable", why.encode() + b"\n")


def _refused(head: bytes, writer: asyncio.StreamWriter) -> bytes:
    """Return the response that refuses a request from a web page; empty if the request is
    accepted."""
    lines = (line.partition(":") for line in head.decode("latin-1").split("\r\n"))
    headers = {name.strip().lower(): value.strip() for name, _, value in lines}
    local = writer.get_extra_info("sockname")
    why = refused_page(local, headers.get("host", ""), from_page="origin" in headers)
    return _response("403 Forbidden", f"{why}\n".encode()) if why else b""


def _response(status: str, body: bytes) -> bytes:
    head = (
        f"HTTP/1.1 {status}\r\nContent-Type: {CONTENT_TYPE}\r\n"
        f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    )
    return head.encode() + body
