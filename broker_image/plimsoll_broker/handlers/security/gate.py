"""The gate: every request's rights are checked here, before its handler is called.

Made with a table of handlers, for each port that clients reach. An API without a row in
`security.requirements` or without a guard is not let through. If authorization is off, requests go
straight to their handlers. A request that names many items, or asks for all of many, is parsed and
decided in a thread, and its answer changed in another: the event loop never compares one request
with the rules for long. `docs/design/006-event-loop.md`
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Coroutine, Mapping
from functools import partial
from typing import Any

from plimsoll_broker.handlers.large_messages import THINGS_AT_ONCE, Aside, is_short
from plimsoll_broker.handlers.security.asking import Asking, Guarded, changed
from plimsoll_broker.handlers.security.guard_table import GUARDS, IN_HANDLER, asks_for_all
from plimsoll_broker.handlers.security.guards import Guard
from plimsoll_broker.security.authority import Authority, Rights
from plimsoll_broker.server.client_quotas import in_steps
from plimsoll_broker.server.dispatch import CloseConnection, Handler, Reply, RequestContext
from plimsoll_core.security.requirements import REQUIREMENTS
from plimsoll_wire.api_versions import ApiKey
from plimsoll_wire.messages import decode_request

Result = Reply | Awaitable[Reply | None] | None
"""A handler's result."""
REPLY_BYTES_AT_ONCE = 4096
"""Bytes of an answer that is changed in the event loop."""


def guarded(
    handlers: Mapping[ApiKey, Handler], authority: Authority, aside: Aside
) -> dict[ApiKey, Handler]:
    """Return the same APIs, each behind its guard."""
    table: dict[ApiKey, Handler] = {}
    for key, handler in handlers.items():
        guard = GUARDS.get(key) if key in REQUIREMENTS else None
        table[key] = partial(_handle, guard, handler, authority, aside)
    return table


def _handle(
    guard: Guard | None,
    handler: Handler,
    authority: Authority,
    aside: Aside,
    context: RequestContext,
) -> Result:
    rights = authority.rights_of(context.connection)
    if rights is None:
        return handler(context)
    if guard is None:
        raise CloseConnection("no-requirement")
    context.rights = rights
    if guard is IN_HANDLER:
        return handler(context)
    passage = _Passage(context, rights, guard, handler, aside)
    if not is_short(context):
        return passage.later(None)
    request = decode_request(context.api_key, context.api_version, context.body)
    if authority.topics <= THINGS_AT_ONCE or not asks_for_all(context, request):
        return passage.now(request)
    if rights.has_asked(context.api_key, context.api_version, context.body):
        return passage.now(request)
    return passage.later(request)


class _Passage:
    """One request on its way through its guard."""

    __slots__ = ("_aside", "_context", "_guard", "_handler", "_long", "_rights")

    def __init__(
        self,
        context: RequestContext,
        rights: Rights,
        guard: Guard,
        handler: Handler,
        aside: Aside,
    ) -> None:
        self._context = context
        self._rights = rights
        self._guard = guard
        self._handler = handler
        self._aside = aside
        # True if it names or asks for many items: its refusals may be long, too.
        self._long = False

    def now(self, request: Any) -> Result:
        return self._carry_out(self._guard(Asking(self._context, request, self._rights)))

    async def later(self, request: Any | None) -> Reply | None:
        self._long = True
        result = self._carry_out(await self._aside.do(partial(self._decide, request)))
        return await result if isinstance(result, Awaitable) else result

    def _decide(self, request: Any | None) -> Guarded:
        """Decide in a thread."""
        if request is None:
            context = self._context
            request = decode_request(context.api_key, context.api_version, context.body)
        return self._guard(Asking(self._context, request, self._rights))

    def _carry_out(self, verdict: Guarded) -> Result:
        if verdict.told is not None:
            return verdict.told
        if verdict.body is not None:
            self._context.body = verdict.body
        result = self._handler(self._context)
        if not verdict.changes or result is None:
            return result
        if isinstance(result, Awaitable):
            return self._begun(self._changed_later(result, verdict))
        body = _joined(result)
        if not self._is_long(body):
            return changed(self._context, body, verdict.changes)
        return self._begun(self._changed_aside(body, verdict))

    def _begun(self, work: Coroutine[Any, Any, Reply | None]) -> asyncio.Future[Reply | None]:
        return asyncio.ensure_future(in_steps(self._context.charges, work))

    async def _changed_later(
        self, result: Awaitable[Reply | None], verdict: Guarded
    ) -> Reply | None:
        reply = await result
        if reply is None:
            return None
        return await self._changed_aside(_joined(reply), verdict)

    async def _changed_aside(self, body: bytes, verdict: Guarded) -> bytes:
        change = partial(changed, self._context, body, verdict.changes)
        return await self._aside.do(change) if self._is_long(body) else change()

    def _is_long(self, reply: bytes) -> bool:
        return self._long or len(reply) > REPLY_BYTES_AT_ONCE


def _joined(reply: Reply) -> bytes:
    pieces = (reply,) if isinstance(reply, bytes | bytearray | memoryview) else reply
    return b"".join(pieces)
