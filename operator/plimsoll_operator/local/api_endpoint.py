"""Serves the API server of a local cluster on loopback, for `kubectl`, with the operator's view of
partitions; and the operator's metrics on a port of their own, as in Kubernetes.

The API server uses TLS and requires a token. Certificate and token are new at each start; the
kubeconfig holds both, for the owner of the directory. (`kubectl` sends a token over TLS only.)
Metrics need no token, since scrapers have none.

The HTTP library takes a third of a second to import, so a thread imports it while brokers start.
"""

from __future__ import annotations

import asyncio
import secrets
from dataclasses import dataclass
from typing import TYPE_CHECKING

from plimsoll_net.tls_policy import ServerTls, pair_context
from plimsoll_operator.api_server.server import MemoryApiServer
from plimsoll_operator.leadership.process_parts import Parts
from plimsoll_operator.local.layout import OwnerCredentials
from plimsoll_operator.pki.authority import issue, new_authority

if TYPE_CHECKING:
    from plimsoll_operator.api_server.serving import ServedApi
    from plimsoll_operator.process.http_server import HttpServer


TOKEN_BYTES = 32


class ApiAccess:
    """The TLS certificate and the owner's token of a local API server at `address`. Both are new
    with each start."""

    def __init__(self, address: str, now_ms: int) -> None:
        authority = new_authority("plimsoll local", now_ms)
        self._shown = issue(authority, (address, "localhost"), now_ms)
        self.owner = OwnerCredentials(
            token=secrets.token_urlsafe(TOKEN_BYTES), authority=authority.certificate
        )

    def tls(self) -> ServerTls:
        return pair_context(self._shown.certificate + self._shown.key)


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiPlace:
    """The address and the ports of a local API server, and of the operator's metrics."""

    address: str
    port: int
    metrics_port: int


class ApiEndpoint:
    """Serves the API server and the metrics of one local cluster. Call `start`, then read `url`;
    call `stop` even if `start` failed."""

    def __init__(
        self, server: MemoryApiServer, place: ApiPlace, access: ApiAccess, parts: Parts
    ) -> None:
        # The URL; empty before `start`.
        self.url = ""
        self._server = server
        self._place = place
        self._access = access
        self._parts = parts
        self._imported = asyncio.ensure_future(asyncio.to_thread(_import))
        self._served: ServedApi | None = None
        self._health: HttpServer | None = None

    async def start(self) -> None:
        """Listen on both ports and set `url`. Raises OSError if one of the ports is taken."""
        served, health = await self._imported
        place = self._place
        self._health = health(self._parts, lambda: True)
        await self._health.start_metrics(place.address, place.metrics_port)
        self._served = served(
            self._server,
            token=self._access.owner.token,
            host=place.address,
            port=place.port,
            views=self._health.views,
            tls=self._access.tls(),
        )
        await self._served.start()
        self.url = self._served.url

    async def stop(self) -> None:
        await asyncio.wait([self._imported])
        if self._served is not None:
            await self._served.stop()
        if self._health is not None:
            await self._health.close()


def _import() -> tuple[type[ServedApi], type[HttpServer]]:
    from plimsoll_operator.api_server.serving import ServedApi
    from plimsoll_operator.process.http_server import HttpServer

    return ServedApi, HttpServer
