"""Searches for the seeds and scenarios that fail with a mutant, each mutant in a process of its
own.

All are forks of one process that imported the whole simulator once: see `mutant`. A failing run
counts only if it passes without the mutation.
"""

from __future__ import annotations

import gc
import importlib
import multiprocessing
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from multiprocessing.pool import Pool
from pathlib import Path

from plimsoll_sim.cluster.run_options import Patience
from plimsoll_sim.mutants.mutant import Mutant, become
from plimsoll_sim.mutants.tree_edits import ROOT

SCENARIOS = ROOT / "tests" / "scenarios"
STEPS = 2_500
SHORT_STEPS = 600
"""Number of steps of a short run. Most mutants fail within this many steps with one of a few seeds.
The run without the mutation costs as much as the others, and is shared by all mutants that fail
with the same seed."""
CHECKED = Patience(us_max=100_000_000, steps_max=20_000)
"""Limits within which the run of a stored seed must converge, a tenth of the usual, since a run
that fails by its liveness uses all the time. They decide only about runs that are known never to
converge; other runs get the usual time. The same run must converge without the mutation in half of
that time, else its failure does not count."""
UNCOLLECTED_RUNS = 10
"""Number of runs of a mutant after which garbage is collected. Each run leaves five megabytes."""
WARM = ("plimsoll_sim.runs.run", "plimsoll_sim.scenario.runner")
"""Modules that are imported before a process is forked. Otherwise every child would import them,
which is half of a mutant's cost."""
LIVENESS = "liveness"
NONSENSE = ("AttributeError", "NameError", "TypeError", "UnboundLocalError")
"""Errors of code that cannot run. A mutant that raises one of them does not remove a guard."""


@dataclass(frozen=True, slots=True, order=True)
class Try:
    """A random run to try: its seed, and the number of steps with faults."""

    steps: int
    seed: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Kill:
    """A run that fails with a mutant, and the predicate that it violates."""

    seed: int
    steps: int
    predicate: str


@dataclass(slots=True, kw_only=True)
class Chase:
    """The search for one mutant: its runs, in the order in which they are tried, until `kills_max`
    fail. `scenarios`: for each scenario named for the mutant, the files with other output than
    expected; in a check only for the first one."""

    mutant: Mutant
    tries: Sequence[Try]
    kills_max: int
    # True if it is enough to know that everything that should notice it does.
    check: bool = False
    # Tries that are known to be noticed by their liveness.
    stuck: frozenset[Try] = frozenset()
    # Files that are known to come otherwise, by scenario: a check plays them first.
    known_files: dict[str, list[str]] = field(default_factory=dict)
    tried: int = 0
    kills: list[Kill] = field(default_factory=list)
    scenarios: dict[str, list[str]] = field(default_factory=dict)

    @property
    def survived(self) -> bool:
        """Return True if no random run failed with the mutant although one should."""
        return bool(self.tries) and not self.kills and not self.mutant.rare

    @property
    def noticed(self) -> bool:
        return not self.survived and bool(self.scenarios) and all(self.scenarios.values())


def hunt(
    chases: Sequence[Chase],
    jobs: int,
    say: Callable[[str], None],
    done: Callable[[Chase], None] = lambda _: None,
) -> None:
    """Run the searches, `jobs` at a time, and fill in their results. `done`: called with each as
    soon as it is over."""
    for name in WARM:
        importlib.import_module(name)
    gc.freeze()
    context = multiprocessing.get_context("fork")
    with context.Pool(jobs, maxtasksperchild=1) as mutated, context.Pool(1) as sound:
        for chase, found in zip(chases, mutated.imap(_search, chases, 1), strict=True):
            chase.tried, chase.scenarios = found.tried, found.scenarios
            chase.kills = _honest(sound, chase.mutant, found.kills, say)
            while len(chase.kills) < chase.kills_max and chase.tried < len(chase.tries):
                more = mutated.apply(_search, (replace(chase, kills=[], kills_max=1),))
                chase.tried = more.tried
                chase.kills += _honest(sound, chase.mutant, more.kills, say)
            say(_told(chase))
            done(chase)


def _honest(
    sound: Pool, mutant: Mutant, kills: Sequence[Kill], say: Callable[[str], None]
) -> list[Kill]:
    """Return those of the failing runs that pass without the mutation."""
    honest: list[Kill] = []
    for kill in kills:
        run = f"seed {kill.seed}, {kill.steps} steps, profile {mutant.profile}"
        other, in_time = sound.apply(_sound, (mutant.profile, Try(kill.steps, kill.seed)))
        if other is not None:
            say(f"{run}: fails without a mutation, too: {other.predicate}")
        elif kill.predicate == LIVENESS and not in_time:
            say(f"{run}: takes long to heal without a mutation, too")
        else:
            honest.append(kill)
    return honest


def _told(chase: Chase) -> str:
    seeds = ", ".join(f"seed {kill.seed} ({kill.predicate})" for kill in chase.kills)
    files = ", ".join(f"{name}: {' '.join(saw) or 'NO'}" for name, saw in chase.scenarios.items())
    return f"{chase.mutant.name}: {seeds or 'NONE'} of {chase.tried}; scenarios {files or 'NONE'}"


# --- in processes of their own ------------------------------------------------------------------


def _search(chase: Chase) -> Chase:
    """Search for failing runs. Exceptions that a run does not catch become errors that the process
    pool can send; other exceptions would make it hang."""
    try:
        return _chased(chase)
    except Exception as error:
        raise RuntimeError(f"{chase.mutant.name}, try {chase.tried}") from error


def _chased(chase: Chase) -> Chase:
    become(chase.mutant)
    # The process ends with a few runs: collecting their garbage takes a tenth of a run.
    gc.disable()
    if not chase.scenarios:
        _play(chase)
    for one in chase.tries[chase.tried :]:
        chase.tried += 1
        if chase.tried > UNCOLLECTED_RUNS:
            gc.enable()
        if (kill := _noticed(chase, one)) is not None:
            chase.kills.append(kill)
            if len(chase.kills) == chase.kills_max:
                break
    return chase


def _noticed(chase: Chase, one: Try) -> Kill | None:
    """Return the failure of a run, or None. A run that does not converge within the time of a check
    may only be slow: unless it is known never to converge, it gets the usual time."""
    profile = chase.mutant.profile
    kill, _ = _try(profile, one, CHECKED if chase.check else Patience())
    if not chase.check or kill is None or kill.predicate != LIVENESS or one in chase.stuck:
        return kill
    return _try(profile, one, Patience())[0]


@cache
def _sound(profile: str | None, one: Try) -> tuple[Kill | None, bool]:
    """Run without a mutation. The result is cached, since several mutants share one run."""
    return _try(profile, one, Patience())


def _try(profile: str | None, one: Try, patience: Patience) -> tuple[Kill | None, bool]:
    """Run once. Return the failure, if any, and True if the run converged in half the time of a
    check."""
    from plimsoll_broker.storage.disk import StorageError
    from plimsoll_sim.runs.run import run

    try:
        result = run(one.seed, one.steps, profile=profile, patience=patience)
    except StorageError:  # a checker cannot read a log
        return Kill(seed=one.seed, steps=one.steps, predicate="StorageError"), False
    if not result.sentence:
        us, steps = result.healing_s * 1e6, result.healing_steps
        return None, us <= CHECKED.us_max / 2 and steps <= CHECKED.steps_max / 2
    predicate = result.predicate or result.outcome
    assert predicate not in NONSENSE, f"no honest mutant: {result.sentence}"
    steps = one.steps if one.steps <= SHORT_STEPS else min(result.steps, one.steps)
    return Kill(seed=one.seed, steps=steps, predicate=predicate), False


def _play(chase: Chase) -> None:
    paths = sorted(SCENARIOS.glob("*.txt"))
    files = {path.name.partition("-")[0]: path for path in paths}
    for scenario in chase.mutant.noticed_by:
        known = chase.known_files.get(scenario, [])
        # A name without a letter stands for the whole family.
        family = [name for name in files if scenario in (name, name.rstrip("abcdefg"))]
        saw = chase.scenarios.setdefault(scenario, [])
        for name in sorted(family, key=lambda name: (name not in known, name)):
            if _comes_otherwise(files[name]):
                saw.append(name)
                if chase.check:
                    break


def _comes_otherwise(path: Path) -> bool:
    from plimsoll_broker.storage.disk import StorageError
    from plimsoll_sim.scenario.runner import difference, play

    try:
        played = play(path.read_text(), whole=False)
    except StorageError:  # what it was to show cannot be read
        return True
    return bool(played.sentence or difference(path, played.text))
