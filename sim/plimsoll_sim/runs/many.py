"""Runs many seeds in several processes, with a progress bar and a summary."""

from __future__ import annotations

import gc
import multiprocessing
import signal
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import partial
from typing import NamedTuple

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from plimsoll_sim.runs.run import EXIT_CODES, Result, run

SHOWN_MAX = 10
RUNS_OF_A_WORKER = 20
"""Number of runs after which a worker process is replaced. A run leaves about 6 MB behind."""


class RunKind(NamedTuple):
    """Number of steps of each run, and the profile of all runs; None: as their seeds choose."""

    steps: int
    profile: str | None = None


def run_for(seconds: float, kind: RunKind, jobs: int) -> int:
    """Run new seeds, from one that the clock chooses, for `seconds`. Return the exit code."""
    first = time.time_ns() // 1_000_000
    print(f"seeds from {first} on")
    return run_many(range(first, first + 10_000_000), kind, jobs, seconds_max=seconds)


def run_many(
    seeds: Sequence[int], kind: RunKind, jobs: int, *, seconds_max: float | None = None
) -> int:
    """Run every seed, or as many as `seconds_max` allows. Return the exit code of the worst
    outcome. A failure is printed when it happens, and SIGINT ends with a summary of the runs so
    far, so that hours of runs are not lost."""
    began = time.monotonic()
    done = 0
    outcomes: Counter[str] = Counter()
    faults: Counter[str] = Counter()
    failed = 0
    total = unclean = 0
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns) as progress:
        task = progress.add_task("seeds", total=len(seeds))
        try:
            for result in _results(seeds, kind, jobs):
                outcomes[result.outcome] += 1
                faults.update(result.faults)
                total += result.steps
                unclean += result.unclean
                done += 1
                if result.sentence:
                    failed += 1
                    if failed <= SHOWN_MAX:
                        progress.console.print(_line(result), markup=False, soft_wrap=True)
                progress.update(task, advance=1, description=f"{failed} failed")
                if seconds_max is not None and time.monotonic() - began > seconds_max:
                    break
        except KeyboardInterrupt:
            print("interrupted: what follows is about the seeds that were done", file=sys.stderr)
    seconds = time.monotonic() - began
    print(f"{done} seeds, {total} steps in {seconds:.0f} s: {total / seconds:.0f} steps/s")
    print(f"outcomes: {dict(outcomes)}; unclean elections: {unclean}")
    print("faults: " + ", ".join(f"{name} {count}" for name, count in faults.most_common()))
    return max((EXIT_CODES[outcome] for outcome in outcomes), default=0)


def _line(result: Result) -> str:
    sentence = result.sentence.strip().splitlines()[-1]
    return f"seed {result.seed}: {result.outcome}: {sentence}"


def _results(seeds: Sequence[int], kind: RunKind, jobs: int) -> Iterator[Result]:
    """Run the seeds in worker processes and yield the results. Workers are used even for one job,
    so that memory left by runs is freed with them."""
    work = partial(_small, kind=kind)
    gc.freeze()  # so that no worker copies it
    context = multiprocessing.get_context("fork")
    with context.Pool(max(jobs, 1), _begin_a_worker, maxtasksperchild=RUNS_OF_A_WORKER) as pool:
        yield from pool.imap_unordered(work, seeds)


def _begin_a_worker() -> None:
    """Ignore SIGINT, which the parent handles, and switch off garbage collection: a worker's memory
    is freed when it ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    gc.disable()


def _small(seed: int, kind: RunKind) -> Result:
    result = run(seed, kind.steps, profile=kind.profile)
    result.events = result.events[-40:] if result.sentence else []
    return result
