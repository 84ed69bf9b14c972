"""Room for a reply before it is made, in the share that its connection's principal has of the pool.

`reply_bounds` and the handlers of groups make one for a request whose answer may be long, take what
it is about to hold at most, and return `reply`.  A principal that holds its share waits here, and
nobody else notices.
A connection makes one long reply at a time: the session begins nothing behind a request of
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
            # What changes something waits for room in its place among the connection's requests.
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
"""APIs whose replies are as long as what there is, and those that change something.  Others are
bounded by what their requests name, Fetches by what their accounts grant."""


class ReplyRoom:
    """Of one request; a context manager that gives back what no reply took with it."""

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
        """What no reply took with it, once."""
        taken, self._taken = self._taken, 0
        self._account.give_back(taken)

    def take_now(self, estimate: int) -> bool:
        """Return True if there was room for as much as is taken of an estimate."""
        taken = self._account.admit_now(min(estimate, self._account.estimate_max))
        if taken is None:
            return False
        self._taken = taken
        return True

    async def take_estimate(self, estimate: int) -> None:
        """`take_now` once there is room; raises as `take` does."""
        size = min(estimate, self._account.estimate_max)
        await self._take(self._account.admit(size, is_estimate=True))

    async def take(self, size: int) -> None:
        """So many bytes are about to be there, of the reply or of what it is made from.  Asked once
        for all of them: requests that have a part each and wait for more would wait for each other.
        Raises CloseConnection where there was no room in time."""
        await self._take(self._account.admit(size))

    async def _take(self, admission: Awaitable[int]) -> None:
        try:
            self._taken = await admission
        except NoRoom as reason:
            raise CloseConnection(str(reason)) from None

    def reply(self, made: Reply) -> Reply:
        """It takes the room with it: what it does not need is given back at once."""
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
