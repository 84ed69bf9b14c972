"""LogStartSaves: saves log starts that DeleteRecords has raised, for all requests that wait.

A request is answered once its log starts are on the disk. One save runs at a time: requests that
come meanwhile wait for the next one, which saves the logs of all of them. So the number of requests
decides neither the number of syncs nor the time on the event loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from plimsoll_broker.background import in_thread
from plimsoll_broker.handler_failures import Answering
from plimsoll_broker.storage.checkpoint_formats import Partition
from plimsoll_broker.storage.log_store import LogStore


class LogStartSaves:
    """Saves the log starts of one volume."""

    def __init__(self, store: LogStore) -> None:
        self._store = store
        # The partitions of the next save, and the future of its end.
        self._changed: dict[Partition, None] = {}
        self._next: asyncio.Future[None] | None = None
        self._task: asyncio.Task[None] | None = None

    async def save(self, changed: Iterable[Partition]) -> None:
        """Save the present log starts of these partitions. Raise StorageError if the disk fails."""
        self._changed.update(dict.fromkeys(changed))
        if self._next is None:
            self._next = asyncio.get_running_loop().create_future()
        saved = self._next
        if self._task is None:
            self._task = asyncio.ensure_future(self._run())
        await asyncio.shield(saved)

    async def _run(self) -> None:
        """Save until no request waits."""
        try:
            while (saved := self._next) is not None:
                changed, self._changed, self._next = self._changed, {}, None
                try:
                    with Answering(saved):
                        await in_thread(self._store.begin_log_starts(changed))
                        saved.set_result(None)
                finally:
                    saved.cancel()  # if this task was cancelled
        finally:
            self._task = None
            if self._next is not None:
                self._next.cancel()
                self._next = None
