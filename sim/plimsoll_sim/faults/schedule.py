"""Schedules faults: at the seed's times, in bursts, and right after a proposal or a commit.

`fault_table` states what each fault does. The run's options limit how many lasting faults are
active at the same time, so that the cluster can make progress in between.
"""

from __future__ import annotations

import random
from functools import partial

from plimsoll_sim.cluster.world import World
from plimsoll_sim.faults.fault_context import FaultContext
from plimsoll_sim.faults.fault_table import FAULTS

BURST_GAP_MS = 30
TEMPTED_MS = 20
TEMPTATION_FAULTS_MAX = 4
FIRST_TEMPTATION = 100_000
"""Number of the first fault that follows a proposal or a commit; the numbers of scheduled faults
are below it."""


class FaultSchedule:
    """The faults of one run, in the order in which they are drawn. Each has a number and random
    numbers of its own, so that leaving some out does not change the others. `only`: the numbers of
    the faults that happen (None: all)."""

    def __init__(self, world: World, only: frozenset[int] | None = None) -> None:
        self._world = world
        self._only = only
        # Each fault's random numbers are derived from this and the fault's number.
        self._root = world.rng.getrandbits(64)
        self._context = FaultContext(world)
        self._faults = [FAULTS[name] for name, _ in world.options.faults]
        self._weights = [weight for _, weight in world.options.faults]
        # The last number that was given to a fault which no proposal or commit led to.
        self._number = 0
        # The number of proposals and commits so far.
        self._temptations = 0
        # The numbers of the faults that found something to strike.
        self.struck: list[int] = []

    def begin(self) -> None:
        # Before this the LogCluster was not applied: an administrator would not restore that
        # state.
        self._context.etcd_backup = self._world.etcd.backup()
        self._next()
        self._world.tempting.append(self._tempted)

    def end(self) -> None:
        """Begin no more faults, and run no further steps of scripts in progress."""
        self._context.active = False

    def _next(self) -> None:
        self._number += 1
        rng, options = random.Random(self._root + self._number), self._world.options
        gap_ms = BURST_GAP_MS if rng.random() < options.burst else options.fault_gap_ms
        due = partial(self._come, self._number, rng)
        self._world.later(round(rng.expovariate(1 / gap_ms) * 1_000) + 1, due)

    def _come(self, number: int, rng: random.Random) -> None:
        if self._context.active:
            self._strike(number, rng)
            self._next()

    def _tempted(self) -> None:
        """Perhaps strike with a fault right after a proposal or a commit, when components that have
        not learned of it yet are most likely wrong."""
        options = self._world.options
        self._temptations += 1
        first = FIRST_TEMPTATION + TEMPTATION_FAULTS_MAX * self._temptations
        rng = random.Random(self._root + first)
        if rng.random() >= options.nervous:
            return
        count = 1
        while count < TEMPTATION_FAULTS_MAX and rng.random() < options.burst:
            count += 1
        for number in range(first, first + count):
            due = partial(self._strike, number, random.Random(self._root - number))
            self._world.later(round(rng.expovariate(1 / TEMPTED_MS) * 1_000) + 1, due)

    def _strike(self, number: int, rng: random.Random) -> None:
        world, context = self._world, self._context
        if not context.active or context.alone or context.lasting >= world.options.at_once:
            return
        context.rng = rng
        fault = rng.choices(self._faults, self._weights)[0]
        struck = self._only is None or number in self._only
        target = fault.strike(context, rng) if struck else None
        if target is not None:
            self.struck.append(number)
            world.counts[fault.name] += 1
            world.note(f"fault {number}: {fault.name}: {target}")
