"""Writes the log lines of a process: as text or as JSON, at a level that may change.

`LineLimit` limits a kind of line that peers can cause to one a second.

`LineRoom` bounds the log lines that clients can cause, and divides them fairly among principals.
Pure: `note` counts an occurrence, and `due` returns the lines to write. The same line is written
once in `QUIET_S` seconds; later occurrences are counted in its next line. The number of different
lines of one principal in that time is limited to the principal's share of the pool (`FairPool`).
Waiting lines are written in rotation, one of each principal.
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
        """Let a line be written now unless one was let within the last `LINES_EVERY_S` seconds.
        Return a suffix to append to it, which says how many lines were left out since the last one
        written, or "". Otherwise count the line as left out and return None."""
        if self._said_s is not None and now_s - self._said_s < LINES_EVERY_S:
            self._unsaid += 1
            return None
        more = f" ({self._unsaid} similar lines were left out)" if self._unsaid else ""
        self._said_s, self._unsaid = now_s, 0
        return more


T = TypeVar("T", bound=Hashable)

QUIET_S = 60.0
"""Seconds within which the same line is written once."""
ROOM = 2000
"""Number of different lines kept for all principals together. A single principal can have half of
them. Each takes less than 1 KiB."""
FLOOR = 8
"""Number of lines that each principal may have, whatever the others hold, while the pool is not
full."""


class DueLine(NamedTuple, Generic[T]):
    """A line to write. `times`: how often `what` occurred since its last line. `left_out`: how many
    other occurrences of the same principal were dropped because the pool was full."""

    what: T
    times: int
    left_out: int


class LineRoom(Generic[T]):
    """Bounded pool of log lines that clients can cause: counts occurrences by principal. `room`:
    the most different lines of all principals; `floor`: lines that each may have whatever the
    others hold. `dropped`: number of occurrences that were dropped because the pool was full, a
    metric. Times are in seconds, of any clock that never goes back."""

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
        """Return True if a line waits to be written, now or after its quiet time."""
        return bool(self._counts)

    def __len__(self) -> int:
        """Return the number of lines that the pool holds: those that wait to be written, and those
        written within the quiet time."""
        return self.pool.used

    def note(self, principal: str, what: T, now_s: float) -> None:
        """Count one occurrence of `what`, caused by `principal`. It becomes a new line, is counted
        in an existing one, or is dropped if the principal's share of the pool is used up."""
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
        """End the quiet time of lines written more than `QUIET_S` seconds ago: those that have
        occurred again become due, the others are removed."""
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
        """Yield the lines to write now, at most `most`, in rotation of the principals. Each yielded
        line counts as written at `now_s`, and its count begins again."""
        self._forget(now_s)
        for _ in range(most):
            if not self._ready:
                return
            key = principal, what = self._ready.take()
            self._written_s[key] = now_s
            yield DueLine(what, self._counts.pop(key), self._left_out.pop(principal, 0))

    def rest(self, now_s: float) -> Iterator[DueLine[T]]:
        """Yield all lines that are not written yet, also those within their quiet time. Called when
        the process ends."""
        for key in self._written_s:
            if key in self._counts:
                self._ready.add(*key, None)
        self._written_s.clear()
        return self.due(now_s, len(self._counts))


LineFormat = Literal["Text", "Json"]
LEVELS = ("DEBUG", "INFO", "WARNING", "ERROR")
FIELDS = "fields"
"""Name of the attribute of a log record with the facts of its message, by name, for programs."""


_TEXT = logging.Formatter("%(asctime)s %(levelname)s %(name)s %(message)s")


class JsonLines(logging.Formatter):
    """Formats a log record as one line with a JSON object. Its members are the message and the
    record's `fields`."""

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
    """Sets the level and the format of a process's log. `level`, `format_`: those with which the
    process started; `write` can replace them."""

    def __init__(self, handler: logging.Handler, level: str, format_: LineFormat = "Text") -> None:
        self._handler = handler
        self._started = (level.upper(), format_)
        self._now: tuple[str, str] | None = None
        self.write("", "")

    def write(self, level: str, format_: str) -> None:
        """Set the level and the format of later lines. An empty or unknown value restores the one
        with which the process started."""
        started_level, started_format = self._started
        level = level.upper() if level.upper() in LEVELS else started_level
        format_ = format_ if format_ in ("Text", "Json") else started_format
        if (level, format_) == self._now:
            return
        first, self._now = self._now is None, (level, format_)
        logging.getLogger().setLevel(level)
        self._handler.setFormatter(JsonLines() if format_ == "Json" else _TEXT)
        if not first:
            logger.info(
                "the log settings changed: this process now writes log lines in format %s, of "
                "level %s and above",
                format_,
                level,
            )
