"""Whatever takes handlers long, in a thread: reading and writing messages that tell of many things,
checking batches, searching logs.

Whose turn it is `FairWork` says.  What is done in a thread reads only what never changes: the bytes
of a request, an image, values, segments that are there.  Whoever has little to do does it at once:
a thread costs more than that.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

from plimsoll_broker.server.dispatch import RequestContext
from plimsoll_broker.server.fair_work import FairWork
from plimsoll_wire.messages import decode_request

T = TypeVar("T")

BYTES_AT_ONCE = 4096
"""Of a request's body: it is read in a few milliseconds, whatever it says."""
THINGS_AT_ONCE = 200
"""Topics, partitions, configs that are gone through without hearing anybody else: a few
milliseconds."""

_BYTES_EACH = 4


class Aside:
    """One for each port; all that clients of one broker reach have one queue."""

    def __init__(self, queue: FairWork | None = None) -> None:
        self.queue = FairWork() if queue is None else queue

    async def do(self, work: Callable[[], T]) -> T:
        """In a thread, when its turn has come; whoever asked for it is charged.  Raises
        CloseConnection as `FairWork.do` does."""
        return await self.queue.do(work)

    async def some(self, things: int, work: Callable[[], T]) -> T:
        """Work that goes through so many things, wherever that belongs."""
        return work() if things <= THINGS_AT_ONCE else await self.do(work)

    async def decoded(self, context: RequestContext) -> Any:
        """kio's request value; raises MalformedMessage."""
        body = context.body
        work = partial(decode_request, context.api_key, context.api_version, body)
        return work() if is_short(context) else await self.do(work)


def is_short(context: RequestContext) -> bool:
    return len(context.body) <= BYTES_AT_ONCE


def things(context: RequestContext) -> int:
    """How many a request may name, roughly; none to speak of when it is short.  Asked before its
    body is released."""
    return 0 if is_short(context) else len(context.body) // _BYTES_EACH
