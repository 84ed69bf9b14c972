"""Kafka's two measures of use: the rate over a window, and the bucket of tokens."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from plimsoll_core.quotas.rates import EXPIRED_MS, SAMPLES, TokenBucket, WindowedRate

USES = st.lists(
    st.tuples(st.integers(min_value=0, max_value=5_000), st.integers(1, 100_000)), max_size=60
)
"""Milliseconds since the one before, and how much."""
BOUNDS = st.floats(min_value=1, max_value=1e6)


class ExpectedRate:
    """Every use with its time, by Kafka's definition: samples of a second begin with a use."""

    def __init__(self) -> None:
        self.samples: list[list[int]] = []

    def record(self, amount: int, now_ms: int) -> None:
        if not self.samples or now_ms - self.samples[-1][0] >= 1000:
            self.samples.append([now_ms, now_ms, 0])
        self.samples[-1][1] = now_ms
        self.samples[-1][2] += amount

    def rate(self, now_ms: int) -> float:
        living = [one for one in self.samples if now_ms - one[1] < EXPIRED_MS]
        elapsed = now_ms - living[0][0] if living else 0
        window_ms = elapsed + max(SAMPLES - 1 - elapsed // 1000, 0) * 1000
        return sum(one[2] for one in living) * 1000 / max(window_ms, 1)


@settings(deadline=None)
@given(USES, BOUNDS)
def test_rate_is_throttled_only_above_its_bound(uses: list[tuple[int, int]], bound: float) -> None:
    rate, expected, now_ms = WindowedRate(), ExpectedRate(), 0
    for pause_ms, amount in uses:
        now_ms += pause_ms
        rate.record(amount, now_ms)
        expected.record(amount, now_ms)
        throttle_ms = rate.throttle_ms(bound, now_ms)
        if abs(expected.rate(now_ms) - bound) > 1e-6 * bound:
            assert (throttle_ms > 0) == (expected.rate(now_ms) > bound)


@settings(deadline=None)
@given(USES, BOUNDS)
def test_rate_reaches_its_bound_after_throttle_time(
    uses: list[tuple[int, int]], bound: float
) -> None:
    """X = (observed - bound) / bound * window: amount / (window + X) is the bound again."""
    rate, now_ms = WindowedRate(), 0
    for pause_ms, amount in uses:
        now_ms += pause_ms
        rate.record(amount, now_ms)
    throttle_ms = rate.throttle_ms(bound, now_ms)
    if throttle_ms > 1:
        later = (rate.window_ms(now_ms) + throttle_ms) / 1000
        assert abs(rate.amount(now_ms) / later - bound) <= bound * 0.001


@settings(deadline=None)
@given(USES)
def test_refunded_use_is_as_never_used(uses: list[tuple[int, int]]) -> None:
    rate, now_ms = WindowedRate(), 0
    for pause_ms, amount in uses:
        now_ms += pause_ms
        before = rate.amount(now_ms)
        rate.record(amount, now_ms)
        rate.record(-amount, now_ms)
        assert rate.amount(now_ms) == before
        rate.record(amount, now_ms)


@settings(deadline=None)
@given(USES)
def test_rate_keeps_bounded_samples_of_one_window(
    uses: list[tuple[int, int]],
) -> None:
    rate, now_ms = WindowedRate(), 0
    for pause_ms, amount in uses:
        now_ms += pause_ms
        rate.record(amount, now_ms)
        assert len(rate._samples) <= SAMPLES + 1
    assert rate.is_idle(now_ms + EXPIRED_MS)
    assert rate.amount(now_ms + EXPIRED_MS) == 0


@settings(deadline=None)
@given(BOUNDS, st.lists(st.tuples(st.integers(0, 3_000), st.integers(1, 1_000)), max_size=60))
def test_tokens_taken_only_when_available_keep_rate(
    bound: float, wishes: list[tuple[int, int]]
) -> None:
    bucket, now_ms, taken = TokenBucket(), 0, 0
    for pause_ms, amount in wishes:
        now_ms += pause_ms
        if not bucket.throttle_ms(bound, now_ms):
            bucket.record(amount, bound, now_ms)
            taken += amount
    most = bound * SAMPLES + bound * now_ms / 1000 + 1_000
    assert taken <= most * (1 + 1e-9)


@settings(deadline=None)
@given(BOUNDS, st.integers(1, 100_000))
def test_bucket_is_usable_again_after_its_throttle_time(bound: float, amount: int) -> None:
    bucket = TokenBucket()
    bucket.record(amount, bound, 0)
    throttle_ms = bucket.throttle_ms(bound, 0)
    assert bucket.throttle_ms(bound, throttle_ms + 1) == 0
    if throttle_ms > 2:
        assert bucket.throttle_ms(bound, throttle_ms - 2) > 0
