"""Reading and writing messages that take long, in a thread: one at a time for all clients together.

Handlers use it for requests that name many things and for answers that tell of many.  What is done
there reads only what never changes: the bytes of a request, an image, values.  Whoever has little
to do does it at once: a thread costs more than that.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

from plimsoll_broker.server.client_quotas import in_charged_thread
from plimsoll_broker.server.dispatch import RequestContext
from plimsoll_wire.messages import decode_request

T = TypeVar("T")

BYTES_AT_ONCE = 4096
"""Of a request's body: it is read in a few milliseconds, whatever it says."""
THINGS_AT_ONCE = 200
"""Topics, partitions, configs that are gone through without hearing anybody else: a few
milliseconds."""

_BYTES_EACH = 4


class Aside:
    """One for each broker: others find a thread for the disk, however many ask."""

    def __init__(self) -> None:
        self._turn = asyncio.Lock()

    async def do(self, work: Callable[[], T]) -> T:
        """In a thread, when its turn has come; whoever asked for it is charged."""
        async with self._turn:
            return await in_charged_thread(work)

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
