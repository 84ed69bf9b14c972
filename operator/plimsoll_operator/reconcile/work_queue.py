"""The reconcile queue. A key waits at most once, is retried with backoff, and is never handled
twice at a time.

Namespaces take turns: a thousand changed objects of one namespace delay an object of another one by
one pass. The tasks of the cluster itself go first.

Retries are kept in memory, since kopf would keep them in annotations of the user's object. The
number of keys is bounded by the number of objects, and the number of workers is fixed. A failed
handler is retried after 1, 2, 4, … seconds, at most a minute. After a bug nothing shortens this
delay: the status that reports the bug is itself a change of the object.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Hashable
from typing import Generic, TypeVar

from plimsoll_core.quotas.principal_turns import PrincipalTurns
from plimsoll_operator.reconcile_times import ReconcileTimes

logger = logging.getLogger("plimsoll.queue")

K = TypeVar("K", bound=Hashable)

UNLESS_LASTING = (
    "the operator tries again, and nothing needs to be done unless this lasts for minutes"
)
"""Part of the sentence of a `Retry` because of the API server."""
BACKOFF_MS = 1_000
BACKOFF_MS_MAX = 60_000


class Retry(Exception):
    """Raised by a handler that cannot complete yet, so that its key is handled again: after
    `after_ms` milliseconds, or with backoff if that is None. It is not logged as a failure."""

    def __init__(self, why: str, after_ms: int | None = None) -> None:
        super().__init__(why)
        self.after_ms = after_ms


class PassFailed(Retry):
    """Raised by a handler after a bug that it has already reported. Its key is retried with
    backoff, and adding the key does not shorten the delay."""


class ReconcileQueue(Generic[K]):
    """Queue of keys, each passed to `handle` by one of `workers` tasks. `run` works until it is
    cancelled. `add` may be called from the same event loop at any time."""

    def __init__(
        self,
        handle: Callable[[K], Awaitable[None]],
        *,
        workers: int = 4,
        times: ReconcileTimes | None = None,
        task_of: Callable[[K], str] = str,
        turn_of: Callable[[K], str | None] = lambda _: "",
    ) -> None:
        """Create a queue. `times`, if given, receives the duration and outcome of each call of
        `handle`, with the label that `task_of` returns for the key. `turn_of`: the namespace with
        which a key takes turns, None for a key that goes before all others; such keys must be
        few."""
        self._handle = handle
        self._times = times
        self._task_of = task_of
        self._workers = workers
        self._turn_of = turn_of
        self._first: dict[K, None] = {}
        self._turns: PrincipalTurns[K, None] = PrincipalTurns()
        # One item for each key in `_first` and `_turns`.
        self._ready: asyncio.Queue[None] = asyncio.Queue()
        self._waiting: set[K] = set()
        self._running: set[K] = set()
        self._again: set[K] = set()
        self._failures: dict[K, int] = {}
        # Keys of which the last attempt raised `PassFailed`; `add` does not shorten their delay.
        self._held: set[K] = set()
        # The last reason of each key's retries that was logged.
        self._said: dict[K, str] = {}
        self._timers: dict[K, asyncio.TimerHandle] = {}

    def add(self, key: K) -> None:
        """Queue `key` to be handled as soon as a worker is free, before any delay of it has passed.
        If it waits already, nothing changes; if it is being handled, it is handled once more
        afterwards. Only the delay after a `PassFailed` is not shortened."""
        if key in self._held and key in self._timers:
            return
        if timer := self._timers.pop(key, None):
            timer.cancel()
        if key in self._running:
            self._again.add(key)
        elif key not in self._waiting:
            self._waiting.add(key)
            namespace = self._turn_of(key)
            if namespace is None:
                self._first[key] = None
            else:
                self._turns.add(namespace, key, None)
            self._ready.put_nowait(None)
            self._tell_waiting()

    def add_later(self, key: K, delay_ms: int) -> None:
        """Queue `key` after `delay_ms` milliseconds. Do nothing if the key waits already or has a
        timer, even a longer one; `add` queues it earlier."""
        if key in self._waiting or key in self._timers:
            return
        loop = asyncio.get_running_loop()
        self._timers[key] = loop.call_later(delay_ms / 1000, self._due, key)

    def forget(self, key: K) -> None:
        """Cancel the delayed retry of `key` and forget its failures, since its object is deleted. A
        key that waits or is being handled stays so."""
        self._failures.pop(key, None)
        self._held.discard(key)
        self._said.pop(key, None)
        if self._times is not None and key not in self._running:
            self._times.abandoned(key)
        if timer := self._timers.pop(key, None):
            timer.cancel()

    async def run(self) -> None:
        """Handle keys until cancelled. An exception of `handle` other than `Retry` ends all workers
        and is raised, in an ExceptionGroup."""
        try:
            async with asyncio.TaskGroup() as group:
                for _ in range(self._workers):
                    group.create_task(self._work())
        finally:
            for timer in self._timers.values():
                timer.cancel()
            self._timers.clear()

    def _due(self, key: K) -> None:
        self._timers.pop(key, None)
        self.add(key)

    async def _work(self) -> None:
        while True:
            await self._ready.get()
            key = self._next()
            self._waiting.discard(key)
            self._tell_waiting()
            self._running.add(key)
            try:
                delay_ms = await self._timed(key)
            finally:
                self._running.discard(key)
            again = key in self._again
            self._again.discard(key)
            if again and key not in self._held:
                self.add(key)
            elif delay_ms is not None:
                self.add_later(key, delay_ms)

    def _next(self) -> K:
        """Remove and return the key to handle next. There must be one."""
        if self._first:
            key = next(iter(self._first))
            del self._first[key]
            return key
        return self._turns.take()[1]

    def _tell_waiting(self) -> None:
        if self._times is not None:
            self._times.waiting = len(self._waiting)

    async def _timed(self, key: K) -> int | None:
        times = self._times
        if times is None:
            return await self._attempt(key)
        times.begun(key)
        try:
            delay_ms = await self._attempt(key)
        except BaseException:
            times.abandoned(key)
            raise
        times.ended(key, self._task_of(key), retried=delay_ms is not None)
        return delay_ms

    async def _attempt(self, key: K) -> int | None:
        try:
            await self._handle(key)
        except Retry as retry:
            self._say(key, str(retry))
            if isinstance(retry, PassFailed):
                self._held.add(key)
            else:
                self._held.discard(key)
            failures = self._failures[key] = self._failures.get(key, 0) + 1
            return retry.after_ms if retry.after_ms is not None else backoff_ms(failures)
        self._failures.pop(key, None)
        self._held.discard(key)
        self._said.pop(key, None)
        return None

    def _say(self, key: K, why: str) -> None:
        """Log why the key is retried, once until the reason changes or a pass ends well. The
        object's status shows a reason that lasts."""
        if self._said.get(key) != why:
            self._said[key] = why
            logger.info(
                'the operator could not finish the work "%s" and tries again; if that lasts, the '
                "status of the object shows why: %s",
                key,
                why,
            )


def backoff_ms(failures: int) -> int:
    """Return the delay before the next attempt after this many failures in a row, in milliseconds:
    1, 2, 4, … seconds, at most a minute."""
    return int(min(BACKOFF_MS * 2 ** min(failures - 1, 10), BACKOFF_MS_MAX))
