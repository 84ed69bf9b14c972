"""Connections of servers that tests play."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine


def serve(
    tasks: set[asyncio.Task[None]],
    work: Coroutine[object, object, None],
    writer: asyncio.StreamWriter,
) -> None:
    """By a task of its own, which is among `tasks` until it ends and closes the connection."""
    task = asyncio.ensure_future(work)
    tasks.add(task)

    def ended(_: object) -> None:
        tasks.discard(task)
        writer.close()  # here, as a task that is cancelled before its first step runs nothing

    task.add_done_callback(ended)
