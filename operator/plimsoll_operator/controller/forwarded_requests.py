"""Limits the forwarded client requests of one broker that wait at the controller, and each client's
share of them.

Called by `controller_server` for each forwarded request. A client may have at most as many requests
waiting as there are free places left. So a client with many connections gets half of the places if
it is alone, fewer if other clients send requests too, and never all of them. A client is a user, or
a network address where clients do not log in. A request that names no client (the broker's own, or
an older broker's) is bound by the total only.
"""

from __future__ import annotations

import asyncio
from collections import Counter

from plimsoll_core.errors import Reason
from plimsoll_core.messages.requests import Forwarded, Refused
from plimsoll_operator.controller.client_turns import client_of
from plimsoll_operator.controller.refusals import refused

_NO_CLIENT = ""
FORWARDED_MAX = 64
"""Maximum number of client requests that wait at the controller for one broker's connection.
Further ones are refused. A single client reaches its own limit earlier."""


def _too_many(waiting: int, origin: str) -> Refused:
    text = (
        f"The request was not carried out, because {waiting} requests {origin} already wait for "
        "the controller. Retry later."
    )
    return refused(Reason.TooManyWaiting, text)


class ForwardedRequests:
    def __init__(self) -> None:
        # Number of waiting requests by client.
        self._waiting: Counter[str] = Counter()

    def refusal(self, request: Forwarded) -> Refused | None:
        """Return None if the request may wait at the controller (`begun` then counts it). Return a
        refusal if `FORWARDED_MAX` requests of the broker wait, or if as many of this client wait as
        places are free."""
        waiting, client = self._waiting.total(), client_of(request) or _NO_CLIENT
        room = FORWARDED_MAX - waiting
        if room <= 0:
            return _too_many(FORWARDED_MAX, "from clients")
        own = 0 if client == _NO_CLIENT else self._waiting[client]
        return _too_many(own, "from this client") if own >= room else None

    def begun(self, request: Forwarded, work: asyncio.Future[None]) -> None:
        """Count the request as waiting until `work` is done."""
        client = client_of(request) or _NO_CLIENT
        self._waiting[client] += 1
        work.add_done_callback(lambda _: self._over(client))

    def _over(self, client: str) -> None:
        self._waiting[client] -= 1
        if not self._waiting[client]:
            del self._waiting[client]
