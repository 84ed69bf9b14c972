"""ReplyRoom: memory for a reply before it is made, within its principal's share of the pool.

`reply_bounds` and the handlers of groups make one for a request with a possibly long reply, take
the most that the reply can hold, and return `reply`. Only a principal that holds its share waits
here. A connection makes one long reply at a time: the session begins nothing behind a request of
`LONG_REPLIES` until that is answered.
"""

from __future__ import annotations

from collections.abc import Awaitable
from typing import TYPE_CHECKING

from plimsoll_broker.server.client_memory_pools import Account, NoRoom
from plimsoll_broker.server.dispatch import CloseConnection, Reply
from plimsoll_broker.server.unsent_replies import Granted, size_of
from plimsoll_wire.api_versions import ApiKey

if TYPE_CHECKING:
    from types import TracebackType

LONG_REPLIES = frozenset(
    {
        int(key)
        for key in (
            ApiKey.METADATA,
            ApiKey.OFFSET_FETCH,
            ApiKey.DESCRIBE_GROUPS,
            ApiKey.LIST_GROUPS,
            ApiKey.DESCRIBE_ACLS,
            ApiKey.DESCRIBE_CONFIGS,
            ApiKey.DESCRIBE_LOG_DIRS,
            ApiKey.LIST_PARTITION_REASSIGNMENTS,
            ApiKey.DESCRIBE_CLIENT_QUOTAS,
            ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS,
            ApiKey.DESCRIBE_PRODUCERS,
            ApiKey.LIST_CONFIG_RESOURCES,
            ApiKey.DESCRIBE_TOPIC_PARTITIONS,
            # Requests that change something wait for memory in their place in the connection's
            # order.
            ApiKey.CREATE_TOPICS,
            ApiKey.DELETE_TOPICS,
            ApiKey.CREATE_PARTITIONS,
            ApiKey.DELETE_RECORDS,
            ApiKey.ALTER_CONFIGS,
            ApiKey.INCREMENTAL_ALTER_CONFIGS,
            ApiKey.CREATE_ACLS,
            ApiKey.DELETE_ACLS,
            ApiKey.ELECT_LEADERS,
            ApiKey.ALTER_PARTITION_REASSIGNMENTS,
            ApiKey.ALTER_CLIENT_QUOTAS,
            ApiKey.ALTER_USER_SCRAM_CREDENTIALS,
        )
    }
)
"""APIs whose replies grow with the cluster's contents, and those that change something. Other
replies are bounded by what their requests name, and Fetches by their accounts' grants."""


class ReplyRoom:
    """The memory of one request's reply: a context manager that gives back what no reply took
    over."""

    def __init__(self, account: Account) -> None:
        self._account = account
        self._taken = 0

    def __enter__(self) -> ReplyRoom:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.give_back()

    def give_back(self) -> None:
        """Give back, once, what no reply took over."""
        taken, self._taken = self._taken, 0
        self._account.give_back(taken)

    def take_now(self, estimate: int) -> bool:
        """Take room for an estimate without waiting. Return False if there is none."""
        taken = self._account.admit_now(min(estimate, self._account.estimate_max))
        if taken is None:
            return False
        self._taken = taken
        return True

    async def take_estimate(self, estimate: int) -> None:
        """As `take_now`, but wait for room. Raises as `take` does."""
        size = min(estimate, self._account.estimate_max)
        await self._take(self._account.admit(size, is_estimate=True))

    async def take(self, size: int) -> None:
        """Wait for room for `size` bytes of the reply or its sources. Ask once for all of them:
        requests that hold a part each and wait for more would deadlock. Raises CloseConnection if
        there was no room in time."""
        await self._take(self._account.admit(size))

    async def _take(self, admission: Awaitable[int]) -> None:
        try:
            self._taken = await admission
        except NoRoom as reason:
            raise CloseConnection(str(reason)) from None

    def reply(self, made: Reply) -> Reply:
        """Return the reply with its memory attached; what it does not need is given back."""
        taken, self._taken = self._taken, 0
        size = size_of(made)
        if taken > size:
            self._account.give_back(taken - size)
            taken = size
        if not taken:
            return made
        if isinstance(made, bytes | bytearray | memoryview):
            made = [made]
        return Granted(made, taken)
