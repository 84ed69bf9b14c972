"""Shrinks a failing run: leaves out as many of its faults as it can.

This is delta debugging over the numbers of the faults. Each fault has random numbers of its own, so
leaving some out does not change the others, only the times between them.
"""

from __future__ import annotations

from rich.console import Console

from plimsoll_sim.runs.run import Result, run

TRIALS_MAX = 300


def shrink(seed: int, steps: int, profile: str | None = None) -> frozenset[int]:
    """Return the numbers of a smaller set of faults with which the run still fails in the same
    way."""
    console = Console(stderr=True)
    whole = run(seed, steps, profile=profile)
    if not whole.sentence:
        console.print("it does not fail: there is nothing to shrink")
        return frozenset(whole.struck)
    kept, size, trials = list(whole.struck), max(len(whole.struck) // 2, 1), 0
    while trials < TRIALS_MAX:
        smaller = None
        for first in range(0, len(kept), size):
            trial = [*kept[:first], *kept[first + size :]]
            trials += 1
            shorter = run(seed, steps, profile=profile, only=frozenset(trial))
            if _alike(shorter, whole):
                smaller = trial
                break
        if smaller is not None:
            kept = smaller
            console.print(f"{len(kept)} of {len(whole.struck)} faults")
        elif size == 1:
            break
        size = max(min(size, len(kept)) // 2, 1) if smaller is None else min(size, len(kept) or 1)
    return frozenset(kept)


def _alike(one: Result, other: Result) -> bool:
    return (one.outcome, one.predicate) == (other.outcome, other.predicate)
