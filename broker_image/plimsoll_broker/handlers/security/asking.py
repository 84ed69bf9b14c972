"""One request whose rights are decided: read, changed, passed on, and what is told of the rest.

What guards are written with.  A guard passes a request on as it came wherever all of it may be
answered; else it takes out what may not, and puts refusals into the answer.  It says so in a
`Guarded`, which `gate` carries out.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable
from datetime import UTC, datetime, timedelta
from typing import Any

from plimsoll_broker.security.authority import Rights
from plimsoll_broker.server.dispatch import Buffer, RequestContext
from plimsoll_wire.messages import decode_response, encode_request, encode_response

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
class Guarded:
    """What a guard decided.  `told`: the whole answer; else the request goes on to its handler,
    with `body` if that is not what came, and each of `changes` is made to the handler's answer."""

    told: bytes | None = None
    body: memoryview | None = None
    changes: tuple[Change, ...] = ()


@dataclasses.dataclass(frozen=True, slots=True)
class Asking:
    """`value`: the request, as kio's.  Asks for rights and reads values, and nothing else: guards
    of long requests run in a thread."""

    context: RequestContext
    value: Any
    rights: Rights

    @property
    def version(self) -> int:
        return self.context.api_version

    def pass_on(self) -> Guarded:
        """As it came."""
        return Guarded()

    def pass_on_with(self, **changed: Any) -> Guarded:
        """With other fields."""
        return Guarded(body=memoryview(bytearray(self.encoded_with(**changed))))

    def encoded_with(self, **changed: Any) -> bytes:
        """The request's body with other fields."""
        values = {**plain(self.value), **changed}
        return encode_request(self.context.api_key, self.version, values)

    def tell(self, values: Values) -> Guarded:
        """The whole answer."""
        return Guarded(told=encode_response(self.context.api_key, self.version, values))

    def change(self, verdict: Guarded, change: Change) -> Guarded:
        """Change the answer before it is sent, whoever gives it."""
        if verdict.told is not None:
            return Guarded(told=changed(self.context, verdict.told, (change,)))
        return dataclasses.replace(verdict, changes=(*verdict.changes, change))


def changed(context: RequestContext, reply: Buffer, changes: Iterable[Change]) -> bytes:
    """An answer, read, changed and written anew."""
    key, version = context.api_key, context.api_version
    values: Values = plain(decode_response(key, version, reply))
    for change in changes:
        change(values)
    return encode_response(key, version, values)


def added(field: str, entries: Iterable[Values]) -> Change:
    """Put entries behind those of a list."""

    def change(values: Values) -> None:
        values[field] = [*(values[field] or ()), *entries]

    return change
