"""Quotas: finds the client quotas that apply to a request on this broker, and charges them.

A broker has one `Quotas` object and updates it with every new cluster image. All client listeners
share it; the followers' listener has none. `plimsoll_core.quotas` computes throttle times; the
session reports them (`throttle_time_ms`) and stops reading for that time. While no quota is
committed a request costs one check. Most Produce requests of a client far below its quotas are
allowed ahead: they use an allowance that was counted as used when it was given
(`HeldLimits.covers`), and cost little more than a check.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Coroutine, Generator
from typing import Any, TypeVar

from plimsoll_broker.background import in_thread
from plimsoll_broker.server.connection_state import ConnectionState
from plimsoll_core.cluster.model import ClusterImage
from plimsoll_core.quotas.connections import AddressConnections
from plimsoll_core.quotas.held_limits import ClientUsage, HeldBucket, HeldLimits, HeldRate
from plimsoll_core.quotas.state import ClientQuotas, Quota, QuotaAccount, QuotaLimit
from plimsoll_process.durations import Durations
from plimsoll_wire.api_versions import ApiKey

_T = TypeVar("_T")
_R = TypeVar("_R")
EXEMPT = frozenset({ApiKey.HEARTBEAT, ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE})
"""APIs without quotas, so that a throttled client can still keep its group membership and log
in."""
MUTATING = frozenset(
    {
        ApiKey.CREATE_TOPICS,
        ApiKey.CREATE_PARTITIONS,
        ApiKey.DELETE_TOPICS,
        ApiKey.METADATA,
        ApiKey.ALTER_CONFIGS,
        ApiKey.INCREMENTAL_ALTER_CONFIGS,
    }
)
"""APIs with which clients change the metadata of topics; Metadata may create topics on demand."""
OWN_MUTATION_RATE = 500.0
"""The `controller_mutation_rate` of a principal at one broker if no quota states one: partitions
created or deleted, and topics configured, per second, with a burst of 5,500. It is more than
ordinary clients need, and too little to take the controller from others."""


class QuotaStats:
    """Histograms of throttle times in seconds, by quota, for the metrics. Their counts never
    decrease."""

    def __init__(self) -> None:
        self.throttled: dict[Quota, Durations] = {quota: Durations() for quota in Quota}


class Quotas:
    """The client quotas of one broker. A session calls `charges` for each request; `addresses`
    limits connections by address. `usage`: the clients' use of their quotas. `committed`: the
    quotas of the last applied image."""

    def __init__(self, addresses: AddressConnections | None = None) -> None:
        self.addresses = AddressConnections() if addresses is None else addresses
        self.usage = ClientUsage()
        self.stats = QuotaStats()
        self.committed = ClientQuotas()
        # The super users: never evicted for a new connection, and without a mutation limit.
        self.administrators: frozenset[str] = frozenset()
        # True if `committed` limits clients. Each request checks this before it calls `charges`.
        self.limits_clients = False

    def update(self, old: ClusterImage, new: ClusterImage) -> None:
        """Use the quotas and super users of a new cluster image. Subscribed to the metadata
        stream."""
        self.committed = self.addresses.quotas = new.quotas
        self.limits_clients = new.quotas.limits_clients
        self.administrators = frozenset(new.security.authorization.super_users)

    def charges(
        self, connection: ConnectionState, api_key: int, client_id: str | None, began_ns: int
    ) -> QuotaCharges | None:
        """Return the object to which a request's quota usage is charged, or None if no quota
        applies to it: the connection is a broker's or not logged in, the API is exempt, or no quota
        is committed for the client. `began_ns`: the monotonic time at which the request began to
        hold the event loop. Usage that was allowed ahead and exceeded is counted now."""
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
        return QuotaCharges(self, held, began_ns)

    def mutating(
        self,
        charges: QuotaCharges | None,
        connection: ConnectionState,
        client_id: str | None,
        began_ns: int,
    ) -> QuotaCharges | None:
        """Return the charges of a request that may create or delete partitions: `charges`, or new
        ones if that is None, with the default limit OWN_MUTATION_RATE of the principal if no quota
        states one. For brokers, super users and connections without a login there is no such
        default, and `charges` itself is returned. `began_ns`: the monotonic time at which the
        request began to hold the event loop."""
        known = charges is not None and charges.mutations is not None
        ours = connection.is_broker or connection.principal in self.administrators
        if known or ours or not connection.let_in:
            return charges
        if charges is None:
            user = connection.principal.partition(":")[2]
            held = HeldLimits(self.committed, self.usage, user, client_id)
            charges = QuotaCharges(self, held, began_ns)
        account = QuotaAccount(connection.holder, None)
        limit = QuotaLimit(Quota.CONTROLLER_MUTATION_RATE, OWN_MUTATION_RATE, account)
        charges.mutations = self.usage.bucket(limit)
        return charges

    def steps(self, connection: ConnectionState) -> QuotaCharges | None:
        """Return the charges for the later steps of a request that was allowed ahead: the time that
        it holds the event loop in later turns is not part of the allowance. Return None if no quota
        limits the client's request time."""
        held: HeldLimits | None = connection.limits
        return None if held is None or held.time is None else QuotaCharges(self, held, None)


class QuotaCharges:
    """The quota usage of one request. `throttle_ms`: the longest throttle time in ms of the quotas
    charged so far, 0 if none is exceeded; it is reported to the client, and the connection is muted
    for it. `mutations`: the limit on created and deleted partitions, or None."""

    __slots__ = ("_from_ns", "_limits", "_quotas", "_reserved", "mutations", "throttle_ms")

    def __init__(self, quotas: Quotas, limits: HeldLimits, began_ns: int | None) -> None:
        self._quotas = quotas
        self._limits = limits
        self.mutations = limits.mutations
        # None while the request waits or is answered.
        self._from_ns = began_ns
        self.throttle_ms = 0
        # Tokens reserved for partitions that the controller is asked to create or delete.
        self._reserved = 0.0

    @property
    def fetch_bytes_max(self) -> int | None:
        """The most bytes that one fetch may return: the consumer quota of a whole window (ten
        seconds), as in Kafka. None if no quota applies."""
        limit = self._limits.consumer
        return None if limit is None else max(int(limit.bound * 10), 1)

    def produced(self, size: int) -> None:
        """Charge a produce request of `size` bytes to the producer quota, and raise `throttle_ms`
        if that is exceeded. Do nothing without that quota."""
        limit = self._limits.producer
        if limit is not None:
            self._throttle(limit, limit.produced(size, _now_ms()))

    def fetched(self, size: int) -> bool:
        """Charge a fetch reply of `size` bytes to the consumer quota and return True. If the quota
        does not permit it now, charge nothing, raise `throttle_ms` and return False: the reply must
        not be sent now. Without that quota return True."""
        limit = self._limits.consumer
        if limit is None:
            return True
        throttle_ms, goes = limit.fetched(size, _now_ms())
        self._throttle(limit, throttle_ms)
        return goes

    def may_mutate(self) -> bool:
        """Return True if the quota of created and deleted partitions is not exceeded now (KIP-599,
        strict quotas), or there is none. Nothing is charged."""
        limit = self.mutations
        return limit is None or limit.may_mutate(_now_ms())

    def reserve(self, partitions: int) -> None:
        """Take quota tokens for `partitions` that the controller is asked to create or delete.
        `mutated` replaces them by the real number."""
        limit = self.mutations
        if limit is not None:
            self._reserved += limit.reserve(partitions, _now_ms())

    def mutated(self, partitions: int | None) -> None:
        """Charge the partitions that were created or deleted in place of the reservation, and set
        the client's throttle time. If `partitions` is None the number is not known, and the
        reservation is charged."""
        limit = self.mutations
        if limit is not None:
            reserved, self._reserved = self._reserved, 0.0
            made = reserved if partitions is None else partitions
            self._throttle(limit, limit.mutated(made, _now_ms(), reserved))

    def resumes(self) -> None:
        """Begin to measure the time for which the request holds the event loop; `took` charges
        it."""
        self._from_ns = time.monotonic_ns()

    def took(self, produced: int = 0) -> None:
        """Charge the time for which the request has held the event loop since it began or since
        `resumes`, and `produced` bytes of a Produce; do nothing if no such time is measured. If a
        Produce exceeds no quota, the client's next ones may be allowed ahead. Both are charged in
        one call, since they are usually known at the same time."""
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
        """Charge `ns` nanoseconds of processor time that were used in a thread."""
        limit = self._limits.time
        if limit is not None and (throttle_ms := limit.took(ns, _now_ms())):
            self._throttle(limit, throttle_ms)

    def _throttle(self, limit: HeldRate | HeldBucket, throttle_ms: int) -> None:
        if throttle_ms:
            self._quotas.stats.throttled[limit.quota].observe(throttle_ms / 1000)
            self.throttle_ms = max(self.throttle_ms, throttle_ms)


class _Paying:
    """`charges`: the quota usage of the request for which the event loop now runs code; None if
    that is not charged."""

    charges: QuotaCharges | None = None


_paying = _Paying()


class _Measured(Coroutine[Any, Any, _T]):
    """A coroutine that runs an awaitable and charges a request for the time of each step, the code
    between two suspensions. A generator alone is not enough: if it is closed before its first step,
    it never closes the awaitable inside."""

    __slots__ = ("_begun", "_inner", "_steps")

    def __init__(self, charges: QuotaCharges, awaitable: Awaitable[_T]) -> None:
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


def _charged(charges: QuotaCharges, steps: Any) -> Generator[Any, Any, Any]:
    error: BaseException | None = None
    while True:
        before = _paying.charges
        own = charges is not before  # if not own, this is part of a step that is charged as a whole
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
        except BaseException as raised:  # noqa: BLE001 - handed on to the awaiting coroutine
            error = raised


def measured(charges: QuotaCharges, awaitable: Awaitable[_T]) -> Coroutine[Any, Any, _T]:
    """Return a coroutine of the awaitable that charges each step for the time it holds the event
    loop."""
    return _Measured(charges, awaitable)


async def in_charged_thread(work: Callable[[], _R]) -> _R:
    """Run `work` in a thread, return its result or raise its error, and charge the processor time
    to the request that the caller serves; to none if that is not charged. As `in_thread`, return
    only when the work has ended."""
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


def in_steps(charges: QuotaCharges | None, work: Coroutine[Any, Any, _T]) -> Awaitable[_T]:
    """Return an awaitable of `work` that charges each of its steps to `charges`; `work` itself if
    `charges` is None. For work that a handler runs in a task of its own, where the session cannot
    charge it."""
    return work if charges is None else measured(charges, work)


def _now_ms() -> int:
    return time.monotonic_ns() // 1_000_000
