"""The one place where every handler's rights are asked for, before it is called.

Made with a table of handlers, for each port that clients reach.  An API without a row in
`security.requirements` or without a guard is not let through.  Where no rights are asked for,
requests go straight to their handlers.
"""

from __future__ import annotations

from collections.abc import Awaitable, Mapping
from functools import partial

from plimsoll_broker.handlers.large_messages import Aside, is_short
from plimsoll_broker.handlers.security.asking import Asking, Result
from plimsoll_broker.handlers.security.guard_table import GUARDS, IN_HANDLER
from plimsoll_broker.security.authority import Authority, Rights
from plimsoll_broker.server.dispatch import CloseConnection, Handler, Reply, RequestContext
from plimsoll_core.security.requirements import REQUIREMENTS
from plimsoll_wire.api_versions import ApiKey
from plimsoll_wire.messages import decode_request


def guarded(
    handlers: Mapping[ApiKey, Handler], authority: Authority, aside: Aside
) -> dict[ApiKey, Handler]:
    """The same APIs, each behind its guard."""
    return {key: _guarded(key, handler, authority, aside) for key, handler in handlers.items()}


def _guarded(key: ApiKey, handler: Handler, authority: Authority, aside: Aside) -> Handler:
    guard = GUARDS.get(key) if key in REQUIREMENTS else None

    def handle(context: RequestContext) -> Result:
        rights = authority.rights_of(context.connection)
        if rights is None:
            return handler(context)
        if guard is None:
            raise CloseConnection("no-requirement")
        context.rights = rights
        if guard is IN_HANDLER:
            return handler(context)
        if not is_short(context):
            return later(context, rights)
        request = decode_request(key, context.api_version, context.body)
        return guard(Asking(context, request, rights, handler, aside))

    async def later(context: RequestContext, rights: Rights) -> Reply | None:
        assert guard is not None, "what has none is refused"
        decode = partial(decode_request, key, context.api_version, context.body)
        request = await aside.do(decode)
        result = guard(Asking(context, request, rights, handler, aside))
        return await result if isinstance(result, Awaitable) else result

    return handle
