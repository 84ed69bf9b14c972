"""Ratios of benchmarks: the interval of what two sides differ by."""

from __future__ import annotations

import random

import pytest
from bench.intervals import pooled, ratios


def test_common_noise_does_not_widen_interval() -> None:
    before = [1.0, 5.0, 2.0, 9.0, 3.0]
    assert pooled(before, [1.1 * one for one in before]) == pytest.approx((1.1, 1.1, 1.1))


def test_interval_holds_ratio_and_narrows() -> None:
    noise = random.Random(1)

    def side(rounds: int, mean: float) -> list[float]:
        return [noise.gauss(mean, 0.1 * mean) for _ in range(rounds)]

    _, low, high = pooled(side(10, 1.0), side(10, 1.2))
    _, closer_low, closer_high = pooled(side(400, 1.0), side(400, 1.2))
    assert low < 1.2 < high
    assert closer_low < 1.2 < closer_high
    assert closer_high - closer_low < high - low


def test_ratios_cover_rounds_and_all_together() -> None:
    told = ratios([1.0, 2.0], [2.0, 2.0])
    assert told == "ratio 1.500 (1.000 - 2.000), of all rounds 1.333 (95 %: 1.000 - 2.000)"
