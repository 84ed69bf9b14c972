"""Who brings logs to the disk: in threads, one flush of a log at a time.

Called by upkeep (flush.ms, checkpoints).  A disk that fails takes the one replica whose log it held
out of service.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import Protocol, TypeVar

from plimsoll_broker.hosted import Hosted
from plimsoll_broker.storage.disk import StorageError
from plimsoll_broker.threads import in_thread

T = TypeVar("T")

AT_ONCE = 8
"""Flushes at a time, of each kind: a volume that is slow must not take every thread there is."""


class Owner(Protocol):
    """What the flusher needs of the replica manager."""

    def is_here(self, hosted: Hosted) -> bool: ...

    def touch(self, hosted: Hosted) -> None: ...

    def out_of_service(self, hosted: Hosted, error: StorageError) -> None: ...


class Flusher:
    """Owned by the event loop."""

    def __init__(self, owner: Owner) -> None:
        self._owner = owner
        self._busy: dict[Hosted, asyncio.Future[None]] = {}

    async def sync(self, hosted: Hosted, *, checkpoint: bool = False) -> None:
        """Everything that is in the log now is on the disk afterwards, unless it fails or goes."""
        while (running := self._busy.get(hosted)) is not None:
            await asyncio.wait([running])
        if hosted.replica.failed or not self._owner.is_here(hosted):
            return
        done = self._busy[hosted] = asyncio.get_running_loop().create_future()
        try:
            flush = hosted.log.begin_flush(checkpoint=checkpoint)
            await in_thread(flush.sync)
            # Once it was dropped, its directory's name may be another topic's.
            if self._owner.is_here(hosted):
                hosted.log.flushed(flush)
        except StorageError as error:
            # What a failed sync leaves on disk is unknown: nothing more is promised from it.
            if self._owner.is_here(hosted):
                self._owner.out_of_service(hosted, error)
        finally:
            del self._busy[hosted]
            done.set_result(None)
        self._owner.touch(hosted)


async def several(items: Iterable[T], work: Callable[[T], Awaitable[None]]) -> None:
    """Work on each, several at a time."""
    left = iter(items)

    async def worker() -> None:
        for item in left:
            await work(item)

    async with asyncio.TaskGroup() as group:
        for _ in range(AT_ONCE):
            group.create_task(worker())
