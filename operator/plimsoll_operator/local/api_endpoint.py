"""The API server of a local cluster on loopback, for `kubectl`; on the same port the operator's
metrics and its view of partitions, which have a port of their own in Kubernetes.

The HTTP library takes a third of a second to import: it is imported in a thread, while brokers
start.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from plimsoll_operator.kube.memory.server import MemoryApiServer
from plimsoll_operator.leadership.process_parts import Parts
from plimsoll_operator.local.ports import LOOPBACK

if TYPE_CHECKING:
    from plimsoll_operator.kube.memory.serving import ServedApi
    from plimsoll_operator.process.http_server import Health


class ApiEndpoint:
    """`start`, then `url`; `stop` in any case."""

    def __init__(self, server: MemoryApiServer, port: int, parts: Parts) -> None:
        # Where it is served; empty before that.
        self.url = ""
        self._server = server
        self._port = port
        self._parts = parts
        self._imported = asyncio.ensure_future(asyncio.to_thread(_import))
        self._served: ServedApi | None = None

    async def start(self) -> None:
        """Raises OSError when the port is taken."""
        served, health = await self._imported
        views = health(self._parts, lambda: True).views
        self._served = served(self._server, host=LOOPBACK, port=self._port, views=views)
        await self._served.start()
        self.url = self._served.url

    async def stop(self) -> None:
        await asyncio.wait([self._imported])
        if self._served is not None:
            await self._served.stop()


def _import() -> tuple[type[ServedApi], type[Health]]:
    from plimsoll_operator.kube.memory.serving import ServedApi
    from plimsoll_operator.process.http_server import Health

    return ServedApi, Health
