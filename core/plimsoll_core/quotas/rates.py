"""The rate at which a client uses a quota, and the throttle time above the limit: Kafka's two
measures.

Pure; times are of one clock that never goes back, in milliseconds. Source: `Rate`, `SampledStat`,
`TokenBucket` and `QuotaUtils` of Kafka, with its defaults `quota.window.num` and
`quota.window.size.seconds`.
"""

from __future__ import annotations

from collections import deque

SAMPLES = 11
SAMPLE_MS = 1000
_LENT_S = (SAMPLES - 1) * SAMPLE_MS // 1000
"""The length in seconds of the shortest window. A sum of no more than the bound times this is never
above the bound."""
EXPIRED_MS = SAMPLES * SAMPLE_MS
"""The time in ms after its last use at which a sample expires."""
_ALLOWED_S = 7
"""The length in seconds of the usage that allowances may hand out. A client without an allowance
that uses the rest ends all allowances, at most once for each three seconds' worth."""
_SHARES = 16
"""The divisor of the amount left below the bound: one allowance gets at most 1/_SHARES of it, since
there are other clients."""
ALLOWANCES_MAX = 1_000
"""The most concurrent allowances of one rate."""


class Allowance:
    """The amount of a rate that one connection may use without another check: `left`, below 0 if
    more was used. It counts as used when it is given. `WindowedRate.settle` takes the unused rest
    back, always before a client is throttled. `last_ns`: the time of the last use, in ns."""

    __slots__ = ("last_ns", "left")

    def __init__(self, left: int = 0) -> None:
        # Below 0: more was used than was given, and is counted when it is settled.
        self.left = left
        # Time of the last use.
        self.last_ns = 0


class WindowedRate:
    """Sums the amounts used in the last seconds, in samples of one second. The caller chooses the
    unit: bytes or nanoseconds."""

    __slots__ = ("__weakref__", "_allowances", "_newest", "_samples", "_total")

    def __init__(self) -> None:
        # Each with its start, its last use, and its amount; the oldest first.
        self._samples: deque[list[int]] = deque()
        # The newest sample, also once it has expired.
        self._newest = [-SAMPLE_MS, 0, 0]
        self._total = 0
        # Given in the newest sample; they are settled before the next one begins.
        self._allowances: dict[Allowance, None] = {}

    @property
    def sample_ends_ms(self) -> int:
        """Return the time at which the newest sample ends. Allowances given now are valid until
        then."""
        return self._newest[0] + SAMPLE_MS

    def allow(self, allowance: Allowance, least: int, bound: float, now_ms: int) -> bool:
        """Add to the allowance a part of the amount that is left below `bound` per second, count it
        as used, and return True. Add nothing and return False if that is less than `least`, the
        newest sample has ended, or too many connections have allowances."""
        amount = (int(bound * _ALLOWED_S) - self._total) // _SHARES
        if amount < least or now_ms >= self.sample_ends_ms:
            return False
        if len(self._allowances) >= ALLOWANCES_MAX and allowance not in self._allowances:
            return False
        self._allowances[allowance] = None
        allowance.left += amount
        self._newest[2] += amount
        self._total += amount
        return True

    def settle(self) -> None:
        """End all allowances, and subtract their unused amounts from the sum."""
        newest = self._newest
        for allowance in self._allowances:
            newest[1] = max(newest[1], allowance.last_ns // 1_000_000)
            newest[2] -= allowance.left
            self._total -= allowance.left
            allowance.left = 0
        self._allowances.clear()

    def record(self, amount: int, now_ms: int) -> None:
        """Add an amount to the sum. A negative amount takes back an amount that was recorded and
        not used."""
        samples = self._samples
        if not samples or now_ms - samples[-1][0] >= SAMPLE_MS:
            self._expire(now_ms)
            samples.append([now_ms, now_ms, 0])
        newest = self._newest = samples[-1]
        newest[1] = now_ms
        newest[2] += amount
        self._total += amount

    def use(self, amount: int, bound: float, now_ms: int) -> int:
        """Record an amount and return the throttle time in milliseconds, 0 if the rate is within
        `bound` per second. Called for each request without an allowance."""
        newest = self._newest
        if now_ms - newest[0] < SAMPLE_MS:
            # As `record` does, without a call.
            newest[1] = now_ms
            newest[2] += amount
            self._total = total = self._total + amount
        else:
            self.record(amount, now_ms)
            total = self._total
        # Expired samples that still count make the sum larger, never smaller.
        return self.throttle_ms(bound, now_ms) if total > bound * _LENT_S else 0

    def window_ms(self, now_ms: int) -> int:
        """Return the length of the window of the sum, in milliseconds. It is at least ten samples,
        so that a single request does not count as a high rate."""
        self._expire(now_ms)
        elapsed_ms = now_ms - self._samples[0][0] if self._samples else 0
        return max(elapsed_ms + max(SAMPLES - 1 - elapsed_ms // SAMPLE_MS, 0) * SAMPLE_MS, 1)

    def amount(self, now_ms: int) -> int:
        """Return the sum of all samples that have not expired."""
        self._expire(now_ms)
        return self._total

    def throttle_ms(self, bound: float, now_ms: int) -> int:
        """Return the milliseconds that the client must wait until the rate is `bound` per second; 0
        if the rate is not above that."""
        amount, window_ms = self.amount(now_ms), self.window_ms(now_ms)
        if amount * 1000 <= bound * window_ms:
            return 0
        # X = (observed - bound) / bound * window, observed = amount / window
        return max(round(amount * 1000 / bound - window_ms), 1)

    def is_idle(self, now_ms: int) -> bool:
        """Return True if all samples have expired, so that this object may be replaced by a new
        one."""
        self._expire(now_ms)
        return not self._samples

    def _expire(self, now_ms: int) -> None:
        if self._allowances:
            self.settle()
        samples = self._samples
        while samples and now_ms - samples[0][1] >= EXPIRED_MS:
            self._total -= samples.popleft()[2]


class TokenBucket:
    """Receives `bound` tokens per second, up to eleven seconds' worth. A caller may take more
    tokens than there are; then clients are throttled until the deficit is repaid."""

    __slots__ = ("__weakref__", "_tokens", "_updated_ms")

    def __init__(self) -> None:
        # None: full.
        self._tokens: float | None = None
        self._updated_ms = 0

    def record(self, amount: float, bound: float, now_ms: int) -> None:
        self._tokens = self._refilled(bound, now_ms) - amount
        self._updated_ms = now_ms

    def throttle_ms(self, bound: float, now_ms: int) -> int:
        """Return the milliseconds until the deficit of tokens is repaid; 0 if there is none."""
        tokens = self._refilled(bound, now_ms)
        return 0 if tokens >= 0 else max(round(-tokens / bound * 1000), 1)

    def is_idle(self, bound: float, now_ms: int) -> bool:
        """Return True if the bucket is full."""
        return self._refilled(bound, now_ms) >= bound * SAMPLES

    def _refilled(self, bound: float, now_ms: int) -> float:
        burst = bound * SAMPLES * SAMPLE_MS / 1000
        if self._tokens is None:
            return burst
        return min(burst, self._tokens + bound * (now_ms - self._updated_ms) / 1000)
