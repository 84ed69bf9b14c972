"""The Lease by which one replica of the operator leads a LogCluster, and the loop that renews it.

5 s / 3 s / 1 s: a Lease not renewed for 5 s is free; a holder that could not renew for 3 s steps
down; both try every second, and no call takes longer than one.  Only the monotonic clock decides,
and expiry is counted from the moment a change was *seen*, so that clocks need not agree.  The Lease
keeps two replicas from fighting; what keeps the log safe is the log's own compare-and-set.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Protocol

from plimsoll_operator.api.conditions import micro_timestamp, milliseconds
from plimsoll_operator.kube.errors import ApiError, Conflict, NotFound
from plimsoll_operator.kube.port import Object
from plimsoll_operator.kube.resources import LEASES, Kind

logger = logging.getLogger("plimsoll.lease")

Renewed = Callable[[int], None]
"""Told after each renewal how many milliseconds ago its call started."""


class LeaseApi(Protocol):
    """The part of the client that is used here."""

    async def get(
        self, kind: Kind, namespace: str | None, name: str, *, timeout_s: float
    ) -> Object: ...

    async def create(self, kind: Kind, manifest: Object, *, timeout_s: float) -> Object: ...

    async def replace(self, kind: Kind, manifest: Object, *, timeout_s: float) -> Object: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Timing:
    """When a Lease is free, when its holder gives up, how often both look."""

    lease_ms: int = 5_000
    renew_ms: int = 3_000
    retry_ms: int = 1_000
    call_ms: int = 1_000


class LeaseLoss(Enum):
    """Why a Lease was lost."""

    TAKEN = "another replica holds the Lease"
    UNRENEWED = "the Lease could not be renewed in time"


@dataclass(frozen=True, slots=True, kw_only=True)
class Acquired:
    """The Lease is ours.  `vacant_ms`: for how long it was not renewed, by its own times."""

    vacant_ms: int | None
    previous: str | None


class Lease:
    """One candidate for one Lease.  `acquire`, then `hold`; never both at once."""

    def __init__(
        self,
        api: LeaseApi,
        *,
        namespace: str,
        name: str,
        identity: str,
        wall_ms: Callable[[], int],
    ) -> None:
        self.timing = Timing()
        self._api = api
        self._namespace = namespace
        self._name = name
        self._identity = identity
        # For the times that people and other replicas read; no decision here reads it.
        self._wall_ms = wall_ms
        self._seen: Object | None = None
        self._seen_at_ms = 0
        self._held: Object | None = None

    async def acquire(self) -> Acquired:
        """Wait until the Lease is ours."""
        while True:
            started_ms = _now_ms()
            try:
                acquired = await self._try()
            except ApiError as error:
                logger.info("lease %s: %s", self._name, error)
                acquired = None
            if acquired is not None:
                return acquired
            await _pace(started_ms, self.timing.retry_ms)

    async def hold(self, renewed: Renewed) -> LeaseLoss:
        """Renew until the Lease is lost.  Cancel to stop holding, then `release`."""
        deadline_ms = _now_ms() + self.timing.renew_ms
        while True:
            started_ms = _now_ms()
            try:
                if not await self._renew():
                    return LeaseLoss.TAKEN
                deadline_ms = started_ms + self.timing.renew_ms
                renewed(_now_ms() - started_ms)
            except ApiError as error:
                logger.warning("lease %s: %s", self._name, error)
            if _now_ms() >= deadline_ms:
                self._held = None
                return LeaseLoss.UNRENEWED
            await _pace(started_ms, min(self.timing.retry_ms, deadline_ms - started_ms))

    async def release(self) -> None:
        """Let another replica take over at once.  Best effort: a Lease also expires."""
        held, self._held = self._held, None
        if held is None:
            return
        timeout_s = self.timing.call_ms / 1000
        try:
            try:
                await self._api.replace(LEASES, _released(held), timeout_s=timeout_s)
            except Conflict:  # it was edited since it was renewed, perhaps only its metadata
                found = await self._api.get(
                    LEASES, self._namespace, self._name, timeout_s=timeout_s
                )
                if (found.get("spec") or {}).get("holderIdentity") == self._identity:
                    await self._api.replace(LEASES, _released(found), timeout_s=timeout_s)
        except ApiError as error:
            logger.info("lease %s could not be released: %s", self._name, error)

    async def _try(self) -> Acquired | None:
        timeout_s = self.timing.call_ms / 1000
        try:
            found = await self._api.get(LEASES, self._namespace, self._name, timeout_s=timeout_s)
        except NotFound:
            self._held = await self._api.create(LEASES, self._fresh(), timeout_s=timeout_s)
            return Acquired(vacant_ms=None, previous=None)
        if not self._is_free(found):
            return None
        spec = found.setdefault("spec", {})
        previous = spec.get("holderIdentity") or None
        vacant_ms = _age_ms(spec.get("renewTime"), self._wall_ms())
        spec |= self._claim(int(spec.get("leaseTransitions") or 0) + (previous != self._identity))
        try:
            self._held = await self._api.replace(LEASES, found, timeout_s=timeout_s)
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
        return _now_ms() - self._seen_at_ms >= self.timing.lease_ms

    async def _renew(self) -> bool:
        """Whether the Lease is still ours.  A conflict is read back: it may be our own write."""
        timeout_s = self.timing.call_ms / 1000
        if self._held is None:
            found = await self._api.get(LEASES, self._namespace, self._name, timeout_s=timeout_s)
            if (found.get("spec") or {}).get("holderIdentity") != self._identity:
                return False
            self._held = found
        lease, self._held = self._held, None
        spec = lease["spec"]
        spec |= self._claim(int(spec.get("leaseTransitions") or 0)) | {
            "acquireTime": spec.get("acquireTime") or micro_timestamp(self._wall_ms())
        }
        try:
            self._held = await self._api.replace(LEASES, lease, timeout_s=timeout_s)
        except Conflict:
            return await self._renew_after_conflict(timeout_s)
        return True

    async def _renew_after_conflict(self, timeout_s: float) -> bool:
        found = await self._api.get(LEASES, self._namespace, self._name, timeout_s=timeout_s)
        if (found.get("spec") or {}).get("holderIdentity") != self._identity:
            return False
        self._held = found
        return True

    def _fresh(self) -> Object:
        return {
            "apiVersion": LEASES.api_version,
            "kind": LEASES.kind,
            "metadata": {"name": self._name, "namespace": self._namespace},
            "spec": self._claim(0),
        }

    def _claim(self, transitions: int) -> Object:
        now = micro_timestamp(self._wall_ms())
        return {
            "holderIdentity": self._identity,
            "leaseDurationSeconds": self.timing.lease_ms // 1000,
            "acquireTime": now,
            "renewTime": now,
            "leaseTransitions": transitions,
        }


def _released(lease: Object) -> Object:
    lease["spec"] |= {"holderIdentity": "", "leaseDurationSeconds": 1}
    return lease


def _now_ms() -> int:
    return int(asyncio.get_running_loop().time() * 1000)


async def _pace(started_ms: int, period_ms: int) -> None:
    await asyncio.sleep(max(0, started_ms + period_ms - _now_ms()) / 1000)


def _age_ms(stamp: str | None, now_ms: int) -> int | None:
    if not stamp:
        return None
    return max(0, now_ms - milliseconds(stamp))
