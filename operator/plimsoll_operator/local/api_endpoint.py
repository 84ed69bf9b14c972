"""The API server of a local cluster on loopback, for `kubectl`.

Its HTTP library takes a third of a second to import: it is imported in a thread, while brokers
start.
"""

from __future__ import annotations

import asyncio
from types import ModuleType
from typing import TYPE_CHECKING

from plimsoll_operator.kube.memory.server import MemoryApiServer
from plimsoll_operator.local.layout import LOOPBACK

if TYPE_CHECKING:
    from plimsoll_operator.kube.memory.serving import ServedApi


class ApiEndpoint:
    """`start`, then `url`; `stop` in any case."""

    def __init__(self, server: MemoryApiServer, port: int) -> None:
        # Where it is served; empty before that.
        self.url = ""
        self._server = server
        self._port = port
        self._imported = asyncio.ensure_future(asyncio.to_thread(_import))
        self._served: ServedApi | None = None

    async def start(self) -> None:
        """Raises OSError when the port is taken."""
        serving = await self._imported
        self._served = serving.ServedApi(self._server, host=LOOPBACK, port=self._port)
        await self._served.start()
        self.url = self._served.url

    async def stop(self) -> None:
        await asyncio.wait([self._imported])
        if self._served is not None:
            await self._served.stop()


def _import() -> ModuleType:
    from plimsoll_operator.kube.memory import serving

    return serving
