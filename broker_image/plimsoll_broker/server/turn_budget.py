"""TurnBudget: limits how much of one turn of the event loop a listener's requests may use.

uvloop serves every readable connection before it runs a timer, so a thousand requests that arrive
at once would be one turn. `Session` asks before each frame. Once the budget is spent, sessions wait
here for later turns (`PrincipalTurns`) and are not read meanwhile. This module decides nothing
about what is served.

`SliceTurns`: of the long requests of a listener, one runs a slice in a turn of the event loop, and
their principals take turns. If each ran a slice in every turn, a client with many would hold the
loop. Where processors are short, slices rest, as clients' work in threads does (`fair_work`): other
brokers of the machine need them to answer. Short requests do not wait for slices and do not rest.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from plimsoll_core.quotas.principal_turns import PrincipalTurns

RESTS = 3
"""The duration of a rest between two slices, as a multiple of the time for which the event loop's
thread waited for a processor in the turn of the first one."""
REST_S_MAX = 0.01
"""The longest rest, in seconds, between two slices."""


class SliceTurns:
    """The long requests of one listener that wait for their next slice."""

    def __init__(self) -> None:
        self.thread_waited_ms: Callable[[], int] = lambda: 0
        """Returns the time in ms for which the event loop's thread has waited for a processor. The
        owner of the process replaces this function."""
        # That time when the last slice was resumed.
        self._waited_ms = 0
        self._waiting: PrincipalTurns[tuple[asyncio.Future[None], object], None] = PrincipalTurns()
        # The owner of the slice that was resumed last.
        self._slice_of: object | None = None

    def is_crowded(self, owner: object) -> bool:
        """Return True if a long request of this owner (its connection) has to wait before its first
        slice: other requests wait, and the present turn was not given to this owner."""
        return bool(self._waiting) and self._slice_of is not owner

    async def wait(self, owner: object, principal: str) -> None:
        """Wait for a later turn of the event loop, in which the caller may run one slice;
        principals take turns. `owner`: the request's connection."""
        loop = asyncio.get_running_loop()
        turn: asyncio.Future[None] = loop.create_future()
        if not self._waiting:
            if self._slice_of is not owner:
                self._waited_ms = self.thread_waited_ms()  # its first slice was not resumed here
            loop.call_soon(self._rest, loop)
        self._waiting.add(principal, (turn, owner), None)
        await turn

    def _rest(self, loop: asyncio.AbstractEventLoop) -> None:
        """Resume the next slice, after a rest if the thread has waited for a processor."""
        rest_s = RESTS * (self.thread_waited_ms() - self._waited_ms) / 1000
        if rest_s > 0:
            loop.call_later(min(rest_s, REST_S_MAX), self._resume, loop)
        else:
            self._resume(loop)

    def _resume(self, loop: asyncio.AbstractEventLoop) -> None:
        """Resume the slice of the next principal; it runs in the next turn of the event loop,
        before this is called again. Skip cancelled waits."""
        self._slice_of = None
        while self._waiting and self._slice_of is None:
            turn, owner = self._waiting.take()[1]
            if not turn.done():  # its request may have been cancelled
                turn.set_result(None)
                self._slice_of = owner
        self._waited_ms = self.thread_waited_ms()
        if self._waiting:
            loop.call_soon(self._rest, loop)


BUDGET_S = 0.005
"""The time in seconds for which requests are served in one turn of the event loop. The request in
progress is then completed."""


TASKS_AT_ONCE = 16
"""The most requests of one turn of the event loop that are served by tasks. The tasks' first steps
all run in the next turn."""


class TurnBudget:
    """The time that requests of one listener may use in one turn of the event loop: BUDGET_S
    seconds. Sessions call `is_spent` before each request, `wait` if it is spent, and `begins_task`
    if the request was given to a task; TASKS_AT_ONCE of these use up the turn."""

    def __init__(self) -> None:
        # Callbacks of sessions that wait for a later turn.
        self._waiting: PrincipalTurns[Callable[[], None], None] = PrincipalTurns()
        # The end of this turn's budget.
        self._until_s = 0.0
        # The requests that were given to tasks in this turn.
        self._tasks = 0
        # True if this turn has a budget already. A clock cannot tell turns apart: uvloop's advances
        # within them.
        self._began = False
        self._resuming = False
        self.slices = SliceTurns()

    def is_spent(self, loop: asyncio.AbstractEventLoop) -> bool:
        """Return True if the next request has to wait for a later turn of the event loop, since
        BUDGET_S is used up or sessions wait already. The first call in a turn starts the turn's
        BUDGET_S and returns False."""
        if not self._resuming:
            if self._waiting:
                return True
            if not self._began:
                self._begin(loop)
                return False
        # As `_is_left`, which would be one more call for each request.
        return self._tasks >= TASKS_AT_ONCE or time.monotonic() >= self._until_s

    @property
    def _is_left(self) -> bool:
        return self._tasks < TASKS_AT_ONCE and time.monotonic() < self._until_s

    def begins_task(self) -> None:
        """Count a request of this turn that a task serves."""
        self._tasks += 1

    def _begin(self, loop: asyncio.AbstractEventLoop) -> None:
        """Start the BUDGET_S seconds of this turn of the event loop. `_end` runs in the next turn,
        before that turn's requests are read."""
        self._until_s = time.monotonic() + BUDGET_S
        self._tasks = 0
        if not self._began:
            self._began = True
            loop.call_soon(self._end)

    def _end(self) -> None:
        self._began = False

    def wait(
        self, loop: asyncio.AbstractEventLoop, principal: str, resume: Callable[[], None]
    ) -> None:
        """Queue `resume` to be called in a later turn of the event loop, after earlier ones of its
        principal; principals take turns. A session may have only one such call pending."""
        if not self._waiting and not self._resuming:
            loop.call_soon(self._resume, loop)
        self._waiting.add(principal, resume, None)

    def _resume(self, loop: asyncio.AbstractEventLoop) -> None:
        """Begin the time budget of a new turn of the event loop, and resume waiting sessions one
        after another until that time is used up."""
        self._begin(loop)
        self._resuming = True
        try:
            while self._waiting and self._is_left:
                self._waiting.take()[1]()
        finally:
            self._resuming = False
            if self._waiting:
                loop.call_soon(self._resume, loop)
