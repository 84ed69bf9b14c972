"""ClientMemory: the two memory pools of a broker's clients, and the loop callbacks that wake
waiters.

`node.assembly` makes one and hands it to the client listener. `client_memory_pools` decides which
bytes are granted to which connection.
"""

from __future__ import annotations

import asyncio

from plimsoll_broker.server.client_memory_pools import Budgets, Intake, Pool
from plimsoll_broker.server.principal_holdings import PrincipalHoldings


class ClientMemory:
    """`replies`: the pool of unsent replies. `requests`: the pool of requests being received or
    handled. `holdings`: the holdings of each principal in these and other pools."""

    def __init__(self, budgets: Budgets) -> None:
        self.budgets = budgets
        self.holdings = PrincipalHoldings()
        self.replies = Pool(budgets.replies, self._reply_room)
        self.requests = Intake(budgets.requests, self._request_room)
        self.holdings.add("replies", self.replies.shares)
        self.holdings.add("requests", self.requests.shares)
        self._waking_replies = False
        self._waking_requests = False

    def _reply_room(self) -> None:
        if not self._waking_replies:
            self._waking_replies = True
            asyncio.get_running_loop().call_soon(self._wake_replies)

    def _wake_replies(self) -> None:
        """Wake one connection a turn of the loop: each may read a reply's worth from the disk."""
        self._waking_replies = False
        if self.replies.wake_one():
            self._reply_room()

    def _request_room(self) -> None:
        if not self._waking_requests:
            self._waking_requests = True
            asyncio.get_running_loop().call_soon(self._wake_requests)

    def _wake_requests(self) -> None:
        self._waking_requests = False
        self.requests.wake_all()
