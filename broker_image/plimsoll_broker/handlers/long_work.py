"""Requests that take longer than a turn of the event loop.

`in_turns`: cuts work on the event loop into slices that are fair by principal.

`Aside`: runs handlers' long work in threads: parsing and encoding large messages, checking batches,
searching logs. `FairWork` decides the order. Work in a thread reads only immutable values: a
request's bytes, an image, sealed segments. Short work runs on the event loop, since a thread costs
more.

`ConnectionLines`: keeps the requests of each connection in order. A request that takes more than
one turn of the event loop waits in its connection's line until it is decided. Requests that arrive
meanwhile wait behind it; all others are decided in the call. The session's limit on requests in
flight bounds the line.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable
from functools import partial
from typing import Any, TypeVar

from plimsoll_broker.background import in_slices
from plimsoll_broker.server.client_quotas import in_steps
from plimsoll_broker.server.connection_state import (
    SERVING,
    CloseConnection,
    ConnectionState,
    WorkOwner,
)
from plimsoll_broker.server.dispatch import Reply, RequestContext
from plimsoll_broker.server.fair_work import FairWork
from plimsoll_broker.server.requests_and_replies import LATER, Later
from plimsoll_broker.server.turn_budget import SliceTurns
from plimsoll_wire.decoding import NUMBERS_LIKE_ONE
from plimsoll_wire.primitives import MalformedMessage, TooManyItems

T = TypeVar("T")

BYTES_AT_ONCE = 4096
"""The largest request body, in bytes, that is parsed on the event loop."""
NAMES_AT_ONCE = 50
"""The most topics, partitions or other items in a request that is served on the event loop in one
go, within a millisecond or two: a name of a few bytes may cost a decision by ACLs, a lookup, an
audit entry and a row of the reply."""
THINGS_AT_ONCE = 200
"""The most topics, partitions or configs that are visited on the event loop in one go: a few
milliseconds."""

_WEIGHT_AT_ONCE = NAMES_AT_ONCE * NUMBERS_LIKE_ONE
_BYTES_EACH = 4


def in_turns(items: Iterable[T]) -> AsyncIterator[T]:
    """Yield each item of a client's request as `in_slices` does. After each slice wait for the turn
    of the request's principal among the listener's long requests; before the first one, too, if
    other requests wait. Outside of a request, only yield between slices."""
    owner = SERVING.get()
    if owner is None or owner.slices is None:
        return in_slices(items)
    return _in_turns(owner, owner.slices, items)


async def _in_turns(owner: WorkOwner, slices: SliceTurns, items: Iterable[T]) -> AsyncIterator[T]:
    next_turn = partial(slices.wait, owner, owner.holder)
    if slices.is_crowded(owner):
        await next_turn()
    async for item in in_slices(items, next_turn):
        yield item


async def next_turn() -> None:
    """End a slice of a client's request: wait for the turn of its principal, as `in_turns` does."""
    owner = SERVING.get()
    if owner is None or owner.slices is None:
        await asyncio.sleep(0)
    else:
        await owner.slices.wait(owner, owner.holder)


class Aside:
    """Runs handlers' long work in threads. Each port has its own object; those of all clients'
    ports share one queue."""

    def __init__(self, queue: FairWork | None = None) -> None:
        self.queue = FairWork() if queue is None else queue

    async def do(self, work: Callable[[], T]) -> T:
        """Run `work` in a thread when it is the turn of the request's principal, and return its
        result. The processor time is charged to the request. Raises CloseConnection if too much
        work of the principal waits or the client disconnects before the turn."""
        return await self.queue.do(work)

    async def some(self, things: int, work: Callable[[], T]) -> T:
        """Run `work`, which visits `things` items, and return its result: at once if there are at
        most THINGS_AT_ONCE, else in a thread as `do` does."""
        return work() if things <= THINGS_AT_ONCE else await self.do(work)

    async def decoded(self, context: RequestContext) -> Any:
        """Return the parsed request; a long one is parsed in a thread. Raises MalformedMessage."""
        if is_short(context):
            return context.decoded()
        request = await self.do(context.decoded)
        context.settled()
        return request

    async def received(self, context: RequestContext) -> tuple[Any, int]:
        """Return the parsed request, and roughly how many items it names (`things`). Release the
        request's bytes."""
        request = await self.decoded(context)
        many = things(context)
        context.body.release()
        return request, many


def is_short(context: RequestContext) -> bool:
    """Return True if the request has at most BYTES_AT_ONCE bytes and names at most NAMES_AT_ONCE
    items; it is then parsed. Raises MalformedMessage."""
    if len(context.body) > BYTES_AT_ONCE:
        return False
    try:
        context.decoded(_WEIGHT_AT_ONCE)
    except TooManyItems:
        return False
    return context.weight <= _WEIGHT_AT_ONCE


def things(context: RequestContext) -> int:
    """Return an upper bound of the number of items that a request may name, judged by its length; 0
    if the request is short. Call it before the request's bytes are released."""
    return 0 if is_short(context) else len(context.body) // _BYTES_EACH


Served = Reply | Later | None
"""The result of a decided request: the reply, or a future of it. The connection's line does not
wait for that future."""


class ConnectionLines:
    """The lines of all connections of one port. `ConnectionState.line` is the last task in a
    connection's line."""

    def __init__(self) -> None:
        # References to the running tasks.
        self._tasks: set[asyncio.Task[Served]] = set()

    def idle(self, connection: ConnectionState) -> bool:
        """Return True if the connection's line is empty: all its earlier requests are decided."""
        return connection.line is None or connection.line.done()

    def add(
        self, context: RequestContext, serve: Callable[[], Coroutine[Any, Any, Served]]
    ) -> asyncio.Future[Reply | None]:
        """Queue the request in its connection's line: `serve` is called once all earlier ones are
        decided. Return a future of the reply. If the client disconnects, a request that is being
        served is completed, and later ones in the line are dropped."""
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
    """Set the result of a request's task on `answer`, the future of its reply: value, exception or
    cancellation. If that future is done, only report the task's exception. This is a callback and
    not a task, since a task that is cancelled before its first turn would not run."""
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
