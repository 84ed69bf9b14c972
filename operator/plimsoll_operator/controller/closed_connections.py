"""Log lines about connections that the controllers' port closes: at most one a second.

Any peer that reaches the port, authenticated or not, can cause any number of closed connections.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

from plimsoll_process.line_limit import LineLimit

logger = logging.getLogger("plimsoll.closed_connections")


class ClosedConnections:
    """Closed connections of one server."""

    def __init__(self, now_s: Callable[[], float] | None = None) -> None:
        self._now_s = time.monotonic if now_s is None else now_s
        self._limit = LineLimit()

    def tell(self, peer: object, why: str) -> None:
        more = self._limit.due(self._now_s())
        if more is not None:
            logger.info("closing %s: %s%s", peer, why, more)
