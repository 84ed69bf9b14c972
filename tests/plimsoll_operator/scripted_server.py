"""An HTTP server on a socket that keeps every request, and answers as told, byte by byte."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from tests.served import serve


@dataclass(frozen=True)
class Received:
    method: str
    target: str
    headers: dict[str, str]
    body: bytes

    @property
    def path(self) -> str:
        return urlsplit(self.target).path

    @property
    def params(self) -> dict[str, str]:
        return dict(parse_qsl(urlsplit(self.target).query, strict_parsing=True))


@dataclass(frozen=True)
class Reply:
    """`body` and then, for ever, nothing if the answer `stalls`."""

    status: int = 200
    body: bytes = b"{}"
    headers: dict[str, str] = field(default_factory=dict)
    stalls: bool = False

    def encoded(self) -> bytes:
        length = len(self.body) + self.stalls
        lines = [f"HTTP/1.1 {self.status} x", f"Content-Length: {length}"]
        lines += [f"{name}: {value}" for name, value in self.headers.items()]
        return "\r\n".join([*lines, "", ""]).encode() + self.body


def reply(body: Any, status: int = 200, **headers: str) -> Reply:
    return Reply(status=status, body=json.dumps(body).encode(), headers=headers)


CLOSES = Reply(status=0)
"""The connection, without an answer."""
SILENT = Reply(status=0, stalls=True)
"""No answer, and an open connection."""


ACCEPTED_TURNS = 5
"""Of the event loop, in which a connection that was accepted gets to `accept`."""


class ScriptedServer:
    """`replies` are used up in turn; after them every request gets `{}`."""

    def __init__(self) -> None:
        self.replies: list[Reply] = []
        self.received: list[Received] = []
        self.connections = 0
        self.url = ""
        self._tasks: set[asyncio.Task[None]] = set()

    def accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        serve(self._tasks, self._serve(reader, writer), writer)

    async def close(self) -> None:
        """No connection is left open."""
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while (request := await _read(reader)) is not None:
                self.received.append(request)
                answer = self.replies.pop(0) if self.replies else Reply()
                if answer == SILENT:
                    continue
                if answer == CLOSES:
                    return
                writer.write(answer.encoded())
                await writer.drain()
        except ConnectionError:
            return


async def _read(reader: asyncio.StreamReader) -> Received | None:
    try:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
    except asyncio.IncompleteReadError:
        return None
    first, *lines = head.strip().split("\r\n")
    method, target, _ = first.split(" ")
    headers = {name.lower(): value for name, value in (line.split(": ", 1) for line in lines)}
    body = await reader.readexactly(int(headers.get("content-length", 0)))
    return Received(method, target, headers, body)


@asynccontextmanager
async def scripted(*replies: Reply) -> AsyncIterator[ScriptedServer]:
    found = ScriptedServer()
    found.replies += replies
    server = await asyncio.start_server(found.accept, "127.0.0.1", 0)
    found.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    try:
        yield found
    finally:
        # asyncio leaves a connection open that it has accepted when its server is closed.
        for _ in range(ACCEPTED_TURNS):
            await asyncio.sleep(0)
        server.close()
        await found.close()
