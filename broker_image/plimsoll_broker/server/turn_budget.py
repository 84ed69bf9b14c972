"""How much of one turn of the event loop a listener's requests may use.

uvloop serves every connection that has something to read before it runs a timer: a thousand
requests that come at one instant would be one turn.  Asked by `Session` before each frame; once the
budget is spent, sessions wait here for the next turns and are not read from meanwhile: principals
in turn, one session of each, and a principal's in the order in which they came, so that however
many connections one has, nobody else waits for more than one request of it.  Decides nothing about
what is served.
"""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict, deque
from collections.abc import Callable

BUDGET_S = 0.005
"""For so long requests are served in one turn; the request that is served then ends."""


class TurnBudget:
    """Of one listener."""

    def __init__(self) -> None:
        # Sessions that wait for a later turn, by what goes on with each; by principal, the one
        # whose turn it is first; never an empty line.
        self._waiting: OrderedDict[str, deque[Callable[[], None]]] = OrderedDict()
        # When the budget of this turn ends.
        self._until_s = 0.0
        # Whether this turn has one already: no clock tells turns apart, uvloop's goes on in them.
        self._began = False
        self._resuming = False

    def is_spent(self, loop: asyncio.AbstractEventLoop) -> bool:
        """Whether what would be served now is to wait."""
        if not self._resuming:
            if self._waiting:
                return True
            if not self._began:
                self._begin(loop)
                return False
        return time.monotonic() >= self._until_s

    def _begin(self, loop: asyncio.AbstractEventLoop) -> None:
        """What is called soon is called in the next turn, before that one's requests are read."""
        self._until_s = time.monotonic() + BUDGET_S
        if not self._began:
            self._began = True
            loop.call_soon(self._end)

    def _end(self) -> None:
        self._began = False

    def wait(
        self, loop: asyncio.AbstractEventLoop, principal: str, resume: Callable[[], None]
    ) -> None:
        """`resume` is called in a later turn.  Each session waits once at a time."""
        if not self._waiting and not self._resuming:
            loop.call_soon(self._resume, loop)
        self._waiting.setdefault(principal, deque()).append(resume)

    def _next(self) -> Callable[[], None]:
        """Of the principal whose turn it is; the others are before it from now on."""
        principal, line = self._waiting.popitem(last=False)
        resume = line.popleft()
        if line:
            self._waiting[principal] = line
        return resume

    def _resume(self, loop: asyncio.AbstractEventLoop) -> None:
        """A new turn: those that waited, one after another, as long as its budget lasts."""
        self._begin(loop)
        self._resuming = True
        try:
            while self._waiting and time.monotonic() < self._until_s:
                self._next()()
        finally:
            self._resuming = False
            if self._waiting:
                loop.call_soon(self._resume, loop)
