"""ReplySlot: a request whose reply cannot be sent yet, and its place in the order of replies."""

from __future__ import annotations

import asyncio
from typing import Any

from plimsoll_broker.server.client_quotas import Charges
from plimsoll_broker.server.dispatch import Reply
from plimsoll_broker.server.reply_later import ReplyLater
from plimsoll_wire.headers import RequestHeader

SMALL_BYTES = 4 * 1024
"""Requests up to this size stay on the intake's account until they are answered."""
AT_ONCE = (bytes, bytearray, memoryview, list, tuple)  # replies; any other result is awaited

Later = asyncio.Future[Reply | None] | ReplyLater
"""A later reply, in either form; both have the same interface."""
LATER = (asyncio.Future, ReplyLater)


def later(result: Any) -> Later:
    """Return a handler's result that is not a reply as a future."""
    return result if isinstance(result, ReplyLater) else asyncio.ensure_future(result)


class ReplySlot:
    """A request whose reply cannot be sent yet. `kept`: its bytes of the intake. `held`: its
    reply's bytes on the connection's account; None: not counted. `began_ns`: when it was read.
    `charges`: its quota usage."""

    __slots__ = ("began_ns", "charges", "future", "header", "held", "kept", "reply")

    def __init__(self, header: RequestHeader, began_ns: int, reply: Reply | None = None) -> None:
        self.header = header
        self.began_ns = began_ns
        self.charges: Charges | None = None
        self.reply = reply
        self.held: int | None = None
        self.kept = 0
        self.future: Later | None = None
