"""Logs state changes of partitions, at a bounded rate: a cluster of thousands of partitions may
change them all in a second.

A limited number of lines a second is written, ten times as many at level DEBUG as at INFO; one line
states how many were left out. The metadata log holds all the changes.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping

LINES_MAX = 50
LINES_MAX_DEBUG = 500
PERIOD_MS = 1_000

logger = logging.getLogger("plimsoll.state_changes")


class StateChangeLines:
    """Writes log lines about state changes, a bounded number a second. `now_ms`: returns monotonic
    time in milliseconds."""

    def __init__(self, now_ms: Callable[[], int]) -> None:
        self._now_ms = now_ms
        # When the present second ends, how many lines it has, and how many it had no room for.
        self._until_ms = 0
        self._written = 0
        self._left_out = 0

    @property
    def room(self) -> bool:
        """Count a line, and return True if the caller may write it now. Otherwise it counts as left
        out."""
        if not logger.isEnabledFor(logging.INFO):
            return False
        now_ms = self._now_ms()
        if now_ms >= self._until_ms:
            self.tell_left_out()
            self._until_ms, self._written = now_ms + PERIOD_MS, 0
        debug = logger.isEnabledFor(logging.DEBUG)
        if self._written >= (LINES_MAX_DEBUG if debug else LINES_MAX):
            self._left_out += 1
            return False
        self._written += 1
        return True

    def write(self, sentence: str, fields: Mapping[str, object]) -> None:
        """Log the sentence. `fields`: the same facts by name, for log lines in JSON."""
        logger.info("%s", sentence, extra={"fields": dict(fields)})

    def tell_left_out(self) -> None:
        """Log how many lines were left out since the last such line, if any."""
        if self._left_out:
            logger.info(
                "%d more state changes of partitions happened within the same second and are "
                "left out of this log",
                self._left_out,
            )
            self._left_out = 0
