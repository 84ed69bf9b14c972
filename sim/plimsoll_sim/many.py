"""Many seeds, over several processes, with a progress bar and a summary."""

from __future__ import annotations

import gc
import multiprocessing
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import partial

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from plimsoll_sim.run import EXIT_CODES, Result, run

SHOWN_MAX = 10


def run_for(seconds: float, steps: int, jobs: int) -> int:
    """New seeds, from one that the clock chooses, until the time is up."""
    first = time.time_ns() // 1_000_000
    print(f"seeds from {first} on")
    return run_many(range(first, first + 10_000_000), steps, jobs, seconds_max=seconds)


def run_many(
    seeds: Sequence[int], steps: int, jobs: int, *, seconds_max: float | None = None
) -> int:
    """Runs every seed, or as many as there is time for; the exit code is the worst outcome's."""
    began = time.monotonic()
    done = 0
    outcomes: Counter[str] = Counter()
    faults: Counter[str] = Counter()
    bad: list[Result] = []
    total = unclean = 0
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns) as progress:
        task = progress.add_task("seeds", total=len(seeds))
        for result in _results(seeds, steps, jobs):
            outcomes[result.outcome] += 1
            faults.update(result.faults)
            total += result.steps
            unclean += result.unclean
            if result.sentence:
                bad.append(result)
            done += 1
            progress.update(task, advance=1, description=f"{len(bad)} failed")
            if seconds_max is not None and time.monotonic() - began > seconds_max:
                break
    seconds = time.monotonic() - began
    for result in bad[:SHOWN_MAX]:
        print(f"seed {result.seed}: {result.outcome}: {result.sentence.strip().splitlines()[-1]}")
    print(f"{done} seeds, {total} steps in {seconds:.0f} s: {total / seconds:.0f} steps/s")
    print(f"outcomes: {dict(outcomes)}; unclean elections: {unclean}")
    print("faults: " + ", ".join(f"{name} {count}" for name, count in faults.most_common()))
    return max((EXIT_CODES[outcome] for outcome in outcomes), default=0)


def _results(seeds: Sequence[int], steps: int, jobs: int) -> Iterator[Result]:
    work = partial(_small, steps=steps)
    gc.freeze()
    if jobs <= 1:
        yield from map(work, seeds)
        return
    context = multiprocessing.get_context("fork")
    with context.Pool(jobs, maxtasksperchild=50) as pool:
        yield from pool.imap_unordered(work, seeds)


def _small(seed: int, steps: int) -> Result:
    result = run(seed, steps)
    result.events = result.events[-40:] if result.sentence else []
    return result
