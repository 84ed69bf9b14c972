"""An answer that several clients wait for: made once, and not at all once all of them have gone.

Made by Metadata.  Its work is counted for the principal that asked first, and does not go with that
one's connection while others wait.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from contextvars import copy_context
from typing import Any

from plimsoll_broker.server.client_quotas import in_steps
from plimsoll_broker.server.dispatch import SERVING, Closable, RequestContext


class _First:
    """As a `WorkOwner`, whoever asked first, without the connection."""

    def __init__(self, holder: str) -> None:
        self.holder = holder
        self.waits: dict[Closable, None] = {}


class SharedAnswer:
    """`task` makes it.  `given_up`: all that waited have gone."""

    __slots__ = ("_waiting", "given_up", "task")

    def __init__(self, context: RequestContext, answer: Coroutine[Any, Any, bytes]) -> None:
        self._waiting = 0
        self.given_up = False
        own = copy_context()
        own.run(SERVING.set, _First(context.connection.holder))
        steps: Any = in_steps(context.charges, answer)  # a coroutine, as `answer` is one
        self.task: asyncio.Task[bytes] = asyncio.get_running_loop().create_task(steps, context=own)

    def another(self) -> asyncio.Future[bytes]:
        """For one more that waits.  When the last of them is cancelled, so is the task."""
        self._waiting += 1
        mine = asyncio.shield(self.task)
        mine.add_done_callback(self._done)
        return mine

    def _done(self, mine: asyncio.Future[bytes]) -> None:
        self._waiting -= 1
        if mine.cancelled() and not self._waiting:
            self.given_up = True
            self.task.cancel()
