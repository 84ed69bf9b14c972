"""A watch over an event loop: how long each turn holds it, and what was running when it was long.

Entry points start one in the loop.  A timer says by how much it ran late, and how much CPU time the
loop's thread used meanwhile; a thread looks at what the loop runs when the timer does not come.  It
costs 50 timers and 25 looks at a clock a second.  What is counted is `loop_holds`' to say.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from types import FrameType

from prometheus_client.core import Metric

from plimsoll_process.loop_holds import HELD_S_MAX, LoopHolds, LoopTurn
from plimsoll_process.metric_table import MetricTable, loop_rows

logger = logging.getLogger("plimsoll.loop")

TICK_S = 0.02
LOOK_S = 0.025
FRAMES_MAX = 4
LOOKS_MAX = 200


class LoopWatch:
    """`holds` is read by the metrics.  `start` and `stop` are called in the loop to be watched."""

    def __init__(self) -> None:
        self.holds = LoopHolds()
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._look, name="loop watch", daemon=True)
        self._loop_thread = 0
        self._due_s = 0.0
        self._cpu_s = 0.0
        self._seen: list[str] = []  # what the thread saw, a look each; it only ever appends
        self._loop: asyncio.AbstractEventLoop | None = None
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._loop_thread = threading.get_ident()
        self._again(self._loop)
        self._thread.start()

    def stop(self) -> None:
        self._stopped.set()
        if self._timer is not None:
            self._timer.cancel()

    def _again(self, loop: asyncio.AbstractEventLoop) -> None:
        self._cpu_s = time.thread_time()
        self._due_s = time.monotonic() + TICK_S
        self._timer = loop.call_later(TICK_S, self._tick)

    def _tick(self) -> None:
        now_s = time.monotonic()
        late_s = max(now_s - self._due_s, 0.0)
        cpu_s = min(time.thread_time() - self._cpu_s, late_s)
        line = self.holds.note(LoopTurn(late_s, cpu_s), now_s, self._seen_most())
        if line is not None:
            logger.log(logging.WARNING if cpu_s > HELD_S_MAX else logging.INFO, "%s", line)
        assert self._loop is not None
        self._again(self._loop)

    def _seen_most(self) -> str:
        """Where the loop was seen most often since the last tick.  The thread may be in the middle
        of a look: what it still appends to the list that it had is let go."""
        if not self._seen:
            return "nothing was seen"
        seen, self._seen = self._seen, []
        return Counter(seen).most_common(1)[0][0]

    # --- the thread -----------------------------------------------------------------------------

    def _look(self) -> None:
        while not self._stopped.wait(max(self._due_s + LOOK_S - time.monotonic(), LOOK_S)):
            if time.monotonic() - self._due_s >= LOOK_S:
                self._look_once()

    def _look_once(self) -> None:
        frame = _frames().get(self._loop_thread)
        if frame is not None and len(self._seen) < LOOKS_MAX:
            self._seen.append(_what_runs(frame))


def _frames() -> dict[int, FrameType]:
    """Of all threads.  CPython before 3.11.9 may collect garbage while it makes this dictionary,
    and holds a lock of the whole runtime: a finalizer that lets another thread run, which wants
    that lock to begin or end a thread, stops the process (python/cpython gh-106883)."""
    collects = gc.isenabled()
    gc.disable()
    try:
        return sys._current_frames()
    finally:
        if collects:
            gc.enable()


def _what_runs(frame: FrameType) -> str:
    """Our functions on the stack, outermost first; without any, the innermost of all."""
    ours: list[str] = []
    walk: FrameType | None = frame
    while walk is not None:
        module = str(walk.f_globals.get("__name__", "?"))
        if module.startswith("plimsoll_") and "__main__" not in module:
            ours.append(f"{module}.{walk.f_code.co_name}:{walk.f_lineno}")
        walk = walk.f_back
    if not ours:
        return f"{frame.f_globals.get('__name__', '?')}.{frame.f_code.co_name}"
    return " > ".join(reversed(ours[:FRAMES_MAX]))


def loop_metrics(prefix: str, holds: LoopHolds) -> Iterator[Metric]:
    """`prefix`: of the names, with its underscore."""
    table = MetricTable(*loop_rows(prefix))
    held = table.histograms(f"{prefix}loop_held_seconds")
    buckets = [(str(bound), float(count)) for bound, count in holds.cumulative()]
    held.add_metric([], [*buckets, ("+Inf", float(holds.count))], holds.sum_s)
    yield held
    yield table.gauge(f"{prefix}loop_held_seconds_max", holds.recent_max_s)
    yield table.gauge(f"{prefix}loop_held_cpu_seconds_max", holds.worst_cpu_s)
    yield table.counter(f"{prefix}loop_holds", float(holds.too_long))
