"""Muting: stop reading a connection for its throttle time.

Owned by a `Session`. Bytes in the kernel stay there; pending requests get their replies. A large
request that has arrived in part is still received and served: otherwise its memory would be held,
and the rest not be read, until the muting ends. Source: KIP-219.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from plimsoll_broker.server.connection_flow import MUTED, ConnectionFlow


class Muting:
    """Sets and releases the hold MUTED of a `ConnectionFlow`. It refers to its session only while
    that is muted."""

    __slots__ = ("_flow", "_loop", "_timer", "spares", "until_s")

    def __init__(self, loop: asyncio.AbstractEventLoop, flow: ConnectionFlow[Any]) -> None:
        self._loop = loop
        self._flow = flow
        # None while it is not muted.
        self._timer: asyncio.TimerHandle | None = None
        # By the loop's clock; 0 if it was never muted.
        self.until_s = 0.0
        # True if one request is served despite the muting.
        self.spares = False

    def mute(self, throttle_ms: int, resume: Callable[[], None], came: int = 0) -> None:
        """Mute for this long, then call `resume`.  Never shortens an earlier muting.  `came`: bytes
        of a large request that is not whole; they hold memory, so that request is still served."""
        if not throttle_ms:
            return
        if self._timer is None:
            self.spares = came > 0
        until_s = self._loop.time() + throttle_ms / 1000
        if until_s > self.until_s:
            self.until_s = until_s
            self.end()
            self._timer = self._loop.call_at(until_s, self._over, resume)
        if self._timer is not None and not self.spares:
            self._flow.hold(MUTED)

    def spare_no_more(self) -> None:
        """The one request that was spared has been served."""
        self.spares = False
        if self._timer is not None:
            self._flow.hold(MUTED)

    def _over(self, resume: Callable[[], None]) -> None:
        self._timer = None
        self._flow.release(MUTED)
        resume()

    def end(self) -> None:
        """Cancel the timer: the connection is lost."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
