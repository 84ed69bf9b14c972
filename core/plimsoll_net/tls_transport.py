"""A session's transport over TLS, with the interface of a plain one.

It reports exactly how many of the written bytes are unsent. Bytes are encrypted in pieces, one
piece in each turn of the event loop, and only after the kernel has taken the previous piece. So a
reply of 16 MiB neither blocks the loop nor is in memory twice. The TLS transports of asyncio and
uvloop encrypt whatever they are given at once, and do not count the bytes in the plain transport
below.
"""

from __future__ import annotations

import asyncio
import ssl
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any, Protocol, cast

Buffer = bytes | bytearray | memoryview

BYTES_A_TURN = 256 * 1024
"""Maximum bytes of one connection that are encrypted, and decrypted, in one turn of the event loop.
Each takes a quarter of a millisecond."""
_JOINED_BYTES = 16 * 1024
"""Queued pieces with up to this many bytes together are encrypted as one TLS record."""


class ServedProtocol(Protocol):
    """The session of a connection: an asyncio.BufferedProtocol that uses the connection."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None: ...
    def connection_lost(self, exc: Exception | None) -> None: ...
    def get_buffer(self, sizehint: int) -> memoryview: ...
    def buffer_updated(self, nbytes: int) -> None: ...
    def eof_received(self) -> bool | None: ...
    def pause_writing(self) -> None: ...
    def resume_writing(self) -> None: ...


class Encrypting(Protocol):
    """The part of a TLS connection that TlsTransport uses."""

    @property
    def session(self) -> ServedProtocol | None:
        """Return the session, or None once the connection is lost."""

    def encrypt(self, piece: Buffer) -> None:
        """Encrypt a piece; `flush` sends it. After ssl.SSLError the connection cannot be used."""

    def flush(self) -> None: ...
    def say_goodbye(self) -> None: ...
    def pause(self) -> None: ...
    def resume(self) -> None: ...
    def tell_when_drained(self) -> None:
        """Have the transport's `stuck` called while encrypted bytes are unsent, and its `drained`
        once the kernel has taken all of them."""

    def info(self, name: str, default: Any) -> Any: ...


class TlsTransport(asyncio.Transport):
    """The transport that a session writes to. Its data is encrypted in pieces as the kernel takes
    them."""

    def __init__(self, connection: Encrypting, plain: asyncio.Transport) -> None:
        super().__init__()
        self._connection = connection
        self._plain = plain
        self._call_soon: Callable[..., object] = asyncio.get_running_loop().call_soon
        # Not encrypted yet, in order, and how many bytes that is.
        self._queue: deque[Buffer] = deque()
        self._queued = 0
        # True if the kernel does not take what was encrypted.
        self._stuck = False
        # True if the next piece is on its way.
        self._scheduled = False
        # True if the session was told to pause.
        self._full = False
        # True if it closes once the queue has left.
        self._closing = False
        self._high = BYTES_A_TURN

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self._high = BYTES_A_TURN if high is None else high

    def get_write_buffer_size(self) -> int:
        return self._queued + self._plain.get_write_buffer_size()

    def writelines(self, list_of_data: Iterable[Any]) -> None:
        if self.is_closing():
            return
        for piece in list_of_data:
            if piece:
                self._queue.append(piece)
                self._queued += len(piece)
        if not self._scheduled and not self._stuck:
            self._hand_over()
        if not self._full and self.get_write_buffer_size() > self._high:
            self._full = True
            self._session.pause_writing()
            if not self._queue and not self._stuck:
                self._go_on()

    def write(self, data: Any) -> None:
        self.writelines((data,))

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return self._connection.info(name, default)

    def is_closing(self) -> bool:
        return self._closing or self._plain.is_closing()

    def close(self) -> None:
        """Close the connection once everything queued has been encrypted and passed on."""
        if not self._closing:
            self._closing = True
            if not self._queue:
                self._finish()

    def abort(self) -> None:
        self._closing = True
        self._queue.clear()
        self._queued = 0
        self._plain.abort()

    def pause_reading(self) -> None:
        self._connection.pause()

    def resume_reading(self) -> None:
        self._connection.resume()

    # --- pieces -----------------------------------------------------------------------------------

    @property
    def _session(self) -> ServedProtocol:
        session = self._connection.session
        return session if session is not None else _GONE

    def stuck(self) -> None:
        self._stuck = True

    def drained(self) -> None:
        self._stuck = False
        self._go_on()

    def _hand_over(self) -> None:
        self._scheduled = False
        left = BYTES_A_TURN
        try:
            while self._queue and left > 0:
                left -= self._encrypt(left)
        except ssl.SSLError:
            self.abort()
            return
        self._connection.flush()
        if not self._stuck:
            self._go_on()

    def _encrypt(self, most: int) -> int:
        """Encrypt the first piece of the queue, at most `most` bytes of it, or several small ones
        together. Return the number of bytes."""
        piece = self._queue.popleft()
        if len(piece) < _JOINED_BYTES and self._queue:
            first = memoryview(self._queue.popleft())
            room = max(_JOINED_BYTES - len(piece), 0)
            if len(first) > room:
                self._queue.appendleft(first[room:])
            piece = b"".join((piece, first[:room]))
        elif len(piece) > most:
            view = memoryview(piece)
            self._queue.appendleft(view[most:])
            piece = view[:most]
        self._queued -= len(piece)
        self._connection.encrypt(piece)
        return len(piece)

    def _go_on(self) -> None:
        if self._plain.is_closing():
            return
        if self._queue:
            if not self._scheduled:
                self._scheduled = True
                self._call_soon(self._turn)
        elif self._closing:
            self._finish()
        elif self._full and self._plain.get_write_buffer_size():
            # Too little for the plain transport to say by itself when it has left.
            self._connection.tell_when_drained()
        elif self._full:
            self._full = False
            self._session.resume_writing()

    def _turn(self) -> None:
        if self._queue and not self._stuck and not self._plain.is_closing():
            self._hand_over()
        else:
            self._scheduled = False

    def _finish(self) -> None:
        self._connection.say_goodbye()
        self._plain.close()


class _Gone:
    """Stands for a session that is lost, and ignores all calls."""

    def pause_writing(self) -> None:
        pass

    def resume_writing(self) -> None:
        pass


_GONE = cast("ServedProtocol", _Gone())
