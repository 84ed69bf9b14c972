"""A request of a connection whose reply cannot be sent yet: its place in the order of replies."""

from __future__ import annotations

import asyncio

from plimsoll_broker.server.dispatch import Reply
from plimsoll_wire.headers import RequestHeader


class ReplySlot:
    """A request whose reply cannot be sent yet.  `kept`: bytes that it has of the intake; `held`:
    bytes of its reply."""

    __slots__ = ("address", "future", "held", "kept", "reply")

    def __init__(self, header: RequestHeader) -> None:
        self.address = (header.api_key, header.api_version, header.correlation_id)
        self.reply: Reply | None = None
        self.held = 0
        self.kept = 0
        self.future: asyncio.Future[Reply | None] | None = None
