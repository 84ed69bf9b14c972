"""Decides what a process does about an exception that its event loop did not handle.

Called by the loops' exception handlers of the broker and the operator.  asyncio only logs such a
thing and goes on, with whatever the callback had begun left half done: a partition that is
never stepped again, a task that ends unnoticed.  Source: docs/design/009-exceptions.md.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import TracebackType
from typing import Any

COSTS = "costs"


def ends_process(context: Mapping[str, Any], ours: str | None = None) -> BaseException | None:
    """The bug in what a loop reports (asyncio's exception context), or None: log it and go on.

    A failed connection is the world's fault, and so is a report without an exception (a task that
    was dropped at the end, a peer's data after its close).  `ours`: only exceptions that passed
    through a module of this prefix, where libraries run tasks of their own in the same loop.
    `costs` in the context: the code that met it has named its price already (a connection, say).
    """
    error = context.get("exception")
    if (
        COSTS in context
        or not isinstance(error, Exception)
        or isinstance(error, OSError | EOFError)
    ):
        return None
    if ours is not None and not _passed_through(error.__traceback__, ours):
        return None
    return error


def _passed_through(traceback: TracebackType | None, prefix: str) -> bool:
    while traceback is not None:
        name = traceback.tb_frame.f_globals.get("__name__", "")
        if isinstance(name, str) and name.startswith(prefix):
            return True
        traceback = traceback.tb_next
    return False
