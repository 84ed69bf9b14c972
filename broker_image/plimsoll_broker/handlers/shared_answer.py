"""SharedAnswer: a reply that several clients wait for, made once, and cancelled when all have gone.

Made by Metadata. Its work is counted for the principal that asked first, and outlives that one's
connection while others wait.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from contextvars import copy_context
from typing import Any

from plimsoll_broker.server.client_quotas import in_steps
from plimsoll_broker.server.dispatch import SERVING, Closable, RequestContext


class _First:
    """A `WorkOwner` for the principal that asked first, without its connection."""

    def __init__(self, holder: str) -> None:
        self.holder = holder
        self.waits: dict[Closable, None] = {}


class SharedAnswer:
    """`task` makes the reply. `given_up`: all clients have gone."""

    __slots__ = ("_waiting", "given_up", "task")

    def __init__(self, context: RequestContext, answer: Coroutine[Any, Any, bytes]) -> None:
        self._waiting = 0
        self.given_up = False
        own = copy_context()
        own.run(SERVING.set, _First(context.connection.holder))
        steps: Any = in_steps(context.charges, answer)  # a coroutine, since `answer` is one
        self.task: asyncio.Task[bytes] = asyncio.get_running_loop().create_task(steps, context=own)

    def another(self) -> asyncio.Future[bytes]:
        """Return a future for one more client. When the last is cancelled, so is the task."""
        self._waiting += 1
        mine = asyncio.shield(self.task)
        mine.add_done_callback(self._done)
        return mine

    def _done(self, mine: asyncio.Future[bytes]) -> None:
        self._waiting -= 1
        if mine.cancelled() and not self._waiting:
            self.given_up = True
            self.task.cancel()
