"""A request of a connection whose reply cannot be sent yet: its place in the order of replies."""

from __future__ import annotations

import asyncio
from typing import Any

from plimsoll_broker.server.client_quotas import Charges
from plimsoll_broker.server.dispatch import Reply
from plimsoll_broker.server.reply_later import ReplyLater
from plimsoll_wire.headers import RequestHeader

SMALL_BYTES = 4 * 1024
"""A request's bytes that may stay in the intake's account until it is answered."""
AT_ONCE = (bytes, bytearray, memoryview, list, tuple)  # replies; nothing else is waited for

Later = asyncio.Future[Reply | None] | ReplyLater
"""What comes later, and is asked in the same way."""
LATER = (asyncio.Future, ReplyLater)


def later(result: Any) -> Later:
    """What a handler gave that is no reply."""
    return result if isinstance(result, ReplyLater) else asyncio.ensure_future(result)


class ReplySlot:
    """A request whose reply cannot be sent yet.  `kept`: bytes that it has of the intake; `held`:
    bytes of its reply that its connection's account has, None: it was not asked; `began_ns`: when
    it was read; `charges`: what it uses of quotas."""

    __slots__ = ("began_ns", "charges", "future", "header", "held", "kept", "reply")

    def __init__(self, header: RequestHeader, began_ns: int, reply: Reply | None = None) -> None:
        self.header = header
        self.began_ns = began_ns
        self.charges: Charges | None = None
        self.reply = reply
        self.held: int | None = None
        self.kept = 0
        self.future: Later | None = None
