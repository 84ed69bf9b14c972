"""The Lease by which one operator replica leads a LogCluster, and the loop that renews it.

A Lease not renewed for 5 s is free. A holder that could not renew it for 3 s steps down. Candidates
and holder try every second, and a call to the API server takes at most one second.

Where calls take seconds, because a node is starved of processors, no holder could renew so short a
Lease: operators would take the Lease from each other, and each take-over reads the whole metadata
log again. All durations are then longer (`LeasePace`). The holder states the Lease's duration in
the Lease, and candidates respect it. After a minute of quick calls the durations are short again.

Durations are measured by the monotonic clock. Expiry counts from the moment at which a candidate
*saw* the last change, so clocks need not agree. The Lease only keeps operator replicas from
competing. The metadata log does not depend on it: its compare-and-set keeps it safe.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from enum import Enum

from plimsoll_operator.api.conditions import micro_timestamp, milliseconds
from plimsoll_operator.kube.errors import ApiError, Conflict, NotFound, Unavailable
from plimsoll_operator.kube.kube_api import KubeApi, Object
from plimsoll_operator.kube.resources import LEASES
from plimsoll_process.hang_watch import is_starved

FACTOR_MAX = 6
"""Maximum factor by which the durations of a Lease grow. A Lease lasts 30 s at most; after its
holder died on a slow node, no operator may lead for that long."""
CALLS_A_LEASE = 5
"""A Lease lasts at least this many times as long as the slowest call to the API server in the last
minute."""
REMEMBERED_MS = 60_000
CALLS_REMEMBERED = 256


@dataclass(frozen=True, slots=True, kw_only=True)
class Timing:
    """Durations of a Lease in milliseconds: `lease_ms` without a renewal until it is free,
    `renew_ms` without a renewal until its holder steps down, `retry_ms` between two attempts,
    `call_ms` for one call."""

    lease_ms: int = 5_000
    renew_ms: int = 3_000
    retry_ms: int = 1_000
    call_ms: int = 1_000

    def times(self, factor: int) -> Timing:
        return Timing(
            lease_ms=self.lease_ms * factor,
            renew_ms=self.renew_ms * factor,
            retry_ms=self.retry_ms * factor,
            call_ms=self.call_ms * factor,
        )


class LeasePace:
    """Chooses the durations of a Lease by the times that calls to the API server took in the last
    minute. `base`: the durations while calls are quick; slow calls lengthen all of them."""

    def __init__(self, base: Timing) -> None:
        self._base = base
        # (end, duration) of calls too slow for `base`, in milliseconds; the slowest decides.
        self._late: deque[tuple[int, int]] = deque(maxlen=CALLS_REMEMBERED)

    def note(self, now_ms: int, took_ms: int, *, timed_out: bool = False) -> None:
        """Record that a call to the API server ended at `now_ms` after `took_ms` milliseconds. A
        call that timed out counts with twice its duration, since it would have taken longer."""
        took_ms *= 2 if timed_out else 1
        if took_ms * CALLS_A_LEASE > self._base.lease_ms:
            self._late.append((now_ms, took_ms))

    def inherit(self, now_ms: int, lasts_ms: int) -> None:
        """Adopt the duration `lasts_ms` (milliseconds) that the previous holder stated in the
        Lease. If it is longer than the base's, the durations of the next minute start with it, as
        if this process had made the slow calls; otherwise nothing changes. A take-over keeps a new
        leader busy before its first call can show how slow calls are."""
        lasts_ms = min(lasts_ms, self._base.lease_ms * FACTOR_MAX)
        if lasts_ms > self._base.lease_ms:
            self._late.append((now_ms, lasts_ms // CALLS_A_LEASE))

    def starving(self, now_ms: int) -> None:
        """Choose the longest durations for the next minute, because this process gets too little
        processor time. The next call may be slower than any before."""
        self._late.append((now_ms, self._base.lease_ms * FACTOR_MAX // CALLS_A_LEASE))

    def timing(self, now_ms: int) -> Timing:
        while self._late and self._late[0][0] <= now_ms - REMEMBERED_MS:
            self._late.popleft()
        slowest_ms = max((took_ms for _, took_ms in self._late), default=0)
        factor = -(-slowest_ms * CALLS_A_LEASE // self._base.lease_ms)
        return self._base.times(min(max(factor, 1), FACTOR_MAX))


logger = logging.getLogger("plimsoll.lease")

CONFLICTS_MAX = 3
"""Number of conflicts after which one attempt to renew counts as failed. The next attempt follows
after a pause."""
Renewed = Callable[[int], None]
"""Function that is called after each successful renewal, with the milliseconds since the renewing
call began."""


class LeaseLoss(Enum):
    """Reason why a holder lost its Lease."""

    TAKEN = "another operator replica holds the Lease"
    UNRENEWED = "the operator could not renew the Lease in time"


@dataclass(frozen=True, slots=True, kw_only=True)
class Acquired:
    """Result of winning the Lease. `vacant_ms` is for how long the Lease had not been renewed, by
    the times stored in it; None if the Lease is new or holds no time. `previous` is the identity of
    the last holder, None if there was none."""

    vacant_ms: int | None
    previous: str | None


class Lease:
    """Competes for one Lease and renews it. Call `acquire`, then `hold`, never both at once, and
    `release` afterwards."""

    def __init__(
        self,
        api: KubeApi,
        *,
        namespace: str,
        name: str,
        identity: str,
        wall_ms: Callable[[], int],
        owners: Sequence[Object] = (),
    ) -> None:
        """Create a candidate for the Lease.

        `owners`: ownerReferences to the LogCluster, so that Kubernetes deletes the Lease with it.
        They are removed once the Lease holds notes about CRDs (`object_absence`), which must
        outlive the LogCluster.
        """
        self._base = Timing()
        self._pace = LeasePace(self._base)
        self._api = api
        self._namespace = namespace
        self._name = name
        self._identity = identity
        self._owners = [*owners]
        # For the times that people and other replicas read; no decision depends on it.
        self._wall_ms = wall_ms
        self._seen: Object | None = None
        self._seen_at_ms = 0
        self._held: Object | None = None
        # Returns the total time for which this process has waited for a processor, in milliseconds.
        # Below: its value and the time at the last check.
        self.waited_ms: Callable[[], int] = lambda: 0
        self._waited, self._looked_ms = 0, 0

    @property
    def timing(self) -> Timing:
        """Return the durations that apply now, longer if calls of the last minute were slow."""
        return self._pace.timing(_now_ms())

    @timing.setter
    def timing(self, base: Timing) -> None:
        """Set the durations that apply while calls are quick."""
        self._base, self._pace = base, LeasePace(base)

    async def acquire(self) -> Acquired:
        while True:
            started_ms = _now_ms()
            self._look_at_starvation(started_ms)
            try:
                acquired = await self._try()
            except ApiError as error:
                logger.info(
                    "this operator cannot acquire Lease %s and tries again: %s", self._name, error
                )
                acquired = None
            if acquired is not None:
                return acquired
            await _pace(started_ms, self.timing.retry_ms)

    async def hold(self, renewed: Renewed) -> LeaseLoss:
        """Renew the Lease until it is lost, and return why. `renewed` is called after each renewal.
        To stop holding it, cancel this and call `release`."""
        deadline_ms = _now_ms() + self.timing.renew_ms
        while True:
            started_ms = _now_ms()
            self._look_at_starvation(started_ms)
            stated = self.timing
            try:
                if not await self._renew(stated):
                    return LeaseLoss.TAKEN
                deadline_ms = started_ms + stated.renew_ms
                renewed(_now_ms() - started_ms)
            except ApiError as error:
                logger.warning(
                    "this operator cannot renew Lease %s and tries again; if it fails until the "
                    "Lease expires, it stops leading and another operator takes over: %s",
                    self._name,
                    error,
                )
            if _now_ms() >= deadline_ms:
                self._held = None
                return LeaseLoss.UNRENEWED
            await _pace(started_ms, min(stated.retry_ms, deadline_ms - started_ms))

    async def release(self) -> None:
        """Clear the holder in the Lease, so that another operator can acquire it at once. Does
        nothing if this operator does not hold it. Errors are only logged, since the Lease also
        expires."""
        held, self._held = self._held, None
        if held is None:
            return
        timeout_s = self.timing.call_ms / 1000
        try:
            try:
                await self._api.replace(LEASES, _released(held), timeout_s=timeout_s)
            except Conflict:  # edited since the renewal, perhaps only its metadata
                found = await self._api.get(
                    LEASES, self._namespace, self._name, timeout_s=timeout_s
                )
                if (found.get("spec") or {}).get("holderIdentity") == self._identity:
                    await self._api.replace(LEASES, _released(found), timeout_s=timeout_s)
        except ApiError as error:
            logger.info(
                "this operator cannot release Lease %s; another operator acquires it when it "
                "expires, and nothing needs to be done: %s",
                self._name,
                error,
            )

    def _look_at_starvation(self, now_ms: int) -> None:
        """Measure how long this process waited for a processor since the last check. If it waited
        too long, choose the longest durations."""
        waited_ms = self.waited_ms()
        starved_ms, since_ms = waited_ms - self._waited, now_ms - self._looked_ms
        self._waited, self._looked_ms = waited_ms, now_ms
        if is_starved(starved_ms, since_ms):
            self._pace.starving(now_ms)

    async def _try(self) -> Acquired | None:
        timing = self.timing
        timeout_s = timing.call_ms / 1000
        try:
            found = await self._get(timeout_s)
        except NotFound:
            created = self._api.create(LEASES, self._fresh(timing), timeout_s=timeout_s)
            self._held = await self._timed(created, timeout_s)
            return Acquired(vacant_ms=None, previous=None)
        if not self._is_free(found):
            return None
        spec = found.setdefault("spec", {})
        self._pace.inherit(_now_ms(), 1000 * int(spec.get("leaseDurationSeconds") or 0))
        timing = self.timing
        previous = spec.get("holderIdentity") or None
        vacant_ms = _age_ms(spec.get("renewTime"), self._wall_ms())
        transitions = int(spec.get("leaseTransitions") or 0) + (previous != self._identity)
        spec |= self._claim(transitions, timing)
        if self._owners and found["metadata"].get("ownerReferences"):
            # Old owners may name a deleted LogCluster, and the Lease would be deleted with it.
            found["metadata"]["ownerReferences"] = self._owners
        try:
            self._held = await self._replace(found, timing.call_ms / 1000)
        except Conflict:
            return None
        return Acquired(vacant_ms=vacant_ms, previous=previous)

    def _is_free(self, found: Object) -> bool:
        spec = found.get("spec") or {}
        holder = spec.get("holderIdentity")
        version = found["metadata"].get("resourceVersion")
        if self._seen is None or self._seen["metadata"].get("resourceVersion") != version:
            self._seen, self._seen_at_ms = found, _now_ms()
        if not holder or holder == self._identity:
            return True
        return _now_ms() - self._seen_at_ms >= self._lasts_ms(spec)

    def _lasts_ms(self, spec: Object) -> int:
        """Return the duration of the Lease that its holder stated, in milliseconds, limited to what
        a `LeasePace` can choose: any client may have written the number."""
        stated_ms = 1000 * int(spec.get("leaseDurationSeconds") or 0)
        return min(max(stated_ms, self._base.lease_ms), self._base.lease_ms * FACTOR_MAX)

    async def _renew(self, timing: Timing) -> bool:
        """Renew the Lease and state the duration of `timing` in it. Return True if this operator
        still holds it, False if another one does. Raise `ApiError` if the renewal failed.

        After a conflict the Lease is read back and written again: another client may have edited
        its metadata, or the stored write may be our own. The renewal must reach the Lease, because
        the duration stated before may be shorter than the pause until the next renewal.
        """
        timeout_s = timing.call_ms / 1000
        for attempt in range(CONFLICTS_MAX):
            if self._held is None:
                found = await self._get(timeout_s)
                if (found.get("spec") or {}).get("holderIdentity") != self._identity:
                    return False
                self._held = found
            lease, self._held = self._held, None
            spec = lease["spec"]
            spec |= self._claim(int(spec.get("leaseTransitions") or 0), timing) | {
                "acquireTime": spec.get("acquireTime") or micro_timestamp(self._wall_ms())
            }
            try:
                self._held = await self._replace(lease, timeout_s)
                break
            except Conflict:
                if attempt == CONFLICTS_MAX - 1:
                    raise
        return True

    # --- calls, and how long they take ----------------------------------------------------------

    def _get(self, timeout_s: float) -> Awaitable[Object]:
        found = self._api.get(LEASES, self._namespace, self._name, timeout_s=timeout_s)
        return self._timed(found, timeout_s)

    def _replace(self, lease: Object, timeout_s: float) -> Awaitable[Object]:
        return self._timed(self._api.replace(LEASES, lease, timeout_s=timeout_s), timeout_s)

    async def _timed(self, call: Awaitable[Object], timeout_s: float) -> Object:
        started_ms = _now_ms()
        timed_out = False
        try:
            return await call
        except Unavailable:
            timed_out = _now_ms() - started_ms >= 1000 * timeout_s
            raise
        finally:
            now_ms = _now_ms()
            self._pace.note(now_ms, now_ms - started_ms, timed_out=timed_out)

    # --- the object ------------------------------------------------------------------------------

    def _fresh(self, timing: Timing) -> Object:
        return LEASES.manifest(
            {
                "name": self._name,
                "namespace": self._namespace,
                **({"ownerReferences": self._owners} if self._owners else {}),
            },
            spec=self._claim(0, timing),
        )

    def _claim(self, transitions: int, timing: Timing) -> Object:
        now = micro_timestamp(self._wall_ms())
        return {
            "holderIdentity": self._identity,
            "leaseDurationSeconds": timing.lease_ms // 1000,
            "acquireTime": now,
            "renewTime": now,
            "leaseTransitions": transitions,
        }


def _released(lease: Object) -> Object:
    """Return the Lease without a holder. It keeps the stated duration, from which the next holder
    starts."""
    lease["spec"] |= {"holderIdentity": ""}
    return lease


def _now_ms() -> int:
    return int(asyncio.get_running_loop().time() * 1000)


async def _pace(started_ms: int, period_ms: int) -> None:
    await asyncio.sleep(max(0, started_ms + period_ms - _now_ms()) / 1000)


def _age_ms(stamp: str | None, now_ms: int) -> int | None:
    if not stamp:
        return None
    return max(0, now_ms - milliseconds(stamp))
