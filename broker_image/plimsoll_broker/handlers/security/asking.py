"""Asking and Guarded: one request whose rights are decided, and a guard's verdict.

The vocabulary of guards. A guard passes a request on unchanged if all of it is allowed. Otherwise
it removes what is not, and adds refusals to the answer. It returns a `Guarded`, which `gate`
carries out.
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
    """Return kio's value in the form that encoders take."""
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
    """A guard's decision. `told`: the whole answer. Otherwise the request goes to its handler, with
    `body` if it was changed, and `changes` are applied to the handler's answer."""

    told: bytes | None = None
    body: memoryview | None = None
    changes: tuple[Change, ...] = ()


@dataclasses.dataclass(frozen=True, slots=True)
class Asking:
    """`value`: kio's request. It only asks for rights and reads values, since guards of long
    requests run in a thread."""

    context: RequestContext
    value: Any
    rights: Rights

    @property
    def version(self) -> int:
        return self.context.api_version

    def pass_on(self) -> Guarded:
        """Pass the request on unchanged."""
        return Guarded()

    def pass_on_with(self, **changed: Any) -> Guarded:
        """Pass the request on with other fields."""
        return Guarded(body=memoryview(bytearray(self.encoded_with(**changed))))

    def encoded_with(self, **changed: Any) -> bytes:
        """Encode the request's body with other fields."""
        values = {**plain(self.value), **changed}
        return encode_request(self.context.api_key, self.version, values)

    def tell(self, values: Values) -> Guarded:
        """Return the whole answer."""
        return Guarded(told=encode_response(self.context.api_key, self.version, values))

    def change(self, verdict: Guarded, change: Change) -> Guarded:
        """Change the answer before it is sent, whether the guard or the handler gives it."""
        if verdict.told is not None:
            return Guarded(told=changed(self.context, verdict.told, (change,)))
        return dataclasses.replace(verdict, changes=(*verdict.changes, change))


def changed(context: RequestContext, reply: Buffer, changes: Iterable[Change]) -> bytes:
    """Decode an answer, apply the changes and encode it again."""
    key, version = context.api_key, context.api_version
    values: Values = plain(decode_response(key, version, reply))
    for change in changes:
        change(values)
    return encode_response(key, version, values)


def added(field: str, entries: Iterable[Values]) -> Change:
    """Return a change that appends entries to a list."""

    def change(values: Values) -> None:
        values[field] = [*(values[field] or ()), *entries]

    return change
