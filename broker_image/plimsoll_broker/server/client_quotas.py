"""Clients' quotas on one broker: which hold for a request, what is charged, who is not read.

One for each lifetime, told of every image; the listeners of all clients share it, and no follower's
has one.  `plimsoll_core.quotas` says how much is too much; the session tells its client
(`throttle_time_ms`) and does not read it for that time.  While nothing is committed a request costs
one look, and a Produce that was allowed before little more.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Coroutine, Generator
from typing import Any, TypeVar

from plimsoll_broker.background.threads import in_thread
from plimsoll_broker.server.dispatch import ConnectionState
from plimsoll_core.cluster.model import ClusterImage
from plimsoll_core.quotas.connections import AddressConnections
from plimsoll_core.quotas.state import ClientQuotas, Quota, QuotaAccount, QuotaLimit
from plimsoll_core.quotas.usage import ClientUsage, HeldBucket, HeldLimits, HeldRate
from plimsoll_process.durations import Durations
from plimsoll_wire.api_versions import ApiKey

_T = TypeVar("_T")
_R = TypeVar("_R")
EXEMPT = frozenset({ApiKey.HEARTBEAT, ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE})
"""A member stays in its group, and a user logs in, whatever else they used."""
MUTATING = frozenset(
    {ApiKey.CREATE_TOPICS, ApiKey.CREATE_PARTITIONS, ApiKey.DELETE_TOPICS, ApiKey.METADATA}
)
"""What makes or deletes partitions; Metadata where topics are made on demand."""
OWN_MUTATION_RATE = 500.0
"""Partitions a second that a principal without a `controller_mutation_rate` may make or delete
through one broker, 5,500 at once: more than clients do at work, and less than takes a controller
from others."""


class QuotaStats:
    """By quota; they only grow."""

    def __init__(self) -> None:
        self.throttled: dict[Quota, Durations] = {quota: Durations() for quota in Quota}


class Quotas:
    """`charges` of a request; `addresses` of connections."""

    def __init__(self, addresses: AddressConnections | None = None) -> None:
        self.addresses = AddressConnections() if addresses is None else addresses
        self.usage = ClientUsage()
        self.stats = QuotaStats()
        self.committed = ClientQuotas()
        # The super users: their connections make room for no others, and they may make and
        # delete as many partitions as they like.
        self.administrators: frozenset[str] = frozenset()
        # Whether `committed` does: each request asks, and `charges` only where it does.
        self.limits_clients = False

    def update(self, old: ClusterImage, new: ClusterImage) -> None:
        """The metadata stream's callback."""
        self.committed = self.addresses.quotas = new.quotas
        self.limits_clients = new.quotas.limits_clients
        self.administrators = frozenset(new.security.authorization.super_users)

    def charges(
        self, connection: ConnectionState, api_key: int, client_id: str | None, began_ns: int
    ) -> Charges | None:
        """None: nothing holds for the request."""
        if connection.is_broker or api_key in EXEMPT:
            return None
        committed, held = self.committed, connection.limits
        if held is None or held.committed is not committed or held.client_id != client_id:
            if not connection.let_in:
                return None
            user = connection.principal.partition(":")[2]
            held = connection.limits = HeldLimits(committed, self.usage, user, client_id)
        if held.none:
            return None
        held.count_overdrawn()
        return Charges(self, held, began_ns)

    def mutating(
        self,
        charges: Charges | None,
        connection: ConnectionState,
        client_id: str | None,
        began_ns: int,
    ) -> Charges | None:
        """Of a request that may make or delete partitions: `charges`, with the brokers' own limit
        where no row states one.  Super users have none."""
        known = charges is not None and charges.mutations is not None
        ours = connection.is_broker or connection.principal in self.administrators
        if known or ours or not connection.let_in:
            return charges
        if charges is None:
            user = connection.principal.partition(":")[2]
            held = HeldLimits(self.committed, self.usage, user, client_id)
            charges = Charges(self, held, began_ns)
        account = QuotaAccount(connection.holder, None)
        limit = QuotaLimit(Quota.CONTROLLER_MUTATION_RATE, OWN_MUTATION_RATE, account)
        charges.mutations = self.usage.bucket(limit)
        return charges

    def steps(self, connection: ConnectionState) -> Charges | None:
        """Of a request whose bytes were allowed before, and its time until now: what it takes in
        later turns is not known ahead."""
        held: HeldLimits | None = connection.limits
        return None if held is None or held.time is None else Charges(self, held, None)


class Charges:
    """Of one request.  `throttle_ms`: the longest that its client has to wait, to be told and
    kept to.  Times are of the clock that `now_ms` reads."""

    __slots__ = ("_from_ns", "_limits", "_quotas", "_reserved", "mutations", "throttle_ms")

    def __init__(self, quotas: Quotas, limits: HeldLimits, began_ns: int | None) -> None:
        self._quotas = quotas
        self._limits = limits
        self.mutations = limits.mutations
        # None: it is waiting, or answered.
        self._from_ns = began_ns
        self.throttle_ms = 0
        # Tokens for partitions that the controller is asked to make or delete.
        self._reserved = 0.0

    @property
    def fetch_bytes_max(self) -> int | None:
        """What one fetch may bring: the quota of a whole window, as in Kafka."""
        limit = self._limits.consumer
        return None if limit is None else max(int(limit.bound * 10), 1)

    def produced(self, size: int) -> None:
        """The request itself, as it came."""
        limit = self._limits.producer
        if limit is not None:
            self._throttle(limit, limit.produced(size, _now_ms()))

    def fetched(self, size: int) -> bool:
        """Whether so many bytes are sent now; else none are."""
        limit = self._limits.consumer
        if limit is None:
            return True
        throttle_ms, goes = limit.fetched(size, _now_ms())
        self._throttle(limit, throttle_ms)
        return goes

    def may_mutate(self) -> bool:
        """Whether a strict request may make or delete anything."""
        limit = self.mutations
        return limit is None or limit.may_mutate(_now_ms())

    def reserve(self, partitions: int) -> None:
        """Asked for: until `mutated` says what was made."""
        limit = self.mutations
        if limit is not None:
            self._reserved += limit.reserve(partitions, _now_ms())

    def mutated(self, partitions: int | None) -> None:
        """Made or deleted, of all that was asked for; None: it is not known, and what was reserved
        is charged.  Its client is told how long to wait."""
        limit = self.mutations
        if limit is not None:
            reserved, self._reserved = self._reserved, 0.0
            made = reserved if partitions is None else partitions
            self._throttle(limit, limit.mutated(made, _now_ms(), reserved))

    def resumes(self) -> None:
        """From now on the request holds the event loop again."""
        self._from_ns = time.monotonic_ns()

    def took(self, produced: int = 0) -> None:
        """It held the event loop from when it came, or from `resumes`, until now.  With the bytes
        of `produced`, which for nearly every request are known at the same time."""
        from_ns = self._from_ns
        if from_ns is None:
            return
        self._from_ns = None
        limits, now_ns = self._limits, time.monotonic_ns()
        now_ms = now_ns // 1_000_000
        limit = limits.producer
        if produced and limit is not None and (throttle_ms := limit.produced(produced, now_ms)):
            self._throttle(limit, throttle_ms)
        limit = limits.time
        if limit is not None and (throttle_ms := limit.took(now_ns - from_ns, now_ms)):
            self._throttle(limit, throttle_ms)
        if produced and not self.throttle_ms:
            limits.allow_ahead(produced, now_ns - from_ns, now_ms)

    def used(self, ns: int) -> None:
        """So much of a processor elsewhere: in a thread."""
        limit = self._limits.time
        if limit is not None and (throttle_ms := limit.took(ns, _now_ms())):
            self._throttle(limit, throttle_ms)

    def _throttle(self, limit: HeldRate | HeldBucket, throttle_ms: int) -> None:
        if throttle_ms:
            self._quotas.stats.throttled[limit.quota].observe(throttle_ms / 1000)
            self.throttle_ms = max(self.throttle_ms, throttle_ms)


class _Paying:
    """Of the event loop's thread: whose step it is in."""

    charges: Charges | None = None


_paying = _Paying()


class _Measured(Coroutine[Any, Any, _T]):
    """`await` runs the generator itself.  That never hears of what ends it before its first step,
    and would never close what it was to run: this does."""

    __slots__ = ("_begun", "_inner", "_steps")

    def __init__(self, charges: Charges, awaitable: Awaitable[_T]) -> None:
        self._begun = False
        self._inner: Any = awaitable.__await__()
        self._steps = _charged(charges, self._inner)

    def send(self, value: Any) -> Any:
        self._begun = True
        return self._steps.send(value)

    def throw(self, *error: Any) -> Any:
        if not self._begun:
            self._inner.close()
        return self._steps.throw(*error)

    def close(self) -> None:
        self._steps.close()
        self._inner.close()

    def __await__(self) -> Generator[Any, Any, _T]:
        return self._steps


def _charged(charges: Charges, steps: Any) -> Generator[Any, Any, Any]:
    error: BaseException | None = None
    while True:
        before = _paying.charges
        own = charges is not before  # else it is part of a step that is charged as a whole
        if own:
            charges.resumes()
            _paying.charges = charges
        try:
            waiting = steps.send(None) if error is None else steps.throw(error)
        except StopIteration as end:
            return end.value
        finally:
            if own:
                _paying.charges = before
                charges.took()
        error = None
        try:
            yield waiting
        except BaseException as raised:  # noqa: BLE001 - handed on to whom it is for
            error = raised


def measured(charges: Charges, awaitable: Awaitable[_T]) -> Coroutine[Any, Any, _T]:
    """The awaitable, each of whose steps is charged for the time for which it holds the loop."""
    return _Measured(charges, awaitable)


async def in_charged_thread(work: Callable[[], _R]) -> _R:
    """In a thread, whose processor time is charged to whom the step is in which this is called."""
    charges = _paying.charges
    if charges is None:
        return await in_thread(work)
    took_ns = 0

    def timed() -> _R:
        nonlocal took_ns
        began_ns = time.thread_time_ns()
        try:
            return work()
        finally:
            took_ns = time.thread_time_ns() - began_ns

    try:
        return await in_thread(timed)
    finally:
        charges.used(took_ns)


def in_steps(charges: Charges | None, work: Coroutine[Any, Any, _T]) -> Awaitable[_T]:
    """What a handler has done by a task of its own, which the session sees nothing of."""
    return work if charges is None else measured(charges, work)


def _now_ms() -> int:
    return time.monotonic_ns() // 1_000_000
