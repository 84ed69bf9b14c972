"""ClientTurns: admits clients' requests to the commit queue in turn, so that what brokers ask never
waits behind more than a little of it.

The commit queue keeps the order of decisions, since each is made on the image after the earlier
ones. So room is asked before a decision: a client's request, or the next part of a long one, is
decided only while less than `OPEN_BYTES_MAX` of clients' records wait to be committed. Beyond that,
clients take turns. Requests of brokers, objects and the controller itself are decided at once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from plimsoll_core.addresses import network_of
from plimsoll_core.messages.requests import Answer, Refused, Request
from plimsoll_core.messages.security import OnBehalf
from plimsoll_core.quotas.principal_turns import PrincipalTurns
from plimsoll_core.security.acl import ANONYMOUS
from plimsoll_operator.controller.refusals import NOT_LEADING, not_controller

Decided = Callable[[Request], tuple[asyncio.Future[Answer], Request | None] | None]
"""Decides a request and queues its records. It returns the future of the answer and the follow-up,
or None if the term ends."""
OPEN_BYTES_MAX = 64 * 1024
"""No client's request is decided while so many bytes of clients' records are not committed. Many
small changes still fit one append; one part of a long request may exceed it alone."""


def client_of(request: Request) -> str | None:
    """Return the client for which a broker has forwarded the request: its principal, or its network
    if it has not logged in. Return None for a request of a broker, object or controller, or if the
    broker named no client."""
    behalf: OnBehalf | None = getattr(request, "behalf", None)
    if behalf is None:
        return None
    return network_of(behalf.host) if behalf.principal == ANONYMOUS else behalf.principal


class ClientTurns:
    """The turns of clients at one controller. Used by its event loop only."""

    def __init__(self) -> None:
        self._open = 0
        self._waiting: PrincipalTurns[asyncio.Future[None], None] = PrincipalTurns()
        self._passing = False

    @property
    def waiting(self) -> int:
        """Return the number of requests, or parts of one, that wait for their turn."""
        return sum(map(len, self._waiting.values()))

    @property
    def free(self) -> bool:
        """True if a client's request may be decided now, before any other."""
        return not self._waiting and self._has_room

    @property
    def _has_room(self) -> bool:
        return self._open < OPEN_BYTES_MAX

    async def wait(self, client: str) -> None:
        """Return when it is the client's turn. The caller must decide its request at once."""
        if self.free:
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.add(client, turn, None)
        try:
            await turn
        finally:
            self._waiting.forget(turn, client)

    async def slices(
        self, request: Request, committed: asyncio.Future[Answer] | None, decided: Decided
    ) -> Answer:
        """Decide a client's request once it is its turn, or the rest of a decision that was too
        long for one turn of the event loop; other requests are decided in between. `request` is the
        request or the follow-up, `committed` the commit of the first part, if there is one.

        Each part is committed before the next is decided: while commits are impossible (the log is
        full, say), the same part would otherwise be decided over and over.
        """
        again: Request | None = request
        while again is not None:
            if committed is not None:
                if isinstance(part := await committed, Refused):
                    return part
                # A part without records, of a request that only validates, is committed at once.
                await asyncio.sleep(0)
            if (client := client_of(again)) is not None:
                await self.wait(client)
            outcome = decided(again)
            if outcome is None:
                return not_controller(f"{NOT_LEADING}; retry.")
            committed, again = outcome
        assert committed is not None, "something was decided"
        return await committed

    def queued(self, size: int, committed: asyncio.Future[Answer]) -> None:
        """Count `size` bytes of a client's records as open until they are committed or dropped."""
        if size:
            self._open += size
            committed.add_done_callback(lambda _: self._closed(size))

    def _closed(self, size: int) -> None:
        self._open -= size
        if self._waiting and not self._passing:
            self._pass_on()

    def _pass_on(self) -> None:
        """Give the turn to the next client, and look again once its request is decided, which is in
        the next turn of the event loop."""
        self._passing = bool(self._waiting) and self._has_room
        if self._passing:
            _, turn = self._waiting.take()
            if not turn.done():
                turn.set_result(None)
            asyncio.get_running_loop().call_soon(self._pass_on)
