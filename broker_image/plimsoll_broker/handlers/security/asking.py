"""One request whose rights are decided: read, changed, passed on, and what is told of the rest.

What guards are written with.  A guard passes a request on as it came wherever all of it may be
answered; else it takes out what may not, and puts refusals into the answer.
"""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Awaitable, Callable, Iterable
from datetime import UTC, datetime, timedelta
from typing import Any

from plimsoll_broker.handlers.large_messages import Aside
from plimsoll_broker.security.authority import Rights
from plimsoll_broker.server.dispatch import Handler, Reply, RequestContext
from plimsoll_wire.messages import decode_response, encode_request, encode_response

Result = Reply | Awaitable[Reply | None] | None
"""What a handler gives."""
Values = dict[str, Any]
Change = Callable[[Values], None]

_EPOCH = datetime.fromtimestamp(0, UTC)
_MILLISECOND = timedelta(milliseconds=1)


def plain(value: Any) -> Any:
    """kio's value as what encoders take."""
    if dataclasses.is_dataclass(value):
        names = (field.name for field in dataclasses.fields(value))
        return {name: plain(getattr(value, name)) for name in names}
    if isinstance(value, tuple | list):
        return [plain(item) for item in value]
    if isinstance(value, timedelta):
        return value // _MILLISECOND
    if isinstance(value, datetime):
        return (value - _EPOCH) // _MILLISECOND
    return value


@dataclasses.dataclass(frozen=True, slots=True)
class Asking:
    """`value`: the request, as kio's."""

    context: RequestContext
    value: Any
    rights: Rights
    handler: Handler
    aside: Aside

    @property
    def version(self) -> int:
        return self.context.api_version

    def pass_on(self) -> Result:
        """As it came."""
        return self.handler(self.context)

    def pass_on_with(self, **changed: Any) -> Result:
        """With other fields."""
        values = {**plain(self.value), **changed}
        body = encode_request(self.context.api_key, self.version, values)
        self.context.body = memoryview(bytearray(body))
        return self.handler(self.context)

    def tell(self, values: Values) -> bytes:
        """The whole answer."""
        return encode_response(self.context.api_key, self.version, values)

    def change(self, result: Result, change: Change) -> Result:
        """Change an answer before it is sent."""
        if result is None:
            return None
        if isinstance(result, Awaitable):
            return asyncio.ensure_future(self._changed_later(result, change))
        return self._changed(result, change)

    async def _changed_later(self, result: Awaitable[Reply | None], change: Change) -> Reply | None:
        reply = await result
        return None if reply is None else self._changed(reply, change)

    def _changed(self, reply: Reply, change: Change) -> bytes:
        pieces = (reply,) if isinstance(reply, bytes | bytearray | memoryview) else reply
        body = b"".join(pieces)
        values: Values = plain(decode_response(self.context.api_key, self.version, body))
        change(values)
        return self.tell(values)


def added(field: str, entries: Iterable[Values]) -> Change:
    """Put entries behind those of a list."""

    def change(values: Values) -> None:
        values[field] = [*(values[field] or ()), *entries]

    return change
