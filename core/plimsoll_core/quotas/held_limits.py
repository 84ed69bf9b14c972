"""The use of quotas by each client on one broker, and the time for which a client is throttled.

Pure: times are arguments, in milliseconds of a clock that never goes back. Tables are bounded: when
one is full, the client seen longest ago is forgotten, unless it has an open connection. Users,
client ids and pairs have tables of their own, so that a client that invents client ids displaces no
user. Source: `ClientQuotaManager`, `ClientRequestQuotaManager`, `ControllerMutationQuotaManager`.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Generic, TypeVar
from weakref import WeakValueDictionary

from plimsoll_core.quotas.rates import SAMPLE_MS, SAMPLES, Allowance, TokenBucket, WindowedRate
from plimsoll_core.quotas.state import ClientQuotas, Quota, QuotaAccount, QuotaLimit

ACCOUNTS_MAX = 10_000
"""The most accounts in one table. A quota has three tables: for users, for client ids, and for
pairs of both."""
NAME_MAX = 256
"""The number of leading characters by which client ids are distinguished."""
THROTTLE_MS_MAX = 60_000
"""The longest time, in milliseconds, for which a throttled client is not read from."""
REQUEST_THROTTLE_MS_MAX = SAMPLE_MS
"""The longest throttle by `request_percentage`, in milliseconds, as in Kafka: the limited time is
already used when it is measured."""
NANOSECONDS_A_PERCENT = 10_000_000
"""Nanoseconds in one percent of a second."""
REQUESTS_AHEAD = 8
"""The least number of requests, each like the previous one, for which an allowance is given."""
_UNLIMITED = 2**62
_NEVER_NS = 2**62

M = TypeVar("M", WindowedRate, TokenBucket)


class Accounts(Generic[M]):
    """The rates or token buckets of one quota, by account; `make` creates a new one. An account has
    a user, a client id or both; all clients with these share it. The table is bounded: the account
    used longest ago is forgotten."""

    __slots__ = ("_known", "_make", "_tables")

    def __init__(self, make: Callable[[], M]) -> None:
        self._make: Callable[[], M] = make
        # Accounts of users, of client ids, of both; the least recently used first.
        self._tables: tuple[OrderedDict[QuotaAccount, M], ...] = (
            OrderedDict(),
            OrderedDict(),
            OrderedDict(),
        )
        # Also accounts that a table has dropped while a connection uses them: each exists once.
        self._known: WeakValueDictionary[QuotaAccount, M] = WeakValueDictionary()

    def __len__(self) -> int:
        return sum(map(len, self._tables))

    def of(self, account: QuotaAccount) -> M:
        user, client_id = account
        if client_id is not None and len(client_id) > NAME_MAX:
            account = QuotaAccount(user, client_id[:NAME_MAX])
        table = self._tables[0 if client_id is None else 1 if user is None else 2]
        found = self._known.get(account)
        if found is None:
            found = self._known[account] = self._make()
        table[account] = found
        table.move_to_end(account)
        if len(table) > ACCOUNTS_MAX:
            table.popitem(last=False)
        return found


class HeldRate:
    """A limit and the rate of all clients that share it. A connection keeps the object while its
    limits stay the same."""

    __slots__ = ("_a_second", "bound", "quota", "rate")

    def __init__(self, limit: QuotaLimit, rate: WindowedRate) -> None:
        self.quota = limit.quota
        self.bound = limit.bound
        # In bytes or nanoseconds.
        by_time = limit.quota is Quota.REQUEST_PERCENTAGE
        self._a_second = limit.bound * NANOSECONDS_A_PERCENT if by_time else limit.bound
        self.rate = rate

    def produced(self, size: int, now_ms: int) -> int:
        """Count produced bytes, and return the throttle time in milliseconds."""
        throttle_ms = self.rate.use(size, self._a_second, now_ms)
        return throttle_ms and min(throttle_ms, THROTTLE_MS_MAX)

    def fetched(self, size: int, now_ms: int) -> tuple[int, bool]:
        """Count bytes about to be sent. Return the throttle time in milliseconds, and True if the
        bytes may be sent.

        Bytes above the limit are neither counted nor sent, as in Kafka, unless nothing else was
        counted lately: otherwise a batch larger than the quota of a whole window would never be
        sent.
        """
        first = self.rate.amount(now_ms) <= 0
        throttle_ms = min(self.rate.use(size, self._a_second, now_ms), THROTTLE_MS_MAX)
        goes = throttle_ms == 0 or first
        if not goes:
            self.rate.record(-size, now_ms)
        return throttle_ms, goes

    def took(self, nanoseconds: int, now_ms: int) -> int:
        """Count the time for which a request held the event loop, and return the throttle time in
        milliseconds."""
        throttle_ms = self.rate.use(nanoseconds, self._a_second, now_ms)
        return throttle_ms and min(throttle_ms, REQUEST_THROTTLE_MS_MAX)

    def allow(self, allowance: Allowance, least: int, now_ms: int) -> bool:
        """Extend a connection's allowance, in bytes or nanoseconds (`WindowedRate.allow`). Return
        False if less than `least` can be given."""
        return self.rate.allow(allowance, least, self._a_second, now_ms)


class HeldBucket:
    """A `controller_mutation_rate` limit and the token bucket of all clients that share it."""

    __slots__ = ("bound", "bucket", "quota")

    def __init__(self, limit: QuotaLimit, bucket: TokenBucket) -> None:
        self.quota = limit.quota
        self.bound = limit.bound
        self.bucket = bucket

    def may_mutate(self, now_ms: int) -> bool:
        """Return True if the bucket has no deficit. If it has one, the caller refuses a request of
        a version that knows THROTTLING_QUOTA_EXCEEDED."""
        return not self.bucket.throttle_ms(self.bound, now_ms)

    def reserve(self, partitions: int, now_ms: int) -> float:
        """Take tokens for the partitions that a request names, and return the number taken, which
        the caller must pass to `mutated`. The number is bounded by little more than a window's
        tokens, since a request may name any number of partitions and be refused."""
        taken = min(float(partitions), self.bound * SAMPLES * SAMPLE_MS / 1000 + 1)
        self.bucket.record(taken, self.bound, now_ms)
        return taken

    def mutated(self, partitions: float, now_ms: int, reserved: float = 0.0) -> int:
        """Take tokens for partitions that were created or deleted, give back the `reserved` ones,
        and return the throttle time in milliseconds."""
        self.bucket.record(partitions - reserved, self.bound, now_ms)
        return min(self.bucket.throttle_ms(self.bound, now_ms), THROTTLE_MS_MAX)


class ClientUsage:
    """The usage of all clients of one broker, by quota and account."""

    def __init__(self) -> None:
        # In bytes, bytes and nanoseconds.
        self._rates = {
            Quota.PRODUCER_BYTE_RATE: Accounts(WindowedRate),
            Quota.CONSUMER_BYTE_RATE: Accounts(WindowedRate),
            Quota.REQUEST_PERCENTAGE: Accounts(WindowedRate),
        }
        self._mutations = Accounts(TokenBucket)

    @property
    def accounts(self) -> int:
        """Return the number of tracked accounts, over all quotas."""
        return sum(map(len, self._rates.values())) + len(self._mutations)

    def rate(self, limit: QuotaLimit | None) -> HeldRate | None:
        """Return the limit with the rate of its account; None if there is no limit."""
        if limit is None:
            return None
        return HeldRate(limit, self._rates[limit.quota].of(limit.account))

    def bucket(self, limit: QuotaLimit | None) -> HeldBucket | None:
        return None if limit is None else HeldBucket(limit, self._mutations.of(limit.account))


class HeldLimits:
    """The quota limits for the requests of one connection with one client id, with the usage of
    their accounts.

    A client far from its quotas gets allowances for its next requests (`allow_ahead`), so that a
    Produce costs only subtractions (`covers`). The client is told the same throttle times as if
    each request were charged by itself. A request that takes more time than was left is charged
    with the next one.
    """

    __slots__ = (
        "_bytes",
        "_none_until_ms",
        "_until_ns",
        "client_id",
        "committed",
        "consumer",
        "mutations",
        "none",
        "producer",
        "time",
        "time_ahead",
    )

    def __init__(
        self, quotas: ClientQuotas, usage: ClientUsage, user: str, client_id: str | None
    ) -> None:
        self.committed = quotas
        self.client_id = client_id

        def limit(quota: Quota) -> QuotaLimit | None:
            return quotas.limit(quota, user, client_id or "")

        self.producer = usage.rate(limit(Quota.PRODUCER_BYTE_RATE))
        self.consumer = usage.rate(limit(Quota.CONSUMER_BYTE_RATE))
        self.time = usage.rate(limit(Quota.REQUEST_PERCENTAGE))
        self.mutations = usage.bucket(limit(Quota.CONTROLLER_MUTATION_RATE))
        found = (self.producer, self.consumer, self.time, self.mutations)
        self.none = found == (None, None, None, None)
        # Allowances of `producer`, and of `time` in nanoseconds.  A request's time, known once it
        # was served, is subtracted.
        self._bytes = Allowance(_UNLIMITED if self.producer is None else 0)
        self.time_ahead = Allowance(_UNLIMITED if self.time is None else 0)
        # The end of the allowances; 0: there are none.
        self._until_ns = 0
        # No allowance was available; do not ask again before this time.
        self._none_until_ms = 0

    def covers(
        self, committed: ClientQuotas, client_id: str | None, size: int, now_ns: int
    ) -> bool:
        """Subtract the `size` bytes of a Produce from the allowances and return True if they cover
        it. Return False, and subtract nothing, if the request must be charged by itself, or if
        `committed` or `client_id` shows that the limits are outdated."""
        allowed = self._bytes
        left = allowed.left - size
        if (
            left < 0
            or self.time_ahead.left <= 0
            or now_ns >= self._until_ns
            or committed is not self.committed
            or client_id != self.client_id
        ):
            return False
        allowed.left = left
        allowed.last_ns = self.time_ahead.last_ns = now_ns
        return True

    def count_overdrawn(self) -> None:
        """Charge the time that the last request used beyond its allowance. Called before a request
        that is charged by itself."""
        if self.time is not None and self.time_ahead.left < 0:
            self.time.rate.settle()

    def allow_ahead(self, size: int, nanoseconds: int, now_ms: int) -> None:
        """Obtain allowances for the next requests, by the bytes and the nanoseconds of a Produce
        that was just charged by itself. If too little is left below a limit, there is no allowance,
        and none is asked for again for `SAMPLE_MS`."""
        if now_ms < self._none_until_ms:
            return
        self._until_ns, until_ns = 0, _NEVER_NS
        for limit, allowance, used in (
            (self.producer, self._bytes, size),
            (self.time, self.time_ahead, nanoseconds),
        ):
            if limit is not None:
                if not limit.allow(allowance, used * REQUESTS_AHEAD, now_ms):
                    self._none_until_ms = now_ms + SAMPLE_MS
                    return
                until_ns = min(until_ns, limit.rate.sample_ends_ms * 1_000_000)
        self._until_ns = until_ns
