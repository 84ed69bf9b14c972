"""Background tasks of a local cluster: keeps a reference to each and reports every failure."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from typing import Any


class BackgroundTasks:
    """Starts asyncio tasks and keeps references to them until they end. `failed` is called with the
    exception of each task that raises one; a cancelled task is no failure."""

    def __init__(self, failed: Callable[[BaseException], None]) -> None:
        self._failed = failed
        # Tasks that have not ended.
        self._tasks: set[asyncio.Task[None]] = set()

    def spawn(self, work: Coroutine[Any, Any, None], name: str | None = None) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._done)
        return task

    def __iter__(self) -> Iterator[asyncio.Task[None]]:
        """Iterate over a snapshot of the running tasks."""
        return iter(tuple(self._tasks))

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._failed(error)
