"""FairWork: clients' work in threads, fair by principal, dropped when its client disconnects.

One for each lifetime of a broker. Handlers use it through `Aside` for work that takes longer than
the event loop may be held: parsing long requests, checking and recompressing batches, searching
logs by time, authorizing thousands of names, encoding long replies. There are three rules. A
principal uses at most the threads of its share (`FairPool`), so that a thread is left for the next
one. Of waiting principals the one goes first that has used the least processor time since the queue
was last empty (start-time fair queueing: Goyal, Vin and Cheng, 1996). Waiting work is bounded by a
share each, and dropped when its connection is lost.

Where processors are short, long work would keep event loops waiting, those of other brokers on the
machine too: a nice value counts within one container only, and a thread of low priority that holds
the interpreter's lock keeps its own loop waiting. So long work rests for a multiple of the time
that its thread waited for a processor: the thread between two parts of a long message, and the
principal after the piece, while others are served. The idea is LEDBAT's (RFC 6817): traffic in the
background gives way as soon as it meets a queue. It decides nothing about requests. Metrics report
its counts.
"""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import TypeVar

from plimsoll_broker.server.client_quotas import in_charged_thread
from plimsoll_broker.server.connection_state import SERVING, CloseConnection, WorkOwner
from plimsoll_core.quotas.fair_pool import FairPool
from plimsoll_wire.parts import BETWEEN_PARTS

T = TypeVar("T")

THREADS = 2
"""The number of threads for clients' work, out of the process's 32: one for a principal with much
work, and one for the next. More would only contend for the interpreter's lock, and delay the event
loop."""
WAITING_MAX = 8192
"""The most pieces of waiting work of all principals together; one principal may have at most half.
Each is a task of two or three KiB."""
WAITING_FLOOR = 16
SHOWN_MAX = 20
"""The most principals that the metrics of processor time name."""
REMEMBERED_MAX = 1000
"""The most principals with a remembered processor time. Beyond it, the smallest users are counted
together."""

RESTS = 3
"""The duration of a principal's rest, as a multiple of the time for which its work waited for a
processor."""
REST_S_MAX = 0.25
"""The longest rest of a principal after one piece of work, in seconds."""
PAUSE_S_MAX = 0.02
"""The longest rest of a thread between two parts of a message, in seconds."""
PAUSE_EVERY_S = 0.002
"""The least time, in seconds, between two checks of how long a thread has waited for a
processor."""

BROKERS_OWN = ""
"""The name under which work that belongs to no connection is counted."""


_Line = OrderedDict["_WaitingWork", None]
"""The waiting work of one principal, in order of arrival."""


class _WaitingWork:
    """A piece of work that waits for its turn. `turn`: done when the work may begin; gets
    CloseConnection if the work is dropped. `in_line`: True while it is queued."""

    __slots__ = ("in_line", "principal", "queue", "turn")

    def __init__(self, queue: FairWork, principal: str) -> None:
        self.queue = queue
        self.in_line = True
        self.principal = principal
        self.turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def close(self) -> None:
        """Drop the work. Called when its client has disconnected."""
        if not self.turn.done():
            self.queue.let_go(self)
            self.turn.set_exception(CloseConnection("gone"))


class Thread:
    """Runs a principal's work in a thread, for one turn of `FairWork`. `took_ns`: processor time
    used, in nanoseconds. `paused_s`: seconds rested within the work. `owed_s`: seconds of rest that
    are still due, because the thread waited for a processor."""

    def __init__(self, thread_waited_ms: Callable[[], int]) -> None:
        self.took_ns = 0
        self.paused_s = self.owed_s = 0.0
        self._thread_waited_ms = thread_waited_ms
        # Within a work.
        self._waited_ms = 0
        self._look_s = 0.0

    async def __call__(self, work: Callable[[], T]) -> T:
        def timed() -> T:
            self._waited_ms = self._thread_waited_ms()
            before = BETWEEN_PARTS.set(self._pause)
            began_ns = time.thread_time_ns()
            try:
                return work()
            finally:
                self.took_ns += time.thread_time_ns() - began_ns
                BETWEEN_PARTS.reset(before)
                self._count_waits()

        return await in_charged_thread(timed)

    def _count_waits(self) -> None:
        waited_ms = self._thread_waited_ms()
        self.owed_s += RESTS * (waited_ms - self._waited_ms) / 1000
        self._waited_ms = waited_ms

    def _pause(self) -> None:
        """Rest for the time owed, at most `PAUSE_S_MAX`. Called in the thread, between two parts of
        a message."""
        if time.monotonic() < self._look_s:
            return
        self._count_waits()
        pause_s = min(self.owed_s, PAUSE_S_MAX)
        if pause_s:
            time.sleep(pause_s)
            self.owed_s -= pause_s
            self.paused_s += pause_s
        self._look_s = time.monotonic() + PAUSE_EVERY_S


class FairWork:
    """Runs clients' long work in threads; the order is fair between principals. `do` waits for a
    turn, runs the work in a thread and returns its result."""

    def __init__(self, threads: int = THREADS, waiting_max: int = WAITING_MAX) -> None:
        self.threads = FairPool(threads, floor=1)
        self.waiting = FairPool(waiting_max, floor=min(WAITING_FLOOR, waiting_max))
        self.dropped = 0
        """The number of pieces of work that were dropped before their turn because their clients
        disconnected; a metric."""
        self.waited_s = 0.0
        """The total time in seconds that work has waited for its turn; a metric."""
        self.rested_s = 0.0
        """The total time in seconds that principals have rested; a metric."""
        self.used = UsedTime()
        self.thread_waited_ms: Callable[[], int] = lambda: 0
        """Returns the time in ms for which the calling thread has waited for a processor since the
        thread began. The owner of the process replaces this function."""
        # Principals that rest. At most a few pieces of work end in `REST_S_MAX`.
        self._resting: set[str] = set()
        # Waiting work by principal. No line is empty.
        self._lines: dict[str, _Line] = {}
        # By principal: its processor time. A principal that comes starts at `_least_ns`, the time
        # of the principal that began last, not at 0.
        self._served_ns: dict[str, int] = {}
        self._least_ns = 0

    async def do(self, work: Callable[[], T]) -> T:
        """Run `work` in a thread when its principal's turn has come, and return its result. The
        time is charged to the request.

        Raises CloseConnection if too much work of the principal waits, or if the connection was
        lost before the turn.
        """
        async with self.turn() as thread:
            return await thread(work)

    @asynccontextmanager
    async def turn(self) -> AsyncIterator[Thread]:
        """Wait for a turn, and yield the `Thread` to run work with; the turn ends with the context.
        For callers that decide only after the wait which work to run, if any. Raises as `do`
        does."""
        owner = SERVING.get()
        principal = BROKERS_OWN if owner is None else owner.holder
        await self._turn(principal, owner)
        thread = Thread(self.thread_waited_ms)
        try:
            yield thread
        finally:
            self.rested_s += thread.paused_s
            if thread.owed_s:
                self._rest(principal, min(thread.owed_s, REST_S_MAX))
            self._ended(principal, thread.took_ns)

    async def _turn(self, principal: str, owner: WorkOwner | None) -> None:
        if principal not in self._lines and self._may_begin(principal):
            self._begin(principal)
            return
        if not self.waiting.admit(principal, 1):
            raise CloseConnection("too-much-waiting")
        waiting = _WaitingWork(self, principal)
        self._lines.setdefault(principal, OrderedDict())[waiting] = None
        if owner is not None:
            owner.waits[waiting] = None
        began_s = time.monotonic()
        try:
            await waiting.turn
        except BaseException:
            self._given_up(waiting)
            raise
        finally:
            self.waited_s += time.monotonic() - began_s
            if owner is not None:
                owner.waits.pop(waiting, None)

    def _given_up(self, waiting: _WaitingWork) -> None:
        """Undo the wait of a piece of work that ended with an exception, since the work was
        cancelled or dropped with its connection: remove it from its line, or end its turn if that
        had begun."""
        if waiting.in_line:
            self.let_go(waiting)
        elif not waiting.turn.cancelled() and waiting.turn.exception() is None:
            self._ended(waiting.principal, 0)

    def let_go(self, waiting: _WaitingWork) -> None:
        """Remove a piece of waiting work from its line, and count it as dropped."""
        self._leave(waiting)
        self.dropped += 1

    def _leave(self, waiting: _WaitingWork) -> None:
        waiting.in_line = False
        line = self._lines[waiting.principal]
        del line[waiting]
        if not line:
            del self._lines[waiting.principal]
        self.waiting.give_back(waiting.principal, 1)

    def _may_begin(self, principal: str) -> bool:
        return principal not in self._resting and self.threads.admits(principal, 1)

    def _rest(self, principal: str, rest_s: float) -> None:
        """Begin no further work of the principal for `rest_s` seconds, and count the time. Do
        nothing if it rests already."""
        if principal not in self._resting:
            self._resting.add(principal)
            self.rested_s += rest_s
            asyncio.get_running_loop().call_later(rest_s, self._rested, principal)

    def _rested(self, principal: str) -> None:
        self._resting.discard(principal)
        self._begin_next()

    def _begin(self, principal: str) -> None:
        served_ns = max(self._served_ns.get(principal, 0), self._least_ns)
        self._served_ns[principal] = self._least_ns = served_ns
        self.threads.take(principal, 1)

    def _ended(self, principal: str, took_ns: int) -> None:
        self.threads.give_back(principal, 1)
        self._served_ns[principal] = self._served_ns.get(principal, 0) + took_ns
        self.used.add(principal, took_ns)
        self._begin_next()
        if not self.threads.used:
            self._served_ns.clear()
            self._least_ns = 0
        elif len(self._served_ns) > REMEMBERED_MAX:
            least_ns = self._least_ns
            self._served_ns = {p: ns for p, ns in self._served_ns.items() if ns > least_ns}

    def _begin_next(self) -> None:
        """Begin waiting work while threads are free. The principal that has used the least
        processor time goes first; of equals, the one that came first."""
        while able := [p for p in self._lines if self._may_begin(p)]:
            principal = min(able, key=lambda p: max(self._served_ns.get(p, 0), self._least_ns))
            waiting = next(iter(self._lines[principal]))
            if waiting.turn.cancelled():
                self.let_go(waiting)
                continue
            self._leave(waiting)
            self._begin(principal)
            waiting.turn.set_result(None)


class UsedTime:
    """Processor time by principal, for the metrics. At most REMEMBERED_MAX principals are counted
    by themselves; beyond that, the smallest are added to a common count, and begin at 0 if they
    return."""

    def __init__(self) -> None:
        self._ns: dict[str, int] = {}
        self._others_ns = 0

    def add(self, principal: str, ns: int) -> None:
        self._ns[principal] = self._ns.get(principal, 0) + ns
        if len(self._ns) > REMEMBERED_MAX:
            for one in sorted(self._ns, key=self._ns.__getitem__)[: REMEMBERED_MAX // 2]:
                self._others_ns += self._ns.pop(one)

    def seconds(self) -> dict[str, float]:
        """Return the processor time, in seconds, of the `SHOWN_MAX` largest users, by principal."""
        most = sorted(self._ns, key=lambda one: (-self._ns[one], one))[:SHOWN_MAX]
        return {one: self._ns[one] / 1e9 for one in most}

    def others_s(self) -> float:
        """Return the processor time, in seconds, of all principals that `seconds` leaves out."""
        left = sum(self._ns.values()) + self._others_ns
        return left / 1e9 - sum(self.seconds().values())
