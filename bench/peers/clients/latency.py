"""Quantiles of latencies."""

from __future__ import annotations

from collections.abc import Sequence

QUANTILES = {"p50_ms": 0.5, "p99_ms": 0.99, "p999_ms": 0.999}


def latencies(took_ms: Sequence[float]) -> dict[str, float]:
    """Return quantiles of latencies in milliseconds; none of none."""
    ordered = sorted(took_ms)
    if not ordered:
        return {}
    return {
        name: ordered[min(len(ordered) - 1, int(len(ordered) * quantile))]
        for name, quantile in QUANTILES.items()
    }
