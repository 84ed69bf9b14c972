"""PeerQueues: what is to be asked of other brokers, with one request in flight to each of them.

Items that are added while a request is in flight go together in the next one. Used by the marker
sender and by the verifier of transactions, which make the requests. A broken connection is opened
again by the next request; whether to ask again, the user decides.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Generic, TypeVar

from plimsoll_broker.replication.peer_calls import PeerCalls
from plimsoll_broker.replication.peer_connection import open_to
from plimsoll_broker.replication.replica_manager import ReplicaManager
from plimsoll_core.ids import BrokerId
from plimsoll_wire.api_versions import ApiKey
from plimsoll_wire.encoding import Values

ItemT = TypeVar("ItemT")

CONNECT_S = 2.0
SILENCE_S = 10.0
ITEMS_AT_ONCE = 200
"""The most items that are served together."""


class PeerQueues(Generic[ItemT]):
    """The queues of one kind of request. `serve`: handles items of one broker, in order, and
    returns once it is done with them; it may call `ask`. `client_id`: names this kind to peers."""

    def __init__(
        self,
        manager: ReplicaManager,
        client_id: str,
        serve: Callable[[BrokerId, list[ItemT]], Awaitable[None]],
    ) -> None:
        self._manager = manager
        self._client_id = client_id
        self._serve = serve
        self._queues: dict[BrokerId, list[ItemT]] = {}
        self._links: dict[BrokerId, PeerCalls] = {}
        # Brokers with a queue that no task serves yet.
        self._begun: list[BrokerId] = []
        self._kick = asyncio.Event()
        self._tasks: dict[asyncio.Task[None], None] = {}
        # What a task has raised; `run` raises it.
        self._failure: BaseException | None = None

    def add(self, broker_id: BrokerId, item: ItemT) -> None:
        """Queue an item for a broker."""
        if broker_id not in self._queues:
            self._queues[broker_id] = []
            self._begun.append(broker_id)
            self._kick.set()
        self._queues[broker_id].append(item)

    async def run(self) -> None:
        """Serve the queues, each in a task of its own, until cancelled. Raise what one of these
        tasks raises."""
        while True:
            await self._kick.wait()
            self._kick.clear()
            begun, self._begun = self._begun, []
            for broker_id in begun:
                task = asyncio.ensure_future(self._empty(broker_id))
                self._tasks[task] = None
                task.add_done_callback(self._ended)
            if self._failure is not None:
                raise self._failure

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.pop(task, None)
        if not task.cancelled() and (failure := task.exception()) is not None:
            self._failure = failure
            self._kick.set()

    async def _empty(self, broker_id: BrokerId) -> None:
        """Serve one broker's queue until nothing is left."""
        while queue := self._queues[broker_id]:
            some, self._queues[broker_id] = queue[:ITEMS_AT_ONCE], queue[ITEMS_AT_ONCE:]
            await self._serve(broker_id, some)
        del self._queues[broker_id]

    async def ask(self, broker_id: BrokerId, key: ApiKey, version: int, values: Values) -> Any:
        """Send a request to a broker and return the decoded reply; connect first if necessary.
        Raise PeerLost or MalformedMessage."""
        manager = self._manager
        link = self._links.pop(broker_id, None)
        if link is None or link.is_lost:
            connection = await open_to(broker_id, manager.image, manager.peers, CONNECT_S)
            link = PeerCalls(connection, self._client_id, SILENCE_S)
        try:
            reply = await link.ask(key, version, values)
        except BaseException:
            link.close()
            raise
        self._links[broker_id] = link
        return reply

    def close(self) -> None:
        """End the tasks, and close the connections."""
        for task in list(self._tasks):
            task.cancel()
        for link in self._links.values():
            link.close()
        self._links.clear()
