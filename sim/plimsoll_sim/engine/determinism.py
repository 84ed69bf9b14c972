"""Replaces the sources of nondeterminism: while a world exists, clocks and randomness are
simulated.

`instead` replaces them in the standard library's modules, so that the code under test runs
unmodified.  A process that is not the simulation's must not run in the same interpreter meanwhile.
"""

from __future__ import annotations

import asyncio
import os
import random
import time
from collections.abc import Iterator
from contextlib import contextmanager
from weakref import WeakSet

from plimsoll_broker.background import SLICE_S
from plimsoll_broker.replication import periodic_chores
from plimsoll_broker.server import connection_state
from plimsoll_core.groups import settings
from plimsoll_sim.engine.loop import SimLoop
from plimsoll_sim.engine.process import PROCESS

EPOCH_NS = 1_800_000_000_000_000_000
"""The wall clock at the beginning of a run, in nanoseconds since 1970."""

SLICE_US = round(SLICE_S * 1_000_000) + 1


CHORES = ("RETENTION_MS", "RECOVERY_POINTS_MS", "HIGH_WATERMARKS_MS")


@contextmanager
def faster(by: int) -> Iterator[None]:
    """Make the periodic tasks of brokers that are created within the context run more often by this
    factor, since a run is short."""
    before = {name: getattr(periodic_chores, name) for name in CHORES}
    for name, period_ms in before.items():
        setattr(periodic_chores, name, period_ms // by)
    try:
        yield
    finally:
        for name, period_ms in before.items():
            setattr(periodic_chores, name, period_ms)


@contextmanager
def shorter_minutes(minute_ms: int | None) -> Iterator[None]:
    """Shorten a minute to `minute_ms` virtual milliseconds in the retention of offsets, for brokers
    that are created within the context, since a run is short. None: true minutes."""
    before = settings.MINUTE_MS
    settings.MINUTE_MS = before if minute_ms is None else minute_ms
    try:
        yield
    finally:
        settings.MINUTE_MS = before


@contextmanager
def fewer_refused(most: int | None) -> Iterator[None]:
    """Limit the number of refused partitions and producers that a connection remembers, within the
    context. None: the product's own limit."""
    before = connection_state.REMEMBERED_MAX
    connection_state.REMEMBERED_MAX = before if most is None else most
    try:
        yield
    finally:
        connection_state.REMEMBERED_MAX = before


@contextmanager
def instead(loop: SimLoop, entropy: random.Random) -> Iterator[None]:
    """Install virtual time and seeded randomness, and `loop` as the running event loop, within the
    context."""

    def monotonic_ns() -> int:
        return 1_000_000_000 + loop.now_us * 1_000

    def monotonic() -> float:
        """Return the virtual clock, by which code divides long work into slices."""
        if loop.slices_end and loop.slice_dice.random() < loop.slices_end:
            loop.pass_time(SLICE_US)
        return monotonic_ns() / 1e9

    def time_ns() -> int:
        process = PROCESS.get(None)
        offset = 0 if process is None else process.wall_offset_ms
        return EPOCH_NS + loop.now_us * 1_000 + offset * 1_000_000

    replacements = [
        (time, "monotonic_ns", monotonic_ns),
        (time, "thread_time_ns", monotonic_ns),
        (time, "monotonic", monotonic),
        (time, "time_ns", time_ns),
        (time, "time", lambda: time_ns() / 1e9),
        (time, "clock_gettime_ns", lambda _: monotonic_ns()),
        (os, "urandom", entropy.randbytes),
        (random, "_urandom", entropy.randbytes),
    ]
    before = [(module, name, getattr(module, name)) for module, name, _ in replacements]
    for module, name, replacement in replacements:
        setattr(module, name, replacement)
    try:
        with running(loop), _unregistered_tasks():
            yield
    finally:
        for module, name, original in before:
            setattr(module, name, original)


@contextmanager
def running(loop: SimLoop) -> Iterator[None]:
    """Install `loop` as the running event loop, within the context. Otherwise asyncio would make a
    loop of its own, which stays open."""
    before = asyncio._get_running_loop()
    asyncio._set_running_loop(loop)
    try:
        yield
    finally:
        asyncio._set_running_loop(before)


@contextmanager
def _unregistered_tasks() -> Iterator[None]:
    """Leave tasks that are created within the context out of `asyncio.all_tasks()`, which no code
    under test calls: registering every task by a weak reference takes a few percent of a run.
    `Process.tasks` holds the tasks of a process."""
    registry = vars(asyncio.tasks).get("_all_tasks")
    if not isinstance(registry, WeakSet):
        yield  # another interpreter, which registers them otherwise
        return
    vars(registry)["add"] = _ignored
    try:
        yield
    finally:
        del vars(registry)["add"]


def _ignored(_: object) -> None:
    """Do nothing: the replacement of `WeakSet.add`."""
