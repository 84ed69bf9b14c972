"""Decides what a process does about an exception that its event loop did not handle.

Called by the loops' exception handlers of the broker and the operator. By default asyncio only logs
such an exception and goes on, with the callback's work half done: a partition that is never stepped
again, or a task that ends unnoticed. Source: docs/design/009-exceptions.md.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import TracebackType
from typing import Any

COSTS = "costs"


def ends_process(context: Mapping[str, Any], ours: str | None = None) -> BaseException | None:
    """Return the exception for which the process must end, or None if it is enough to log it.

    `context`: asyncio's exception context. None is returned for a failed connection, for a context
    without an exception (such as a task dropped at exit), and for one with the key `costs`, by
    which the code that caught the exception states that it has handled the damage. `ours`: a module
    prefix; only exceptions that passed through such a module count, where libraries share the event
    loop.
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
