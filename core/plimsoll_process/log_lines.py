"""Writes the log lines of a process: as text or as JSON, at a level that may change.

`LineLimit`: a line a second at most, of a kind that others can cause as often as they like.

`LineRoom`: log lines that clients can cause, bounded and shared fairly by principal. Pure: what is
noted is counted, and `due` gives what is to be written. The same thing is written once in
`QUIET_S`; what happens meanwhile is counted in its next line. Of a principal so many different
things are kept in that time as its share of the room (`FairPool`), so that is how many lines it can
cause; those that wait are written by turns, one of each principal.
"""

from __future__ import annotations

import json
import logging
import time
from collections import Counter, OrderedDict
from collections.abc import Hashable, Iterator
from typing import Generic, Literal, NamedTuple, TypeVar

from plimsoll_core.quotas.fair_pool import FairPool
from plimsoll_core.quotas.principal_turns import PrincipalTurns

logger = logging.getLogger("plimsoll.log_lines")
LINES_EVERY_S = 1.0


class LineLimit:
    """Limits one kind of log line to one a second, and counts those not written."""

    def __init__(self) -> None:
        # When one was written last, None: never; and how many were not written since.
        self._said_s: float | None = None
        self._unsaid = 0

    def due(self, now_s: float) -> str | None:
        """Return None if the line must not be written now; it is then counted. Otherwise return a
        suffix for it, which says how many were not written since the last one, or ""."""
        if self._said_s is not None and now_s - self._said_s < LINES_EVERY_S:
            self._unsaid += 1
            return None
        more = f" ({self._unsaid} more since the last line)" if self._unsaid else ""
        self._said_s, self._unsaid = now_s, 0
        return more


T = TypeVar("T", bound=Hashable)

QUIET_S = 60.0
"""Interval in which the same thing is written once."""
ROOM = 2000
"""Different things of all principals that are kept; one alone has half, each of less than 1 KiB."""
FLOOR = 8
"""Entries that each principal may have, whatever the others hold, while there is room at all."""


class DueLine(NamedTuple, Generic[T]):
    """A line to write. `times`: how often `what` happened since its last line. `left_out`: how many
    other occurrences of the same principal were not kept for lack of room."""

    what: T
    times: int
    left_out: int


class LineRoom(Generic[T]):
    """Log lines that clients can cause: counts occurrences by principal, and gives out a bounded
    number of lines.

    `dropped`: the number of occurrences that were not kept for lack of room, a metric. Times are in
    seconds, of any clock that never goes back.
    """

    def __init__(self, room: int = ROOM, floor: int = FLOOR) -> None:
        self.dropped = 0
        self.pool = FairPool(room, floor=floor)
        # Occurrences of each since its last line.  Each of these, and each recently written one,
        # holds a place of the pool.
        self._counts: dict[tuple[str, T], int] = {}
        self._written_s: OrderedDict[tuple[str, T], float] = OrderedDict()
        # Entries that are due.
        self._ready: PrincipalTurns[T, None] = PrincipalTurns()
        self._left_out: Counter[str] = Counter()

    def __bool__(self) -> bool:
        """Return True if a line is to be written, now or after its quiet time."""
        return bool(self._counts)

    def __len__(self) -> int:
        """Return the number of places of the pool in use: lines to write, and lines in their quiet
        time."""
        return self.pool.used

    def note(self, principal: str, what: T, now_s: float) -> None:
        """Count one occurrence of `what`. It gets a line of its own, is added to one, or is dropped
        if the principal's share of the room is used up."""
        key = principal, what
        if key in self._counts:
            self._counts[key] += 1
            return
        self._forget(now_s)
        if key not in self._written_s:
            if not self.pool.admit(principal, 1):
                self.dropped += 1
                if self.pool.held(principal):
                    self._left_out[principal] += 1
                return
            self._ready.add(principal, what, None)
        self._counts[key] = 1

    def _forget(self, now_s: float) -> None:
        """End the quiet time of lines written more than `QUIET_S` ago: those that have occurred
        again become due, the others are removed."""
        while self._written_s:
            key, written_s = next(iter(self._written_s.items()))
            if now_s - written_s < QUIET_S:
                return
            del self._written_s[key]
            principal, what = key
            if key in self._counts:
                self._ready.add(principal, what, None)
                continue
            self.pool.give_back(principal, 1)
            if not self.pool.held(principal):
                del self._left_out[principal]

    def due(self, now_s: float, most: int) -> Iterator[DueLine[T]]:
        """Yield the lines to write now, at most `most`, one of each principal in rotation."""
        self._forget(now_s)
        for _ in range(most):
            if not self._ready:
                return
            key = principal, what = self._ready.take()
            self._written_s[key] = now_s
            yield DueLine(what, self._counts.pop(key), self._left_out.pop(principal, 0))

    def rest(self, now_s: float) -> Iterator[DueLine[T]]:
        """Yield all lines that are still to be written, due or not, when the process ends."""
        for key in self._written_s:
            if key in self._counts:
                self._ready.add(*key, None)
        self._written_s.clear()
        return self.due(now_s, len(self._counts))


LineFormat = Literal["Text", "Json"]
LEVELS = ("DEBUG", "INFO", "WARNING", "ERROR")
FIELDS = "fields"
"""The attribute of a log record that holds what its sentence says, name by name, for machines."""


_TEXT = logging.Formatter("%(asctime)s %(levelname)s %(name)s %(message)s")


class JsonLines(logging.Formatter):
    """Formats a log record as one line with a JSON object; the record's `fields` are members of it
    besides the message."""

    def format(self, record: logging.LogRecord) -> str:
        line = {
            "time": time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created)),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(getattr(record, FIELDS, {}) | line)


class LineOutput:
    """Sets the level and the format of a process's log. `level`, `format_`: those of its start,
    which hold unless `write` sets others."""

    def __init__(self, handler: logging.Handler, level: str, format_: LineFormat = "Text") -> None:
        self._handler = handler
        self._started = (level.upper(), format_)
        self._now: tuple[str, str] | None = None
        self.write("", "")

    def write(self, level: str, format_: str) -> None:
        """Set the level and the format of later lines. An empty or unknown value restores that of
        the start."""
        started_level, started_format = self._started
        level = level.upper() if level.upper() in LEVELS else started_level
        format_ = format_ if format_ in ("Text", "Json") else started_format
        if (level, format_) == self._now:
            return
        first, self._now = self._now is None, (level, format_)
        logging.getLogger().setLevel(level)
        self._handler.setFormatter(JsonLines() if format_ == "Json" else _TEXT)
        if not first:
            logger.info("log lines are written in format %s and from level %s on", format_, level)
