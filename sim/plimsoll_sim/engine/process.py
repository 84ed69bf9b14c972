"""A simulated process: when it ends, exactly its tasks and callbacks end.

Every callback carries its process in its context (`contextvars`). The loop drops the callbacks of a
dead process, and keeps those of a paused one until it resumes. As with SIGKILL and SIGSTOP, the
code of the process is not notified.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from contextvars import Context, ContextVar
from typing import Any, Protocol

PROCESS: ContextVar[Process] = ContextVar("process")


class ProcessDied(BaseException):
    """Raised in a process that is killed in the middle of a call. No code may catch it."""


class Handle:
    """A callback to run once, in place of asyncio's Handle and TimerHandle."""

    __slots__ = ("args", "callback", "context", "process", "when_us")

    def __init__(
        self,
        callback: Callable[..., object],
        args: tuple[object, ...],
        context: Context,
        when_us: int = 0,
    ) -> None:
        # None once it is cancelled.
        self.callback: Callable[..., object] | None = callback
        self.args = args
        self.context = context
        self.process: Process | None = context.get(PROCESS)
        self.when_us = when_us

    def cancel(self) -> None:
        self.callback = None
        self.args = ()

    def cancelled(self) -> bool:
        return self.callback is None

    def when(self) -> float:
        return self.when_us / 1_000_000


class ProcessLoop(Protocol):
    """The part of the event loop that a process uses (`loop.SimLoop`)."""

    def create_task(
        self, coro: Coroutine[Any, Any, Any], *, context: Context
    ) -> asyncio.Task[Any]: ...

    def put_back(self, handles: list[Handle]) -> None: ...

    def bury(self, tasks: list[asyncio.Task[Any]]) -> None: ...


class Process:
    """One lifetime of a process. `host`: the machine on which it runs; `wall_offset_ms`: the error
    of its wall clock in milliseconds."""

    def __init__(self, loop: ProcessLoop, name: str, host: str) -> None:
        self.name = name
        self.host = host
        self.alive = True
        self.paused = False
        self.wall_offset_ms = 0
        self.held: list[Handle] = []
        self.tasks: dict[asyncio.Task[Any], None] = {}
        self.ended: BaseException | None = None
        self.exited = False
        self.at_death: list[Callable[[], None]] = []
        self.context = Context()
        self.context.run(PROCESS.set, self)
        self._loop = loop
        self.main: asyncio.Task[Any] | None = None

    def start(self, work: Coroutine[Any, Any, Any]) -> None:
        """Run `work` as the process's main task. When it ends, the process ends."""
        self.main = self._loop.create_task(work, context=self.context)
        self.main.add_done_callback(self._exit, context=self.context)

    def _exit(self, task: asyncio.Task[Any]) -> None:
        if not self.alive:
            return
        self.exited = True
        if not task.cancelled():
            self.ended = task.exception()
        self.die()

    def call(self, callback: Callable[..., Any], *args: Any) -> Any:
        """Call a function in this process, now, and return its result."""
        return self.context.run(callback, *args)

    def pause(self) -> None:
        self.paused = True

    def resume(self) -> None:
        self.paused = False
        held, self.held = self.held, []
        self._loop.put_back(held)

    def die(self) -> None:
        """Kill the process: none of its callbacks run any more."""
        if not self.alive:
            return
        self.alive = False
        self.held.clear()
        for callback in self.at_death:
            callback()
        # Referenced until the loop is closed: a coroutine that is collected runs its `finally`.
        self._loop.bury(list(self.tasks))
        self.tasks.clear()

    def __repr__(self) -> str:
        return self.name


def current() -> Process | None:
    """Return the process that is running; None outside of processes."""
    return PROCESS.get(None)
