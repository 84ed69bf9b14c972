"""Aside: handlers' long work, in threads: parsing and encoding large messages, checking batches,
searching logs.

`FairWork` decides whose turn it is. Work in a thread reads only immutable values: a request's
bytes, an image, sealed segments. Short work is done at once, since a thread costs more.
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
"""Bytes of a request's body that are parsed within a few milliseconds."""
THINGS_AT_ONCE = 200
"""Topics, partitions or configs that are visited without a break: a few milliseconds."""

_BYTES_EACH = 4


class Aside:
    """One for each port; all clients' ports of a broker share one queue."""

    def __init__(self, queue: FairWork | None = None) -> None:
        self.queue = FairWork() if queue is None else queue

    async def do(self, work: Callable[[], T]) -> T:
        """Run `work` in a thread when its turn has come, charged to the request. Raises
        CloseConnection as `FairWork.do` does."""
        return await self.queue.do(work)

    async def some(self, things: int, work: Callable[[], T]) -> T:
        """Run work that visits `things` items: at once if they are few, else in a thread."""
        return work() if things <= THINGS_AT_ONCE else await self.do(work)

    async def decoded(self, context: RequestContext) -> Any:
        """Return kio's request value; raises MalformedMessage."""
        body = context.body
        work = partial(decode_request, context.api_key, context.api_version, body)
        return work() if is_short(context) else await self.do(work)


def is_short(context: RequestContext) -> bool:
    return len(context.body) <= BYTES_AT_ONCE


def things(context: RequestContext) -> int:
    """Return roughly how many items a request may name, 0 for a short one. Call it before the body
    is released."""
    return 0 if is_short(context) else len(context.body) // _BYTES_EACH
