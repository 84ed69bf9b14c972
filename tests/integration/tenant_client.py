"""A client that speaks the protocol request by request, for tests in which one principal disturbs
others (tests/integration/tenants.py): it may leave replies unread, and send half a request."""

from __future__ import annotations

import asyncio
import socket
import ssl
import struct
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any, Final

from tests.plimsoll_core.security.scram_client import ScramClient

from plimsoll_wire.api_versions import ApiKey, is_flexible
from plimsoll_wire.headers import request_frame
from plimsoll_wire.messages import decode_response, encode_request

MECHANISM: Final = "SCRAM-SHA-512"
ANSWER_S = 30.0
"""As long as Kafka's clients wait for an answer by default."""
DEAF_BYTES = 4096
"""What a client that does not read buffers, and asks the kernel to buffer."""
RESET = struct.pack("ii", 1, 0)
LOST = (OSError, asyncio.IncompleteReadError, TimeoutError)
"""How a connection ends that the broker closes, or on which it does not answer."""
_NUMBERS = count(1)


class Refused(Exception):
    """An answer that is an error; the text names the request and the code."""


@dataclass(frozen=True, slots=True)
class Login:
    """A user of the cluster."""

    user: str
    password: str


@dataclass(frozen=True, slots=True)
class Place:
    """Where brokers listen, by id, the PEM file of the authority that signed for them, and the
    local cluster's directory, with which an owner of a namespace reaches the API server."""

    addresses: tuple[tuple[str, int], ...]
    authority: str
    directory: Path

    def context(self) -> ssl.SSLContext:
        return ssl.create_default_context(cafile=self.authority)


def frame(key: ApiKey, version: int, values: dict[str, Any]) -> bytes:
    """One request."""
    body = encode_request(key, version, values)
    return request_frame(key, version, next(_NUMBERS) % 2**31, "tenant", body)


class Peer:
    """One connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer

    @classmethod
    async def connect(
        cls, address: tuple[str, int], tls: ssl.SSLContext | None, *, deaf: bool = False
    ) -> Peer:
        """Raises OSError or TimeoutError.  `tls`: None is plaintext; `deaf`: little is buffered."""
        sock = socket.socket()
        sock.setblocking(False)
        if deaf:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, DEAF_BYTES)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(ANSWER_S):
                await loop.sock_connect(sock, address)
        except BaseException:
            sock.close()
            raise
        async with asyncio.timeout(ANSWER_S):
            # It is the transport's from here on, which closes it when this fails: closed earlier,
            # its number would be another socket's before the loop has forgotten the transport.
            reader, writer = await asyncio.open_connection(
                sock=sock,
                ssl=tls,
                server_hostname=address[0] if tls else None,
                limit=DEAF_BYTES if deaf else 2**22,
            )
        return cls(reader, writer)

    async def log_in(self, login: Login) -> None:
        """Raises Refused, or one of LOST."""
        told = await self.ask(ApiKey.SASL_HANDSHAKE, 1, {"mechanism": MECHANISM})
        if told.error_code:
            raise Refused(f"SaslHandshake: {told.error_code!r}")
        scram = ScramClient(login.user, login.password, MECHANISM)
        for step in (lambda _: scram.first(), scram.last):
            said = b"" if told is None else getattr(told, "auth_bytes", b"")
            told = await self.ask(ApiKey.SASL_AUTHENTICATE, 2, {"auth_bytes": step(said)})
            if told.error_code:
                raise Refused(f"SaslAuthenticate: {told.error_code!r}")
        assert scram.check(told.auth_bytes), "the broker knows the password"

    async def ask(self, key: ApiKey, version: int, values: dict[str, Any]) -> Any:
        """The answer; raises one of LOST."""
        async with asyncio.timeout(ANSWER_S):
            await self.send(frame(key, version, values))
            reply = await self.answered()
        head = 4 + (is_flexible(key, version) and key != ApiKey.API_VERSIONS)
        return decode_response(key, version, reply[head:])

    async def answered(self) -> bytes:
        """The next reply, whatever it says; raises one of LOST."""
        async with asyncio.timeout(ANSWER_S):
            (size,) = struct.unpack(">i", await self._reader.readexactly(4))
            return await self._reader.readexactly(size)

    async def send(self, data: bytes) -> None:
        """Waits until the transport has room again: for ever, where the broker reads nothing."""
        self._writer.write(data)
        await self._writer.drain()

    async def discard(self) -> int:
        """Read until the broker closes the connection; how many bytes came."""
        came = 0
        while data := await self._reader.read(2**16):
            came += len(data)
        return came

    def close(self) -> None:
        self._writer.transport.abort()
