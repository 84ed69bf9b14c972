"""When faults come: at the seed's times, in bursts, and right after a proposal or a commit.

`faults.Chaos` says what they do.  As many as the run's options allow last at the same time, so that
in between the cluster gets on with its work.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import partial

from plimsoll_sim.world import World

BURST_GAP_MS = 30
TEMPTED_MS = 20
TEMPTATION_FAULTS_MAX = 4
FIRST_TEMPTATION = 100_000
"""Faults that follow a proposal or a commit are numbered from here on."""


class FaultSchedule:
    """A fault called "cut brokers" is the method `_cut_brokers`.

    Each is numbered and has random numbers of its own, so that a run without some of them has the
    others as they were; `only` names those that happen (None: all).
    """

    def __init__(self, world: World, only: frozenset[int] | None) -> None:
        self.world = world
        self.struck: list[int] = []
        self._only = only
        self._root = world.rng.getrandbits(64)
        self._number = 0
        self._rng = world.rng
        names = [name for name, _ in world.options.faults]
        self._weights = [weight for _, weight in world.options.faults]
        self._faults = [(name, getattr(self, "_" + name.replace(" ", "_"))) for name in names]
        self._on = True
        self._lasting = 0
        self._temptations = 0

    def begin(self) -> None:
        self._next()
        self.world.tempting.append(self._tempted)

    def end(self) -> None:
        self._on = False

    def _next(self) -> None:
        self._number += 1
        rng, options = random.Random(self._root + self._number), self.world.options
        gap_ms = BURST_GAP_MS if rng.random() < options.burst else options.fault_gap_ms
        due = partial(self._come, self._number, rng)
        self.world.later(round(rng.expovariate(1 / gap_ms) * 1_000) + 1, due)

    def _come(self, number: int, rng: random.Random) -> None:
        if self._on:
            self._strike(number, rng)
            self._next()

    def _tempted(self) -> None:
        """Something was proposed or committed: who has not heard of it yet is easily wrong now."""
        options = self.world.options
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
            self.world.later(round(rng.expovariate(1 / TEMPTED_MS) * 1_000) + 1, due)

    def _strike(self, number: int, rng: random.Random) -> None:
        if not self._on or self._lasting >= self.world.options.at_once:
            return
        self._rng = rng
        name, act = rng.choices(self._faults, self._weights)[0]
        told = act() if self._only is None or number in self._only else None
        if told is not None:
            self.struck.append(number)
            self.world.counts[name] += 1
            self.world.note(f"fault {number}: {name}: {told}")

    def _after(self, action: Callable[[], None]) -> None:
        """At some time later, unless everything was healed meanwhile."""
        ms = self._rng.expovariate(1 / self.world.options.heal_ms) + 1
        self._lasting += 1

        def act() -> None:
            self._lasting -= 1
            if self._on:
                action()

        self.world.later(round(ms * 1_000), act)
