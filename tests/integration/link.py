"""A TCP link that a test can cut: it listens on a port of its own and passes bytes on.

It runs in a thread with an event loop of its own; every call returns once the link is that way.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
import threading
from collections.abc import Coroutine, Iterator
from types import TracebackType
from typing import Any

CHUNK = 64 * 1024
RESET = struct.pack("ii", 1, 0)
CALL_S = 5.0


class Link:
    """`passed` counts connections; `cut` ends them all, `hold` lets none of their bytes through."""

    def __init__(self, target: tuple[str, int]) -> None:
        self.passed = 0
        self.port = 0
        self._target = target
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever)
        self._server: asyncio.Server | None = None
        self._open = asyncio.Event()
        self._ends: set[asyncio.StreamWriter] = set()

    def __enter__(self) -> Link:
        self._thread.start()
        self._call(self._listen())
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._call(self._refuse(reset=False))
        self._call(self._finish())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(CALL_S)
        self._loop.close()

    @property
    def now_open(self) -> int:
        """Connections that pass through it at the moment."""
        return len(self._ends) // 2

    @contextlib.contextmanager
    def cut(self, *, reset: bool) -> Iterator[None]:
        """Within: every connection is closed (or reset), and new ones are refused."""
        self._call(self._refuse(reset=reset))
        try:
            yield
        finally:
            self._call(self._listen())

    @contextlib.contextmanager
    def hold(self) -> Iterator[None]:
        """Within: connections stay, new ones are taken, and nothing comes through."""
        self._loop.call_soon_threadsafe(self._open.clear)
        try:
            yield
        finally:
            self._loop.call_soon_threadsafe(self._open.set)

    def _call(self, work: Coroutine[Any, Any, None]) -> None:
        asyncio.run_coroutine_threadsafe(work, self._loop).result(CALL_S)

    async def _listen(self) -> None:
        self._open.set()
        self._server = await asyncio.start_server(
            self._accept, "127.0.0.1", self.port, reuse_address=True
        )
        self.port = self._server.sockets[0].getsockname()[1]

    async def _refuse(self, *, reset: bool) -> None:
        assert self._server is not None
        self._server.close()
        for end in self._ends:
            if reset:
                own: socket.socket = end.get_extra_info("socket")
                own.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
                end.transport.abort()
            else:
                end.close()
        self._open.set()

    async def _finish(self) -> None:
        """Until the connections have ended."""
        mine = asyncio.current_task()
        others = [task for task in asyncio.all_tasks() if task is not mine]
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.passed += 1
        try:
            await self._open.wait()
            far_reader, far_writer = await asyncio.open_connection(*self._target)
        except OSError:
            writer.close()
            return
        both = {writer, far_writer}
        self._ends |= both
        try:
            ways = (self._pass(reader, far_writer), self._pass(far_reader, writer))
            await asyncio.gather(*ways)
        finally:
            self._ends -= both
            for end in both:
                end.close()

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Until one side has nothing more to say: then the other is told."""
        with contextlib.suppress(OSError):
            while data := await reader.read(CHUNK):
                await self._open.wait()
                writer.write(data)
                await writer.drain()
        writer.close()
