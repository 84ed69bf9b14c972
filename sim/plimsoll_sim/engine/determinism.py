"""Where reality would come in: clocks and randomness are the simulation's while a world exists.

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

from plimsoll_broker.replication import periodic_chores
from plimsoll_sim.engine.loop import SimLoop
from plimsoll_sim.engine.process import PROCESS

EPOCH_NS = 1_800_000_000_000_000_000
"""The wall clock when a run begins."""


CHORES = ("RETENTION_MS", "RECOVERY_POINTS_MS", "HIGH_WATERMARKS_MS")


@contextmanager
def faster(by: int) -> Iterator[None]:
    """Brokers that are made meanwhile do their chores so many times as often: a run is short."""
    before = {name: getattr(periodic_chores, name) for name in CHORES}
    for name, period_ms in before.items():
        setattr(periodic_chores, name, period_ms // by)
    try:
        yield
    finally:
        for name, period_ms in before.items():
            setattr(periodic_chores, name, period_ms)


@contextmanager
def instead(loop: SimLoop, entropy: random.Random) -> Iterator[None]:
    """Virtual time and seeded randomness, and `loop` as the running loop."""

    def monotonic_ns() -> int:
        return 1_000_000_000 + loop.now_us * 1_000

    def time_ns() -> int:
        process = PROCESS.get(None)
        offset = 0 if process is None else process.wall_offset_ms
        return EPOCH_NS + loop.now_us * 1_000 + offset * 1_000_000

    replacements = [
        (time, "monotonic_ns", monotonic_ns),
        (time, "monotonic", lambda: monotonic_ns() / 1e9),
        (time, "time_ns", time_ns),
        (time, "time", lambda: time_ns() / 1e9),
        (time, "clock_gettime_ns", lambda _: monotonic_ns()),
        (os, "urandom", entropy.randbytes),
        (random, "_urandom", entropy.randbytes),
    ]
    before = [(module, name, getattr(module, name)) for module, name, _ in replacements]
    for module, name, replacement in replacements:
        setattr(module, name, replacement)
    running = asyncio._get_running_loop()
    asyncio._set_running_loop(loop)
    try:
        yield
    finally:
        asyncio._set_running_loop(running)
        for module, name, original in before:
            setattr(module, name, original)
