"""ReplyLater: a reply that comes later, delivered to its session in the turn in which it is made.

Used by the handlers of Produce and of followers' fetches, whose replies are made when a partition
is stepped. A future would deliver it one turn of the event loop later; for a small record with
acks=all that costs the leader a turn for each of two replies. Other code awaits it like a future.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator
from functools import partial
from typing import Any

from plimsoll_broker.server.dispatch import Reply


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
