"""What the log says of connections that the controllers' port closes: a line a second at most.

Whoever reaches the port, believed or not, can have as many closed as it likes.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

from plimsoll_process.line_limit import LineLimit

logger = logging.getLogger("plimsoll.controller.server")


class ClosedConnections:
    """Of one server."""

    def __init__(self, now_s: Callable[[], float] | None = None) -> None:
        self._now_s = time.monotonic if now_s is None else now_s
        self._limit = LineLimit()

    def tell(self, peer: object, why: str) -> None:
        more = self._limit.due(self._now_s())
        if more is not None:
            logger.info("closing %s: %s%s", peer, why, more)
