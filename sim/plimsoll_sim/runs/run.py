"""Simulates one run (start the cluster, strike with faults, heal, wait until it converges) and
returns its result.
"""

from __future__ import annotations

import gc
import logging
import random
import sys
import traceback
import warnings
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field, replace

from plimsoll_sim.checkers.voluntary_hours import judging
from plimsoll_sim.cluster.run_options import Patience
from plimsoll_sim.cluster.world import UP_US_MAX, Crash, NotAlive, World
from plimsoll_sim.desired.users import TENANT_TOPICS
from plimsoll_sim.engine.determinism import faster, fewer_refused, instead, running, shorter_minutes
from plimsoll_sim.engine.loop import Livelock
from plimsoll_sim.environment.send_buffers import smaller_limits
from plimsoll_sim.faults.schedule import FaultSchedule
from plimsoll_sim.oracle.partition_ghost import Violation
from plimsoll_sim.runs.drawn_options import draw, losing_files

COMPACTED_SHARE = 0.1
"""Share of runs with compacted topics among the runs that could have them."""
ALL_PATIENCE = Patience()
EXIT_CODES = {"held": 0, "safety": 10, "liveness": 11, "crash": 12}


@dataclass(kw_only=True)
class Result:
    """Result of a run. `sentence`: the failure; empty if all predicates held."""

    seed: int
    outcome: str = "held"
    sentence: str = ""
    options: list[str] = field(default_factory=list)
    events: list[str] = field(default_factory=list)
    steps: int = 0
    virtual_s: float = 0.0
    # Time and steps since faults ended.
    healing_s: float = 0.0
    healing_steps: int = 0
    digest: int = 0
    faults: Counter[str] = field(default_factory=Counter)
    clients: dict[str, int] = field(default_factory=dict)
    unclean: int = 0
    predicate: str = ""
    struck: list[int] = field(default_factory=list)


class _Virtual(logging.Formatter):
    """Formats log lines with virtual time."""

    def __init__(self, world: World) -> None:
        super().__init__("%(name)s %(message)s")
        self._world = world

    def format(self, record: logging.LogRecord) -> str:
        process = ",".join(p.name for p in self._world.loop.touched) or "-"
        return f"{self._world.loop.now_us / 1e6:12.6f}  [{process}] {super().format(record)}"


class _IntoEvents(logging.Handler):
    def __init__(self, world: World) -> None:
        super().__init__()
        self._world = world
        self.setFormatter(_Virtual(world))

    def emit(self, record: logging.LogRecord) -> None:
        self._world.events.append(self.format(record))


def run(
    seed: int,
    steps: int,
    *,
    profile: str | None = None,
    logs: bool = False,
    only: frozenset[int] | None = None,
    patience: Patience = ALL_PATIENCE,
) -> Result:
    """Run one seed for `steps` steps, and return the result; failures are in it. `only`: the
    numbers of the faults that happen. `profile`: one of `PROFILES`, None: as the seed chooses.
    `patience`: the time to converge once faults have ended."""
    rng = random.Random(seed)
    options = draw(rng, profile)
    entropy = rng.getrandbits(64)
    compacted = options.compacted or rng.random() < COMPACTED_SHARE
    # Brokers of an older metadata version know no compaction.
    options = replace(options, compacted=compacted and options.metadata_version is None)
    if profile is None and options.compacted:
        options = losing_files(options)
    world = World(entropy, options)
    result = Result(seed=seed, options=options.lines())
    with alone(world, logs=logs):
        _live(world, steps, result, only, patience)
    return result


@contextmanager
def alone(world: World, *, logs: bool = False) -> Iterator[None]:
    """Use the interpreter for this world alone, within the context: its clock and randomness are
    installed, its log lines become events of the run, and garbage is not collected. At the end the
    world is closed, and collected unless the caller has switched garbage collection off. `logs`:
    True if log lines are wanted."""
    root = logging.getLogger()
    handler = _IntoEvents(world) if logs else None
    if handler is not None:
        logging.disable(logging.NOTSET)
        root.addHandler(handler)
        root.setLevel(logging.INFO)
    else:
        logging.disable(logging.CRITICAL)
    enabled = gc.isenabled()
    gc.disable()
    # Objects that exist already are not examined when the world's garbage is collected.
    gc.freeze()
    try:
        options = world.options
        with (
            instead(world.loop, world.entropy),
            faster(options.chores_faster),
            shorter_minutes(options.offsets_kept_ms),
            fewer_refused(options.refused_max),
            smaller_limits(options.send_buffers),
            judging(world.hours, world.stages),
            nullcontext() if world.secured is None else world.secured.instead(),
        ):
            yield
    finally:
        if handler is not None:
            root.removeHandler(handler)
        logging.disable(logging.NOTSET)
        _bury(world, collect=enabled)
        gc.unfreeze()
        if enabled:
            gc.enable()


def _live(
    world: World, steps: int, result: Result, only: frozenset[int] | None, patience: Patience
) -> None:
    faults = FaultSchedule(world, only)
    ended: tuple[int, int] | None = None  # when faults did, and after how many steps
    try:
        world.start_all()
        world.declare()
        if world.options.tenants:
            for name in TENANT_TOPICS:
                world.declare(name)
        world.until(lambda: _up(world), UP_US_MAX, "coming up")
        world.start_clients()
        faults.begin()
        end = world.loop.steps + steps
        while world.loop.steps < end:
            world.step()
        faults.end()
        ended = world.loop.now_us, world.loop.steps
        world.settle(patience)
    except Violation as error:
        result.outcome, result.sentence = "safety", str(error)
        result.predicate = error.predicate
    except NotAlive as error:
        result.outcome, result.sentence = "liveness", str(error)
    except Livelock as error:
        result.outcome, result.sentence = "liveness", f"Livelock: {error}"
    except (Crash, AssertionError) as error:
        seen = error.__cause__
        result.outcome = "safety" if isinstance(seen, Violation) else "crash"
        bug = type(seen or error).__name__
        result.predicate = seen.predicate if isinstance(seen, Violation) else bug
        result.sentence = "".join(traceback.format_exception(error))
    result.events, result.struck = world.events, faults.struck
    result.steps = world.loop.steps
    result.virtual_s = world.loop.now_us / 1e6
    if ended is not None:
        result.healing_s = (world.loop.now_us - ended[0]) / 1e6
        result.healing_steps = world.loop.steps - ended[1]
    result.digest = world.digest
    result.faults = world.counts
    result.unclean = len(world.ghost.unclean)
    witness = world.witness
    result.clients = {
        "sent": witness.sent_batches,
        "acked": witness.acked_batches,
        "damaged": witness.damaged_batches,
        "consumed": witness.consumed_batches,
        "commits": world.groups.commits,
        "offsets": world.groups.fetches,
        "expired": world.groups.expiries.expired,
        "syncs": world.groups.generations.syncs,
    }


def _up(world: World) -> bool:
    if world.secured is not None and not world.secured.closed:
        return False
    return bool(world.ghost.image.topics) and all(host.serving for host in world.brokers.values())


def _bury(world: World, *, collect: bool) -> None:
    """End the world and collect its coroutines, without warnings about those that never ran. Each
    runs its `finally` first, which may wait for something, so the world's event loop is installed
    meanwhile."""
    loop = world.loop
    hook, sys.unraisablehook = sys.unraisablehook, lambda _: None
    try:
        with running(loop), warnings.catch_warnings():
            # Warnings about a coroutine of a process that ended before its first step.
            warnings.simplefilter("ignore", RuntimeWarning)
            world.end()
            if collect:
                gc.collect()
            loop.close()  # what they left with it goes, too
    finally:
        sys.unraisablehook = hook
