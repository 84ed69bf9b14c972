"""The audit log: what was refused, who logged in, and what Enforce would refuse, as JSON lines.

Written by the logger plimsoll.audit, never in a request's way: an event is counted at once and
written with others, a line for each principal, operation and resource with how often it happened.
What is too much in one interval is counted and not written.
"""

from __future__ import annotations

import asyncio
import json
import logging
import threading
from typing import NamedTuple

logger = logging.getLogger("plimsoll.audit")

INTERVAL_S = 1.0
QUIET_S = 60.0
"""The same thing is written once in so long; what happens meanwhile is counted in its next line."""
EVENTS_MAX = 1_000
"""Different ones that are kept."""
LINES_MAX = 100
"""In one interval."""


class AuditEvent(NamedTuple):
    """What happened; `decision` is Denied, WouldDeny, LoggedIn, LoginFailed or CutOff."""

    decision: str
    principal: str
    host: str
    listener: str
    operation: str = ""
    resource: str = ""
    reason: str = ""


class AuditLog:
    """One for each broker.  `dropped`: events of which nothing is written."""

    def __init__(self, broker_id: int) -> None:
        self._broker_id = broker_id
        self._counts: dict[AuditEvent, int] = {}
        self._written: dict[AuditEvent, float] = {}
        self._timer: asyncio.TimerHandle | None = None
        self.dropped = 0
        # The event loop's thread; and the events that others have on their way to it.
        self._thread = threading.get_ident()
        self._loop = _running_loop()
        self._coming = 0

    def note(self, event: AuditEvent) -> None:
        """From any thread: a long request is read, and refused, in one of its own."""
        if threading.get_ident() == self._thread or self._loop is None:
            self._note(event)
        elif self._coming >= EVENTS_MAX:
            self.dropped += 1
        else:
            self._coming += 1
            self._loop.call_soon_threadsafe(self._arrived, event)

    def _arrived(self, event: AuditEvent) -> None:
        self._coming -= 1
        self._note(event)

    def _note(self, event: AuditEvent) -> None:
        if event not in self._counts and len(self._counts) >= EVENTS_MAX:
            self.dropped += 1
            return
        self._counts[event] = self._counts.get(event, 0) + 1
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(INTERVAL_S, self._write)

    def close(self) -> None:
        """What is counted is written."""
        if self._timer is not None:
            self._timer.cancel()
        self._flush(0.0, lines=EVENTS_MAX)

    def _write(self) -> None:
        self._timer = None
        loop = asyncio.get_running_loop()
        now = loop.time()
        self._written = {e: at for e, at in self._written.items() if now - at < QUIET_S}
        self._flush(now, LINES_MAX)
        if self._counts:
            self._timer = loop.call_later(INTERVAL_S, self._write)

    def _flush(self, now: float, lines: int) -> None:
        due = [event for event in self._counts if event not in self._written]
        for event in due[:lines]:
            count = self._counts.pop(event)
            if len(self._written) < EVENTS_MAX:
                self._written[event] = now
            said = {name: value for name, value in event._asdict().items() if value}
            line = {"broker": self._broker_id, **said, "count": count}
            logger.info("%s", json.dumps(line))


def _running_loop() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None  # what is made before the loop runs is told nothing by threads
