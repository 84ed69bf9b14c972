"""Looks for the seeds and scenarios that notice a mutant, each mutant in a process of its own.

All are forks of one process that imported the whole simulator once: see `mutant`.  A run counts
only when it holds without the mutation.
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
"""Most mutants are noticed within this many steps by one of few seeds. The run without the
mutation costs as much as the others, and is shared by all mutants that the same seed notices."""
CHECKED = Patience(us_max=100_000_000, steps_max=20_000)
"""The time in which a known seed's run must converge. It is a tenth of the usual, since a mutant
that is noticed by its liveness takes all of it. It decides only about runs that are known never to
converge; others get the usual time. The same run must heal without the mutation in half of it, or
nothing is noticed by its liveness."""
UNCOLLECTED_RUNS = 10
"""The runs of a mutant before garbage is collected; each leaves five megabytes."""
WARM = ("plimsoll_sim.runs.run", "plimsoll_sim.scenario.runner")
"""Modules that every child would import for itself otherwise: half of a mutant's cost."""
LIVENESS = "liveness"
NONSENSE = ("AttributeError", "NameError", "TypeError", "UnboundLocalError")
"""Errors of code that cannot run. A mutant that raises them removes no guard."""


@dataclass(frozen=True, slots=True, order=True)
class Try:
    """A seed, and how many steps of chaos it takes."""

    steps: int
    seed: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Kill:
    """A run that fails, and what it violates."""

    seed: int
    steps: int
    predicate: str


@dataclass(slots=True, kw_only=True)
class Chase:
    """One mutant's runs, in the order in which they are tried, until `kills_max` notice it.

    `scenarios`: for each that is named for it, the files that come otherwise than they are written;
    of a check the first alone.
    """

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
        """Return True if no random run noticed the mutant though one should."""
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
    """Fill in the chases; `done` is called with each as soon as it is over."""
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
    """Return the kills that fail with the mutation only."""
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
    """Search for kills. Exceptions that a run lets escape become errors that the pool can send;
    others would hang it."""
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
    """Return what the run violates. A run that does not heal in the time of a check may only be
    slow: unless it is known never to heal, it gets the usual time."""
    profile = chase.mutant.profile
    kill, _ = _try(profile, one, CHECKED if chase.check else Patience())
    if not chase.check or kill is None or kill.predicate != LIVENESS or one in chase.stuck:
        return kill
    return _try(profile, one, Patience())[0]


@cache
def _sound(profile: str | None, one: Try) -> tuple[Kill | None, bool]:
    """Run without a mutation; several mutants share one run."""
    return _try(profile, one, Patience())


def _try(profile: str | None, one: Try, patience: Patience) -> tuple[Kill | None, bool]:
    """Run once; return the violation, and if the run healed in half the time of a check."""
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
