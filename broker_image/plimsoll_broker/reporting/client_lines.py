"""ClientLines: the log's lines about what single clients did, bounded for each of them.

Used by handlers instead of a logger where a client can cause a line by each of its requests. Lines
beyond its principal's share are counted, in the principal's next line.
"""

from __future__ import annotations

import asyncio
import logging

from plimsoll_process.line_room import LineRoom

INTERVAL_S = 1.0
LINES_MAX = 20
"""Lines in one interval."""
ROOM = 40
"""Lines in a minute, of all principals; one principal has at most half."""
FLOOR = 1


class ClientLines:
    """The lines of one logger, at level INFO."""

    def __init__(self, logger: logging.Logger) -> None:
        self._logger = logger
        self._room: LineRoom[str] = LineRoom(ROOM, FLOOR)
        self._timer: asyncio.TimerHandle | None = None

    @property
    def dropped(self) -> int:
        """Lines that were not written."""
        return self._room.dropped

    def info(self, principal: str, sentence: str) -> None:
        """Write the line within a second, or count it."""
        loop = asyncio.get_running_loop()
        self._room.note(principal, sentence, loop.time())
        if self._timer is None:
            self._timer = loop.call_later(INTERVAL_S, self._write)

    def _write(self) -> None:
        self._timer = None
        loop = asyncio.get_running_loop()
        for sentence, times, left_out in self._room.due(loop.time(), LINES_MAX):
            again = f" ({times} times)" if times > 1 else ""
            more = f"; {left_out} more lines of this client were left out" if left_out else ""
            self._logger.info("%s%s%s", sentence, again, more)
        if self._room:
            self._timer = loop.call_later(INTERVAL_S, self._write)
