"""ReplySender: a session's replies that the transport holds and the peer has not taken.

Owned by a `Session`. A reply is held on the connection's account from when it is ready until the
kernel has it. It also reports how long the peer has taken nothing.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterable

from plimsoll_broker.server.client_memory_pools import Account
from plimsoll_broker.server.dispatch import Buffer, Reply
from plimsoll_broker.server.recent_progress import Progress
from plimsoll_wire.headers import RequestHeader, response_head


class Granted(list[Buffer]):
    """A reply in pieces, of which `granted` bytes are on its connection's account already."""

    def __init__(self, pieces: Iterable[Buffer], granted: int) -> None:
        super().__init__(pieces)
        self.granted = granted


_SEVERAL = (list, tuple)
_ONE_PIECE = (bytes, bytearray, memoryview)
_COPIED_BYTES = 4096
"""A one-piece reply below this size is copied behind its head."""


def size_of(reply: Reply) -> int:
    """Return the bytes of a reply's body."""
    if isinstance(reply, _SEVERAL):
        return sum(map(len, reply))
    return len(reply)


class ReplySender:
    """Made with the session; `connected` gives it the transport."""

    __slots__ = (
        "_account",
        "_began",
        "_flushed",
        "_loop",
        "_moved",
        "_parts",
        "_progress",
        "_settling",
        "_transport",
        "_written",
    )

    def __init__(self, account: Account, loop: asyncio.AbstractEventLoop) -> None:
        self._account = account
        self._loop = loop
        self._transport: asyncio.Transport | None = None
        self._parts: deque[tuple[int, int]] = deque()
        self._progress = Progress()
        self._written = self._flushed = 0
        self._began = self._moved = 0.0
        self._settling = False

    def connected(self, transport: asyncio.Transport) -> None:
        self._transport = transport

    def lost(self) -> None:
        """Release everything: nothing is sent any more."""
        self._transport = None
        self._parts.clear()
        self._account.close()

    def hold(self, reply: Reply) -> int:
        """Hold a ready reply on the account, and return its size in bytes."""
        size = size_of(reply)
        granted = reply.granted if isinstance(reply, Granted) else 0
        self._account.hold(size - granted)
        return size

    def send(self, header: RequestHeader, reply: Reply, held: int | None) -> int:
        """Hand a reply to the transport, and return the bytes sent. `held` None: the reply was just
        made, and is held only if the kernel does not take it at once."""
        transport = self._transport
        assert transport is not None, "the session sends while it is connected"
        body_size = size_of(reply) if held is None else held
        head = response_head(header.api_key, header.api_version, header.correlation_id, body_size)
        size = len(head) + body_size
        if not isinstance(reply, _ONE_PIECE):
            transport.writelines([head, *reply])
        elif body_size < _COPIED_BYTES:
            transport.write(head + reply)  # a second piece costs more than the copy
        else:
            transport.writelines([head, reply])
        began_at = self._written
        self._written += size
        if not self._parts and not transport.get_write_buffer_size():
            # The usual case: the kernel takes it all at once.
            self._flushed = self._written
            if held is None and isinstance(reply, Granted):
                held = reply.granted
            if held:
                self._account.give_back(held)
            return size
        if held is None:
            held = self.hold(reply)
        if self._flushed == began_at:
            self._began = self._moved = self._loop.time()
            self._progress.begins()
        self._parts.append((self._written, held))
        if not self._settling:
            self._settling = True
            self._loop.call_soon(self.settle)
        return size

    @property
    def unsent(self) -> int:
        """Bytes that the kernel has not taken, as of the last `settle`."""
        return self._written - self._flushed

    def settle(self) -> None:
        """Note how much the kernel has taken, and give it back to the account."""
        self._settling = False
        transport = self._transport
        if transport is None:
            return
        flushed = self._written - transport.get_write_buffer_size()
        if flushed > self._flushed:
            self._flushed = flushed
            self._moved = self._loop.time()
        done = 0
        while self._parts and self._parts[0][0] <= flushed:
            done += self._parts.popleft()[1]
        self._account.give_back(done)

    def unread(self, now: float) -> float | None:
        """Return the seconds since bytes were last taken; None if nothing is unsent."""
        return now - self._moved if self.unsent else None

    def draining(self, now: float, window_s: float) -> tuple[float | None, int | None]:
        """Return the seconds since replies have been unsent, and the bytes taken in the last
        `window_s`, None if not known yet. What the kernel took of the first reply says nothing
        about the reader."""
        if not self.unsent:
            return None, None
        return now - self._began, self._progress.within(now, self._flushed, window_s)
