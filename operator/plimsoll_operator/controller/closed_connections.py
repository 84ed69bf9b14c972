"""What the log says of connections that the controllers' port closes: a line a second at most.

Whoever reaches the port, believed or not, can have as many closed as it likes.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from time import monotonic

logger = logging.getLogger("plimsoll.controller.server")

LINES_EVERY_S = 1.0


class ClosedConnections:
    """Of one server."""

    def __init__(self, now_s: Callable[[], float] = monotonic) -> None:
        self._now_s = now_s
        # When one was told of last, and how many were closed since.
        self._told_s: float | None = None
        self._untold = 0

    def tell(self, peer: object, why: str) -> None:
        now_s = self._now_s()
        if self._told_s is not None and now_s - self._told_s < LINES_EVERY_S:
            self._untold += 1
            return
        more = f" ({self._untold} more since the last line)" if self._untold else ""
        self._told_s, self._untold = now_s, 0
        logger.info("closing %s: %s%s", peer, why, more)
