"""ConnectionLines: one line of requests for each connection, so that they do not overtake each
other.

Called by handlers whose requests must stay in order. A request that takes more than one turn of the
event loop stands in its connection's line until it is decided. Requests that arrive meanwhile stand
behind it; all others are decided in the call. The session's limit on requests in flight bounds it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any

from plimsoll_broker.server.client_quotas import in_steps
from plimsoll_broker.server.dispatch import (
    CloseConnection,
    ConnectionState,
    Reply,
    RequestContext,
)
from plimsoll_broker.server.reply_slot import LATER, Later
from plimsoll_wire.primitives import MalformedMessage

Served = Reply | Later | None
"""A decided request: the reply, or what is awaited outside of the line."""


class ConnectionLines:
    """The lines of all connections; `ConnectionState.line` is the last task of each."""

    def __init__(self) -> None:
        # References to the running tasks.
        self._tasks: set[asyncio.Task[Served]] = set()

    def idle(self, connection: ConnectionState) -> bool:
        """Return True if no earlier request is in the connection's line."""
        return connection.line is None or connection.line.done()

    def add(
        self, context: RequestContext, serve: Callable[[], Coroutine[Any, Any, Served]]
    ) -> asyncio.Future[Reply | None]:
        """Serve the request behind earlier ones of its connection. What has begun is completed even
        if the client disconnects; what has not begun is dropped."""
        connection = context.connection
        before = None if self.idle(connection) else connection.line
        task = asyncio.ensure_future(_behind(before, context, serve))
        connection.line = task
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        answer: asyncio.Future[Reply | None] = asyncio.get_running_loop().create_future()
        task.add_done_callback(partial(_tell, answer))
        return answer


async def _behind(
    before: asyncio.Task[Served] | None,
    context: RequestContext,
    serve: Callable[[], Coroutine[Any, Any, Served]],
) -> Served:
    if before is not None:
        await asyncio.wait((before,))
        if before.cancelled() or before.exception() is not None:
            raise CloseConnection("behind-a-failure")
    if context.connection.is_lost:
        raise CloseConnection("gone")
    return await in_steps(context.charges, serve())


def _tell(answer: asyncio.Future[Reply | None], task: asyncio.Task[Served]) -> None:
    """Pass the result on. This is a callback and no task, since a task that is cancelled before its
    first turn would not run."""
    if answer.done():
        _surface(task)  # the session has gone: a bug would not be reported elsewhere
    elif task.cancelled():
        answer.cancel()
    elif (error := task.exception()) is not None:
        answer.set_exception(error)
    elif isinstance(result := task.result(), LATER):
        result.add_done_callback(partial(_pass_on, answer))
        answer.add_done_callback(partial(_let_go, result))
    else:
        answer.set_result(result)


def _pass_on(answer: asyncio.Future[Reply | None], result: Later) -> None:
    if result.cancelled():
        answer.cancel()
    elif (error := result.exception()) is not None:
        if not answer.done():
            answer.set_exception(error)
    elif not answer.done():
        answer.set_result(result.result())


def _let_go(result: Later, answer: asyncio.Future[Reply | None]) -> None:
    if answer.cancelled():
        result.cancel()


def _surface(task: asyncio.Task[Served]) -> None:
    error = None if task.cancelled() else task.exception()
    if error is not None and not isinstance(error, MalformedMessage | CloseConnection):
        raise error
