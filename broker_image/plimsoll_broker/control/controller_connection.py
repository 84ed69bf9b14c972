"""ControlConnection: one connection to a controller, with replies matched by correlation id.

The controller client uses one for commands, the metadata stream another. Replies may overtake. When
the connection is lost every request fails; callers bound their waits.
"""

from __future__ import annotations

import asyncio
from typing import cast

from plimsoll_broker.inside import InsidePeers
from plimsoll_core.messages.metadata_stream import FetchMetadata
from plimsoll_net.dialling import Link, PeerAddress
from plimsoll_wire import control
from plimsoll_wire.framing import Framer, FrameTooLarge

IN_FLIGHT_MAX = 256


class ControlConnection(asyncio.Protocol):
    """Made by `connect`."""

    def __init__(self, client_id: str) -> None:
        self._client_id = client_id
        self._framer = Framer(control.REPLY_BYTES_MAX)
        self._transport: asyncio.Transport | None = None
        self._waiting: dict[int, asyncio.Future[bytes]] = {}
        self._correlation_id = 0
        # The TLS state of the connection. None if it never becomes outdated.
        self.link: Link | None = None
        # The reason to close it once nothing waits, or empty.
        self._leaving = ""

    @property
    def closed(self) -> bool:
        return self._transport is None or self._transport.is_closing()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports are not asyncio.Transport by inheritance, only by what they do.
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        try:
            self._framer.receive(data)
            while (frame := self._framer.next_frame()) is not None:
                future = self._waiting.pop(control.reply_correlation_id(frame), None)
                if future is not None and not future.done():
                    future.set_result(bytes(frame))
        except (control.MalformedControlMessage, FrameTooLarge) as error:
            self.close(f"the controller's reply cannot be read: {error}")

    def connection_lost(self, exc: Exception | None) -> None:
        self._fail(f"the connection was lost: {exc or 'closed by the controller'}")
        self._transport = None

    def close(self, why: str) -> None:
        """Abort the connection; pending requests fail with `why`."""
        self._fail(why)
        if self._transport is not None:
            self._transport.abort()

    def close_when_idle(self, why: str) -> None:
        """Close the connection once its pending requests are answered."""
        self._leaving = why
        if not self._waiting:
            self.close(why)

    def _fail(self, why: str) -> None:
        waiting, self._waiting = self._waiting, {}
        for future in waiting.values():
            if not future.done():
                future.set_exception(ConnectionError(why))

    async def command(self, command: control.Command, timeout_ms: int) -> control.CommandReply:
        """Raises ConnectionError or TimeoutError."""
        return control.decode_command_reply(await self._call(command, timeout_ms))

    async def fetch_metadata(self, fetch: FetchMetadata, timeout_ms: int) -> control.MetadataReply:
        """Raises ConnectionError or TimeoutError."""
        return control.decode_metadata_reply(await self._call(fetch, timeout_ms))

    async def _call(self, body: control.Command | FetchMetadata, timeout_ms: int) -> bytes:
        if self.closed or len(self._waiting) >= IN_FLIGHT_MAX:
            raise ConnectionError("the connection is closed" if self.closed else "too many calls")
        assert self._transport is not None
        self._correlation_id = (self._correlation_id + 1) & 0x7FFF_FFFF
        number = self._correlation_id
        future: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self._waiting[number] = future
        self._transport.write(control.encode_request(number, self._client_id, body))
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                return await future
        finally:
            self._waiting.pop(number, None)
            if self._leaving and not self._waiting:
                self.close(self._leaving)


async def connect(
    host: str, port: int, client_id: str, timeout_ms: int, inside: InsidePeers
) -> ControlConnection:
    """Raises OSError or TimeoutError."""
    async with asyncio.timeout(timeout_ms / 1000):
        connection, link = await inside.controller(
            lambda: ControlConnection(client_id), PeerAddress(host, port)
        )
    connection.link = link
    return connection
