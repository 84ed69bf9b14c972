"""An asyncio event loop with virtual time, in which every choice comes from one seed.

A step takes the earliest event (a timer, a delivery, the end of an I/O, a fault) and runs it, with
everything that follows from it without a wait. The loop reads no real clock, and runs nothing
concurrently: the same seed gives the same run.
"""

from __future__ import annotations

import asyncio
import random
import socket
from collections import deque
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from contextvars import Context, copy_context
from functools import partial
from heapq import heappop, heappush
from typing import Any, TypeVar

from plimsoll_sim.engine.draws import numbers_below
from plimsoll_sim.engine.process import PROCESS, Handle, Process, ProcessDied

T = TypeVar("T")
READY_MAX = 200_000
"""Maximum number of callbacks in one instant of virtual time. With more, the loop raises
Livelock."""
TIMER_JITTER_US = 1_500
IO_US = (50, 20_000)


class Livelock(Exception):
    """Raised if the code under test never waits, so that virtual time does not advance."""


def _outcome(work: Callable[[], T]) -> Callable[[], T]:
    """Call `work` now. Return a function that returns its result, or raises its error."""
    try:
        result = work()
    except Exception as error:
        raised = error

        def fail() -> T:
            raise raised

        return fail
    return lambda: result


def _own(context: Context | None) -> Context:
    """Return the context of a callback. An empty context belongs to no process, and is false."""
    return copy_context() if context is None else context


def _still_matters(handle: Handle) -> bool:
    process = handle.process
    return handle.callback is not None and (process is None or process.alive)


class SimLoop(asyncio.AbstractEventLoop):
    """The simulated event loop. `network`: set by the builder of the world. `crashes`: exceptions
    of bugs that surfaced."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self._jitter_us = numbers_below(rng, TIMER_JITTER_US)
        self.now_us = 0
        self.steps = 0
        self.network: Any = None
        self.crashes: list[tuple[Process | None, BaseException, str]] = []
        self.touched: dict[Process, None] = {}
        self._ready: deque[Handle] = deque()
        self._missed: deque[Handle] = deque()
        # Callbacks that came due while a processor was busy, and those that wait for their turn
        # behind.
        self._due: deque[Handle] = deque()
        self._behind: deque[Handle] = deque()
        self._interrupted = False
        self._events: list[tuple[int, int, Handle]] = []
        self._count = 0
        self._graveyard: list[asyncio.Task[Any]] = []
        self._closed = False
        self.slow_io: dict[str, tuple[int, int]] = {}
        # The share of looks at the clock at which a slice of long work is over.
        self.slices_end = 0.0
        self.slice_dice = random.Random(0)

    # --- time and callbacks -----------------------------------------------------------------------

    def time(self) -> float:
        return self.now_us / 1_000_000

    def call_soon(  # type: ignore[override]
        self, callback: Callable[..., object], *args: object, context: Context | None = None
    ) -> Handle:
        handle = Handle(callback, args, copy_context() if context is None else context)
        self._ready.append(handle)
        return handle

    call_soon_threadsafe = call_soon  # type: ignore[assignment]

    def call_later(  # type: ignore[override]
        self,
        delay: float,
        callback: Callable[..., object],
        *args: object,
        context: Context | None = None,
    ) -> Handle:
        return self.call_at(self.now_us / 1_000_000 + delay, callback, *args, context=context)

    def call_at(  # type: ignore[override]
        self,
        when: float,
        callback: Callable[..., object],
        *args: object,
        context: Context | None = None,
    ) -> Handle:
        # A timer is never early and always a little late, as with any kernel.
        us = max(round(when * 1_000_000), self.now_us) + 1 + self._jitter_us()
        handle = Handle(callback, args, copy_context() if context is None else context, us)
        self._count += 1
        heappush(self._events, (us, self._count, handle))
        return handle

    def at_us(
        self,
        us: int,
        callback: Callable[..., object],
        *args: object,
        context: Context | None = None,
    ) -> Handle:
        """Run a callback at exactly this virtual time, in microseconds."""
        handle = Handle(callback, args, copy_context() if context is None else context, us)
        self._count += 1
        heappush(self._events, (us, self._count, handle))
        return handle

    def later(self, us: int, action: Callable[[], object]) -> None:
        """Run an action after `us` virtual microseconds. It belongs to no process, so it runs even
        if every process has ended."""
        self.at_us(self.now_us + us, action, context=Context())

    def put_back(self, handles: list[Handle]) -> None:
        """Run the callbacks that a paused process missed, in their order, one in each step: the
        process may end with any of them, and each step is checked."""
        self._missed.extend(handles)

    def bury(self, tasks: list[asyncio.Task[Any]]) -> None:
        self._graveyard.extend(tasks)

    # --- running ----------------------------------------------------------------------------------

    def step(self) -> bool:
        """Run the next event and everything that follows without a wait. Return False if there is
        no event."""
        self.touched.clear()
        if self._ready:
            # Callbacks put back between steps run first, so that they are checked before others
            # see them.
            self._drain()
            return True
        if self._missed:
            self._run(self._missed.popleft())
            self._drain()
            return True
        if waiting := self._due or self._behind:
            self._run(waiting.popleft())
            self._queue_behind()
            return True
        handle = self._next_event()
        if handle is None:
            return False
        self._run(handle)
        self._drain()
        return True

    def _queue_behind(self) -> None:
        """Queue the callbacks that are ready behind those left over from busy steps. Each of them
        then runs in a step of its own, so that the checkers see the effects of each."""
        self._interrupted = False
        self._behind.extend(self._ready)
        self._ready.clear()

    def pass_time(self, us: int) -> None:
        """Advance the time by `us` microseconds, for which a processor was busy. As in asyncio,
        callbacks that are ready by now run first, then those that have become due, and then those
        that the first ones scheduled."""
        self.now_us += us
        nobody = Context()
        self.call_soon(partial(self.call_soon, self._let_due, context=nobody), context=nobody)

    def _let_due(self) -> None:
        """Queue the events that have become due, behind earlier ones: data on one connection
        arrives in its order."""
        while (us := self._event_us()) is not None and us <= self.now_us:
            self._due.append(self._take_event())
        self._interrupted = True

    def _next_event(self) -> Handle | None:
        """Remove and return the earliest event that still matters; None if there is none."""
        return None if self._event_us() is None else self._take_event()

    def _take_event(self) -> Handle:
        """Remove and return the earliest event. Call `_event_us` before, which drops events that no
        longer matter."""
        us, _, handle = heappop(self._events)
        if us > self.now_us:
            self.now_us = us
        self.steps += 1
        return handle

    @property
    def behind(self) -> bool:
        """Return True if a processor is behind: processes have callbacks that are ready and have
        not run yet."""
        return bool(self._due or self._behind)

    def next_us(self) -> int | None:
        """Return the virtual time of the next event in microseconds; None if there is none."""
        return self.now_us if self._missed or self.behind else self._event_us()

    def _event_us(self) -> int | None:
        """Return the time of the earliest event that still matters; drop those before it."""
        events = self._events
        while events and not _still_matters(events[0][2]):
            heappop(events)
        return events[0][0] if events else None

    def _drain(self) -> None:
        ready, run = self._ready, self._run
        left = READY_MAX
        while ready:
            run(ready.popleft())
            if self._interrupted:
                self._queue_behind()
                return
            left -= 1
            if not left:
                raise Livelock(f"{READY_MAX} callbacks at once; the last of {ready[0].process}")

    def _run(self, handle: Handle) -> None:
        callback = handle.callback
        if callback is None:
            return
        process = handle.process
        if process is not None:
            if not process.alive:
                return
            if process.paused:
                process.held.append(handle)
                return
            self.touched[process] = None
        try:
            handle.context.run(callback, *handle.args)
        except ProcessDied:
            pass
        except Exception as error:
            if process is None or process.alive:
                self.crashes.append((process, error, "a callback failed"))

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        error = context.get("exception")
        process = PROCESS.get(None)
        if isinstance(error, ProcessDied) or (process is not None and not process.alive):
            return
        if error is None:
            error = RuntimeError(context.get("message", "?"))
        self.crashes.append((process, error, context.get("message", "")))

    def close(self) -> None:
        """Drop everything, because the run is over. A coroutine that is garbage-collected runs once
        more, to its `finally`, and what it refers to is collected later. So coroutines are closed
        before, and everything is collected at once."""
        self._closed = True
        for task in self._graveyard:
            with suppress(Exception, asyncio.CancelledError, ProcessDied):
                task.get_coro().close()
        self._ready.clear()
        self._due.clear()
        self._behind.clear()
        self._missed.clear()
        self._events.clear()
        self._graveyard.clear()

    # --- what asyncio asks ------------------------------------------------------------------------

    def create_future(self) -> asyncio.Future[Any]:
        return asyncio.Future(loop=self)

    def create_task(  # type: ignore[override]
        self,
        coro: Coroutine[Any, Any, T],
        *,
        name: str | None = None,
        context: Context | None = None,
    ) -> asyncio.Task[T]:
        context = _own(context)
        task: asyncio.Task[T] = asyncio.Task(coro, loop=self, name=name, context=context)
        process = context.get(PROCESS)
        if process is not None:
            tasks = process.tasks
            tasks[task] = None
            task.add_done_callback(lambda done: tasks.pop(done, None))
        return task

    def is_running(self) -> bool:
        return True

    def is_closed(self) -> bool:
        return self._closed

    def get_debug(self) -> bool:
        return False

    def run_in_executor(
        self, executor: object, func: Callable[..., T], *args: object
    ) -> asyncio.Future[T]:
        """Call `func` as in a thread, and return a future of its result. Threads end one at a time,
        at a time that the seed chooses. The call itself happens at that time, or at once, so that a
        file may be synced with other content than it had at the call."""
        future: asyncio.Future[T] = self.create_future()
        process = PROCESS.get(None)
        slow = None if process is None else self.slow_io.get(process.host)
        due_us = self.now_us + self.rng.randrange(*(slow or IO_US))
        if self.rng.random() < 0.5:
            done: Callable[[], T] = partial(func, *args)
        else:
            done = _outcome(partial(func, *args))

        def run() -> None:
            if future.cancelled():
                return
            try:
                future.set_result(done())
            except Exception as error:
                future.set_exception(error)

        self.at_us(due_us, run)
        return future

    # --- the network ------------------------------------------------------------------------------

    async def create_server(  # type: ignore[override]
        self, factory: Callable[[], Any], host: str, port: int, **_: object
    ) -> Any:
        return self.network.listen(factory, host, port)

    async def create_connection(  # type: ignore[override]
        self, factory: Callable[[], Any], host: str, port: int, **_: object
    ) -> Any:
        return await self.network.connect(factory, host, port)

    async def sock_connect(self, sock: socket.socket, address: Any) -> None:
        """Check that the address accepts connections. The socket stays unconnected, and the
        simulated connection is aborted."""
        transport, _ = await self.network.connect(asyncio.Protocol, *address)
        transport.abort()

    async def getaddrinfo(  # type: ignore[override]
        self, host: str, port: int, **_: object
    ) -> Sequence[tuple[int, int, int, str, tuple[str, int]]]:
        found = self.network.resolve(host)
        if not found:
            raise OSError(f"{host}: no such host")
        return [(2, 1, 6, "", (address, port)) for address in found]
