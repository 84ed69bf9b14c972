"""What each client used of its quotas on one broker, and for how long it is not read.

Pure: times are handed in, in milliseconds of a clock that never goes back.  Tables are bounded:
when one is full, whoever used nothing for longest is forgotten.  Users, client ids and pairs have
tables of their own, so that who makes up client ids crowds out no user.
Source: `ClientQuotaManager`, `ClientRequestQuotaManager`, `ControllerMutationQuotaManager`.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Generic, TypeVar

from plimsoll_core.quotas.rates import SAMPLE_MS, TokenBucket, WindowedRate
from plimsoll_core.quotas.state import QuotaAccount, QuotaLimit

ACCOUNTS_MAX = 10_000
"""Of one quota: of users, of client ids, and of pairs of both."""
NAME_MAX = 256
"""Characters of a client id that tell it from others."""
THROTTLE_MS_MAX = 60_000
"""For so long nothing is read of a client at most."""
REQUEST_THROTTLE_MS_MAX = SAMPLE_MS
"""By `request_percentage`, as in Kafka: what it limits is over when it is told."""
NANOSECONDS_A_PERCENT = 10_000_000
"""Of a second."""

M = TypeVar("M", WindowedRate, TokenBucket)


class Accounts(Generic[M]):
    """By user and client id, of which one may be None: whoever shares it."""

    __slots__ = ("_make", "_tables")

    def __init__(self, make: Callable[[], M]) -> None:
        self._make: Callable[[], M] = make
        # Of users, of client ids, of both; each with its last use the longest ago first.
        self._tables: tuple[OrderedDict[QuotaAccount, M], ...] = (
            OrderedDict(),
            OrderedDict(),
            OrderedDict(),
        )

    def __len__(self) -> int:
        return sum(map(len, self._tables))

    def of(self, account: QuotaAccount) -> M:
        user, client_id = account
        if client_id is not None and len(client_id) > NAME_MAX:
            account = QuotaAccount(user, client_id[:NAME_MAX])
        table = self._tables[0 if client_id is None else 1 if user is None else 2]
        found = table.get(account)
        if found is None:
            if len(table) >= ACCOUNTS_MAX:
                table.popitem(last=False)
            found = table[account] = self._make()
        else:
            table.move_to_end(account)
        return found


class ClientUsage:
    """Of one broker.  Every `throttle_ms` is 0 where nothing is exceeded."""

    def __init__(self) -> None:
        # In bytes, bytes and nanoseconds.
        self._produced = Accounts(WindowedRate)
        self._fetched = Accounts(WindowedRate)
        self._took = Accounts(WindowedRate)
        self._mutations = Accounts(TokenBucket)

    @property
    def accounts(self) -> int:
        """How many are kept."""
        rates = (self._produced, self._fetched, self._took)
        return sum(map(len, rates)) + len(self._mutations)

    def produced(self, limit: QuotaLimit, size: int, now_ms: int) -> int:
        """Bytes came; they are counted whatever is told."""
        rate = self._produced.of(limit.account)
        return min(rate.use(size, limit.bound, now_ms), THROTTLE_MS_MAX)

    def fetched(self, limit: QuotaLimit, size: int, now_ms: int) -> tuple[int, bool]:
        """Bytes are to go out; for how long the client is not read, and whether they go.

        What is too much is not counted and not sent, as in Kafka, unless nothing else was sent
        lately: else a batch that is larger than the quota of a whole window would never go."""
        rate = self._fetched.of(limit.account)
        first = rate.amount(now_ms) <= 0
        throttle_ms = min(rate.use(size, limit.bound, now_ms), THROTTLE_MS_MAX)
        goes = throttle_ms == 0 or first
        if not goes:
            rate.record(-size, now_ms)
        return throttle_ms, goes

    def took(self, limit: QuotaLimit, nanoseconds: int, now_ms: int) -> int:
        """A request held the event loop for so long."""
        rate = self._took.of(limit.account)
        throttle_ms = rate.use(nanoseconds, limit.bound * NANOSECONDS_A_PERCENT, now_ms)
        return min(throttle_ms, REQUEST_THROTTLE_MS_MAX)

    def may_mutate(self, limit: QuotaLimit, now_ms: int) -> bool:
        """Whether a strict request may go on: tokens are there, or none is missing."""
        return not self._mutations.of(limit.account).throttle_ms(limit.bound, now_ms)

    def mutated(self, limit: QuotaLimit, partitions: int, now_ms: int) -> int:
        """Partitions are made or deleted; 0 partitions: only asked."""
        bucket = self._mutations.of(limit.account)
        bucket.record(partitions, limit.bound, now_ms)
        return min(bucket.throttle_ms(limit.bound, now_ms), THROTTLE_MS_MAX)
