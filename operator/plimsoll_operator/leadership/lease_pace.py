"""LeasePace: duration of a Lease, by the speed of the API server and of this process. Pure.

Called by `lease`. On an idle machine a Lease lasts 5 s, so that the loss of an operator costs no
more than that. Where calls take seconds, because a node is starved of processors, no holder could
renew so short a Lease: operators would take it from each other, and each take-over reads the whole
metadata log again. A holder then states a longer Lease, which others respect, and a short one once
calls have been quick for a minute.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

FACTOR_MAX = 6
"""Maximum factor of all durations. A Lease lasts 30 s at most; after a holder dies on a slow node,
no operator leads for that long."""
CALLS_A_LEASE = 5
"""A Lease lasts at least as long as this many of the slowest calls."""
REMEMBERED_MS = 60_000
CALLS_REMEMBERED = 256


@dataclass(frozen=True, slots=True, kw_only=True)
class Timing:
    """Durations until a Lease is free, until its holder gives up, between attempts, and of one
    call."""

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
    """Pace of one Lease. `base` holds while calls are quick."""

    def __init__(self, base: Timing) -> None:
        self._base = base
        # (end, duration) of late calls; the slowest counts.
        self._late: deque[tuple[int, int]] = deque(maxlen=CALLS_REMEMBERED)

    def note(self, now_ms: int, took_ms: int, *, timed_out: bool = False) -> None:
        """Note the duration of a call. One that timed out counts twice, since it would have taken
        longer."""
        took_ms *= 2 if timed_out else 1
        if took_ms * CALLS_A_LEASE > self._base.lease_ms:
            self._late.append((now_ms, took_ms))

    def inherit(self, now_ms: int, lasts_ms: int) -> None:
        """Adopt a longer Lease that another holder stated, as if its slow calls were ours. A
        take-over keeps a new leader busy before its first call can show how slow calls are."""
        lasts_ms = min(lasts_ms, self._base.lease_ms * FACTOR_MAX)
        if lasts_ms > self._base.lease_ms:
            self._late.append((now_ms, lasts_ms // CALLS_A_LEASE))

    def starving(self, now_ms: int) -> None:
        """Note that this process gets little processor time. The next call may be slower than any
        before, so the longest Lease is stated at once."""
        self._late.append((now_ms, self._base.lease_ms * FACTOR_MAX // CALLS_A_LEASE))

    def timing(self, now_ms: int) -> Timing:
        while self._late and self._late[0][0] <= now_ms - REMEMBERED_MS:
            self._late.popleft()
        slowest_ms = max((took_ms for _, took_ms in self._late), default=0)
        factor = -(-slowest_ms * CALLS_A_LEASE // self._base.lease_ms)
        return self._base.times(min(max(factor, 1), FACTOR_MAX))
