"""Schedules flushes of logs: one flush of a log at a time, a few at once.

Upkeep asks for flushes (flush.ms, checkpoints), and so does the replica manager where what was
appended may not be acknowledged before it is on the disk (flush.messages).  `Flusher.tasks` are
among the broker's.  The driver flushes, and takes a replica out of service whose disk fails.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Iterator
from contextlib import suppress
from typing import Any, Protocol, TypeVar

from plimsoll_broker.background.threads import cancel_again, in_thread
from plimsoll_broker.replication.hosted_partition import Hosted
from plimsoll_broker.replication.log_writer import LogWriter
from plimsoll_broker.storage.checkpoint_formats import Partition
from plimsoll_broker.storage.disk import StorageError
from plimsoll_broker.storage.log_store import LogStore

T = TypeVar("T")

AT_ONCE = 8
"""Flushes at a time, of each kind: a volume that is slow must not take every thread there is."""


class FlushOwner(Protocol):
    """What the flusher needs of the replica manager."""

    driver: LogWriter

    def is_here(self, hosted: Hosted) -> bool: ...
    def touch(self, hosted: Hosted) -> None: ...


class Flusher:
    """Owned by the event loop."""

    def __init__(self, owner: FlushOwner) -> None:
        self._owner = owner
        self._busy: dict[Hosted, asyncio.Future[None]] = {}
        self._wanted: dict[Hosted, None] = {}
        self._anything = asyncio.Event()

    # --- flush.messages -------------------------------------------------------------------------

    def want(self, hosted: Hosted) -> None:
        """Soon.  While a flush of it is under way nothing happens: the step after that one asks
        again if what was appended meanwhile needs another."""
        if hosted not in self._busy:
            self._wanted[hosted] = None
            self._anything.set()

    def tasks(self) -> Iterator[tuple[str, Coroutine[Any, Any, None]]]:
        """Each until cancelled."""
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
        """Until all that is in them may be acknowledged, or is out of service."""

        async def flush(hosted: Hosted) -> None:
            while _is_due(hosted) and not hosted.replica.failed and self._owner.is_here(hosted):
                await self.sync(hosted)

        await several([hosted for hosted in logs if _is_due(hosted)], flush)

    async def settle_cuts(self, logs: Iterable[Hosted]) -> None:
        """Until what was cut stays cut, or the log is out of service."""
        await several(logs, self._owner.driver.settle_cut)

    async def make_durable(self, store: LogStore, partitions: Iterable[Partition]) -> None:
        """Of these the new ones, before they are appended to: else each does it for itself, in the
        event loop."""
        if new := store.new_logs.among(partitions):
            with suppress(StorageError):  # then the append tells, of its own log
                await in_thread(store.new_logs.begin_of(new))

    # --- one flush ------------------------------------------------------------------------------

    async def quiet(self, hosted: Hosted) -> None:
        """Until no flush of it is under way."""
        while (running := self._busy.get(hosted)) is not None:
            await asyncio.wait([running])

    async def sync(self, hosted: Hosted, *, checkpoint: bool = False) -> None:
        """Everything that is in the log now is on the disk afterwards, unless it fails or goes."""
        await self.quiet(hosted)
        if hosted.replica.failed or not self._owner.is_here(hosted):
            return
        done = self._busy[hosted] = asyncio.get_running_loop().create_future()
        try:
            await self._owner.driver.flush(hosted, checkpoint=checkpoint)
        finally:
            del self._busy[hosted]
            done.set_result(None)
            # Also when whoever asked was cancelled: what was wanted meanwhile is asked for again.
            self._owner.touch(hosted)


def _is_due(hosted: Hosted) -> bool:
    return hosted.log.countable_end < hosted.log.log_end_offset


async def several(items: Iterable[T], work: Callable[[T], Awaitable[None]]) -> None:
    """Work on each, several at a time.  As of `in_thread`, an error is raised also when the caller
    was cancelled."""
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
        # A group that is cancelled and meets an error raises the error alone.
        if (task := asyncio.current_task()) is not None and task.cancelling():
            cancel_again()
        raise
