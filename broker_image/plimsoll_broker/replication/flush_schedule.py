"""Flusher: schedules flushes of logs, one at a time for each log, a few in parallel.

`PeriodicChores` asks for flushes (flush.ms, checkpoints), and the replica manager does if records
must be on the disk before they are acknowledged (flush.messages). `Flusher.tasks` are among the
broker's tasks. LogWriter does the flushing and takes a replica offline if its disk fails.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Iterator
from contextlib import suppress
from typing import Any, Protocol, TypeVar

from plimsoll_broker.background import cancel_again, in_thread
from plimsoll_broker.replication.hosted_partitions import Hosted
from plimsoll_broker.replication.log_writer import LogWriter
from plimsoll_broker.storage.checkpoint_formats import Partition
from plimsoll_broker.storage.disk import StorageError
from plimsoll_broker.storage.log_store import LogStore

T = TypeVar("T")

AT_ONCE = 8
"""The most flushes in parallel, of each kind: a slow volume must not occupy every thread."""


class FlushOwner(Protocol):
    """The part of the replica manager that the flusher needs."""

    driver: LogWriter

    def is_here(self, hosted: Hosted) -> bool: ...
    def touch(self, hosted: Hosted) -> None: ...


class Flusher:
    """Flushes the logs of one broker: at most one flush of a log at a time, and AT_ONCE logs in
    parallel. Used from the event loop; the syncs run in threads."""

    def __init__(self, owner: FlushOwner) -> None:
        self._owner = owner
        self._busy: dict[Hosted, asyncio.Future[None]] = {}
        self._wanted: dict[Hosted, None] = {}
        self._anything = asyncio.Event()

    # --- flush.messages -------------------------------------------------------------------------

    def want(self, hosted: Hosted) -> None:
        """Queue a flush of this log for the worker tasks. Do nothing while the log is being
        flushed: at the end of that flush its replica is stepped, which queues another flush if
        newer records need one."""
        if hosted not in self._busy:
            self._wanted[hosted] = None
            self._anything.set()

    def tasks(self) -> Iterator[tuple[str, Coroutine[Any, Any, None]]]:
        """Yield the name and coroutine of each worker task. Each runs until cancelled."""
        for number in range(AT_ONCE):
            yield f"flushes {number}", self._work()

    async def _work(self) -> None:
        while True:
            while not self._wanted:
                self._anything.clear()
                await self._anything.wait()
            hosted = next(iter(self._wanted))
            del self._wanted[hosted]
            if _is_due(hosted):
                await self.sync(hosted)

    async def settle(self, logs: Iterable[Hosted]) -> None:
        """Flush those of these logs with records that flush.messages requires to be flushed, and
        return when they are. A log that goes offline or is dropped is not awaited."""

        async def flush(hosted: Hosted) -> None:
            while _is_due(hosted) and not hosted.replica.failed and self._owner.is_here(hosted):
                await self.sync(hosted)

        await several([hosted for hosted in logs if _is_due(hosted)], flush)

    async def settle_cuts(self, logs: Iterable[Hosted]) -> None:
        """Make the truncations of these logs durable. A log with a failing sync goes offline."""
        await several(logs, self._owner.driver.settle_cut)

    async def make_durable(self, store: LogStore, partitions: Iterable[Partition]) -> None:
        """Sync, in a thread, those of these partitions' logs that were made and not synced since;
        otherwise their first append would sync each in the event loop. A failed sync is not raised
        here: the first append to that log raises it."""
        if new := store.new_logs.among(partitions):
            with suppress(StorageError):  # the append reports it, for its own log
                await in_thread(store.new_logs.begin_of(new))

    # --- one flush ------------------------------------------------------------------------------

    async def quiet(self, hosted: Hosted) -> None:
        """Wait until no flush of this log is in progress."""
        while (running := self._busy.get(hosted)) is not None:
            await asyncio.wait([running])

    async def sync(self, hosted: Hosted, *, checkpoint: bool = False) -> None:
        """Flush all that is in the log at this time, after waiting for a flush in progress. Do
        nothing if the log is offline or dropped; if the disk fails, the replica goes offline and
        nothing is raised. `checkpoint`: see `Log.begin_flush`."""
        await self.quiet(hosted)
        if hosted.replica.failed or not self._owner.is_here(hosted):
            return
        done = self._busy[hosted] = asyncio.get_running_loop().create_future()
        try:
            await self._owner.driver.flush(hosted, checkpoint=checkpoint)
        finally:
            del self._busy[hosted]
            done.set_result(None)
            # Also if the caller was cancelled: pending requests for a flush are repeated.
            self._owner.touch(hosted)


def _is_due(hosted: Hosted) -> bool:
    """Return True if the log has records that flush.messages requires to be flushed before they are
    acknowledged."""
    return hosted.log.countable_end < hosted.log.log_end_offset


async def several(items: Iterable[T], work: Callable[[T], Awaitable[None]]) -> None:
    """Apply `work` to each item, AT_ONCE of them in parallel. Raise the errors as an exception
    group, even if the caller was cancelled (as `in_thread` does)."""
    wanted = list(items)
    if not wanted:
        return
    left = iter(wanted)

    async def worker() -> None:
        for item in left:
            await work(item)

    try:
        async with asyncio.TaskGroup() as group:
            for _ in wanted[:AT_ONCE]:
                group.create_task(worker())
    except BaseExceptionGroup:
        # A task group that is cancelled and meets an error raises only the error.
        if (task := asyncio.current_task()) is not None and task.cancelling():
            cancel_again()
        raise
