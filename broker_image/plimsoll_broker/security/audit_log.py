"""AuditLog: writes denials, logins, and what Enforce would deny, as JSON lines.

The logger plimsoll.audit writes them, and no request waits for that: an event is counted at once
and written later with others, as one line for each principal, operation and resource, with a count.
Each decision has its own number of lines, which principals share (`LineRoom`): however many denials
one principal causes, all logins are still logged. Events beyond that are counted by decision and
not written.
"""

from __future__ import annotations

import asyncio
import json
import logging
import threading
from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

from plimsoll_core.addresses import network_of
from plimsoll_core.quotas.fair_pool import FairPool
from plimsoll_core.security.acl import ANONYMOUS
from plimsoll_process.log_lines import FLOOR, LineRoom

logger = logging.getLogger("plimsoll.audit")

INTERVAL_S = 1.0
LINES_MAX = 50
"""The most lines written for one decision in one interval."""
COMING_MAX = 1_000
"""The most events that may wait, from other threads, for the event loop."""
DECISIONS = (
    "CertificateRefused",
    "CutOff",
    "Denied",
    "LoggedIn",
    "LoginFailed",
    "TokenRefused",
    "WouldDeny",
)
CLAIMED_MAX = 200
"""The most characters kept of a user name that a client claims."""


class AuditEvent(NamedTuple):
    """One event. `decision` is one of `DECISIONS`. `claimed`: the user name that a client claimed
    without proof, or an empty string."""

    decision: str
    principal: str
    host: str
    listener: str
    operation: str = ""
    resource: str = ""
    reason: str = ""
    claimed: str = ""

    @property
    def holder(self) -> str:
        """The principal that the line is counted for; the client's address if it has no name."""
        return network_of(self.host) if self.principal in ("", ANONYMOUS) else self.principal


class AuditLog:
    """Counts audit events and writes them as JSON lines, once per `INTERVAL_S`. A broker has
    one."""

    def __init__(self, broker_id: int) -> None:
        self._broker_id = broker_id
        self._rooms: dict[str, LineRoom[AuditEvent]] = {one: LineRoom() for one in DECISIONS}
        self._timer: asyncio.TimerHandle | None = None
        # The event loop's thread, and the events that other threads have on their way to it.
        self._thread = threading.get_ident()
        self._loop = _running_loop()
        self._lock = threading.Lock()
        self._coming: list[AuditEvent] = []
        self._coming_of = FairPool(COMING_MAX, floor=FLOOR)
        self._lost: Counter[str] = Counter()

    @property
    def dropped(self) -> dict[str, int]:
        """The number of events that were not written because there were too many, by decision; the
        numbers never decrease."""
        return {one: room.dropped + self._lost[one] for one, room in self._rooms.items()}

    @property
    def pools(self) -> Iterator[FairPool]:
        """The pools that bound the unwritten events, one for each decision."""
        return (room.pool for room in self._rooms.values())

    def note(self, event: AuditEvent) -> None:
        """Count an event, to be written within `INTERVAL_S`; if its decision or principal has too
        many, count it only in `dropped`. May be called from any thread: long requests are parsed
        and denied in threads."""
        if threading.get_ident() == self._thread or self._loop is None:
            self._note(event)
            return
        with self._lock:
            if not self._coming_of.admit(event.holder, 1):
                self._lost[event.decision] += 1
                return
            self._coming.append(event)
            if len(self._coming) > 1:
                return
        self._loop.call_soon_threadsafe(self._arrived)

    def _arrived(self) -> None:
        with self._lock:
            coming, self._coming = self._coming, []
            for event in coming:
                self._coming_of.give_back(event.holder, 1)
        for event in coming:
            self._note(event)

    def _note(self, event: AuditEvent) -> None:
        loop = asyncio.get_running_loop()
        self._rooms[event.decision].note(event.holder, event, loop.time())
        if self._timer is None:
            self._timer = loop.call_later(INTERVAL_S, self._write)

    def close(self) -> None:
        """Cancel the timer and write all counted events. Called when the broker stops."""
        if self._timer is not None:
            self._timer.cancel()
        for room in self._rooms.values():
            for event, count, left_out in room.rest(0.0):
                self._write_line(event, count, left_out)

    def _write(self) -> None:
        self._timer = None
        loop = asyncio.get_running_loop()
        for room in self._rooms.values():
            for event, count, left_out in room.due(loop.time(), LINES_MAX):
                self._write_line(event, count, left_out)
        if any(self._rooms.values()):
            self._timer = loop.call_later(INTERVAL_S, self._write)

    def _write_line(self, event: AuditEvent, count: int, left_out: int) -> None:
        said = {name: value for name, value in event._asdict().items() if value}
        line = {"broker": self._broker_id, **said, "count": count}
        if left_out:
            line["left_out"] = left_out
        logger.info("%s", json.dumps(line))


def _running_loop() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None  # an object made before the loop runs gets no events from threads
