"""Replies between their handlers and their session.

`ReplyLater`: a reply that comes later, delivered to its session in the turn in which it is made. A
future would deliver it one turn of the event loop later; for a small record with acks=all that
costs the leader a turn for each of two replies. Other code awaits it like a future.

Write a throttle time into a reply that is already encoded. Produce's encoder takes the time itself,
since the field is not at the beginning of its response.

`ReplySlot`: a request whose reply cannot be sent yet, and its place in the order of replies.
"""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Callable, Generator
from functools import partial
from typing import Any

from plimsoll_broker.server.client_quotas import Charges
from plimsoll_broker.server.dispatch import Buffer, Reply
from plimsoll_wire.headers import RequestHeader
from plimsoll_wire.messages import throttle_time_at


class ReplyLater:
    """The part of a future's interface that a session uses. Listeners must not raise: they are
    called by the code that made the reply, which may be the commit path."""

    __slots__ = ("_cancelled", "_done", "_error", "_listeners", "_reply")

    def __init__(self) -> None:
        self._done = self._cancelled = False
        self._reply: Reply | None = None
        self._error: BaseException | None = None
        self._listeners: list[Callable[[Any], None]] = []

    def done(self) -> bool:
        return self._done

    def cancelled(self) -> bool:
        return self._cancelled

    def exception(self) -> BaseException | None:
        return self._error

    def result(self) -> Reply | None:
        if self._cancelled:
            raise asyncio.CancelledError
        if self._error is not None:
            raise self._error
        return self._reply

    def set_result(self, reply: Reply | None) -> None:
        self._reply = reply
        self._end()

    def set_exception(self, error: BaseException) -> None:
        self._error = error
        self._end()

    def cancel(self) -> None:
        """Cancel it: its session waits no more."""
        if not self._done:
            self._cancelled = True
            self._end()

    def add_done_callback(self, listener: Callable[[Any], None]) -> None:
        """Call `listener` with this object once it is done; at once if it is done."""
        if self._done:
            listener(self)
        else:
            self._listeners.append(listener)

    def _end(self) -> None:
        assert not self._done, "one reply"
        self._done = True
        listeners, self._listeners = self._listeners, []
        for listener in listeners:
            listener(self)

    def __await__(self) -> Generator[Any, None, Reply | None]:
        if not self._done:
            told: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._listeners.append(partial(_tell, told))
            yield from told
        return self.result()


def _tell(told: asyncio.Future[None], _: ReplyLater) -> None:
    if not told.done():  # the awaiting task may have been cancelled
        told.set_result(None)


_I32 = struct.Struct(">i")


def told(reply: Reply, key: int, version: int, charges: Charges) -> Reply:
    """Return the reply with the throttle time of its request, if its version has the field."""
    if not charges.throttle_ms:
        return reply
    at = throttle_time_at(key, version)
    if at is None:
        return reply
    if isinstance(reply, list):
        reply[0] = _patched(reply[0], at, charges.throttle_ms)
        return reply
    if isinstance(reply, tuple):
        return (_patched(reply[0], at, charges.throttle_ms), *reply[1:])
    assert isinstance(reply, bytes | bytearray | memoryview), "in one piece or several"
    return _patched(reply, at, charges.throttle_ms)


def _patched(piece: Buffer, at: int, throttle_ms: int) -> bytes:
    changed = bytearray(piece)
    _I32.pack_into(changed, at, throttle_ms)
    return bytes(changed)


SMALL_BYTES = 4 * 1024
"""Requests up to this size stay on the intake's account until they are answered."""
AT_ONCE = (bytes, bytearray, memoryview, list, tuple)  # replies; any other result is awaited

Later = asyncio.Future[Reply | None] | ReplyLater
"""A later reply, in either form; both have the same interface."""
LATER = (asyncio.Future, ReplyLater)


def later(result: Any) -> Later:
    """Return a handler's result that is not a reply as a future."""
    return result if isinstance(result, ReplyLater) else asyncio.ensure_future(result)


class ReplySlot:
    """A request whose reply cannot be sent yet. `kept`: its bytes of the intake. `held`: its
    reply's bytes on the connection's account; None: not counted. `began_ns`: when it was read.
    `charges`: its quota usage."""

    __slots__ = ("began_ns", "charges", "future", "header", "held", "kept", "reply")

    def __init__(self, header: RequestHeader, began_ns: int, reply: Reply | None = None) -> None:
        self.header = header
        self.began_ns = began_ns
        self.charges: Charges | None = None
        self.reply = reply
        self.held: int | None = None
        self.kept = 0
        self.future: Later | None = None
