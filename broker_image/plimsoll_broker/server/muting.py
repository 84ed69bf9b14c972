"""For how long a connection is not read, because its client used too much.

Owned by a `Session`.  What is in the kernel stays there; what waits for its reply gets it.  A
large request of which a part is here already is received and served: its memory would be held, and
nobody be asked for the rest, until the muting is over.  Source: KIP-219.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable


class Muting:
    """It refers to its session only while that is muted."""

    __slots__ = ("_loop", "spares", "timer", "until_s")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        # None: it is not muted.
        self.timer: asyncio.TimerHandle | None = None
        # By the loop's clock; 0: it was never muted.
        self.until_s = 0.0
        # Whether one request is served nevertheless.
        self.spares = False

    @property
    def holds(self) -> bool:
        return self.timer is not None and not self.spares

    def mute(self, throttle_ms: int, resume: Callable[[], None], came: int = 0) -> None:
        """From now on for so long, then `resume`; what was said before is not shortened.  `came`:
        bytes of a large request that is not whole, which hold memory."""
        if not throttle_ms:
            return
        if self.timer is None:
            self.spares = came > 0
        until_s = self._loop.time() + throttle_ms / 1000
        if until_s > self.until_s:
            self.until_s = until_s
            self.end()
            self.timer = self._loop.call_at(until_s, self._over, resume)

    def _over(self, resume: Callable[[], None]) -> None:
        self.timer = None
        resume()

    def end(self) -> None:
        """The connection is lost."""
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None
