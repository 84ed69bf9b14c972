"""A watch over an event loop: how long each turn holds it, and what was running when it was long.

Entry points start one in the loop.  A timer says by how much it ran late, how much CPU time the
loop's thread used meanwhile, and how long it waited for a processor; a thread looks at what the
loop runs when the timer does not come, and sleeps else.  It costs 50 timers a second, and an idle
loop half as many.  What is counted is `loop_holds`' to say.
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
from plimsoll_process.processor_waits import ThreadWaits
from plimsoll_process.put_off_alarm import Alarm

logger = logging.getLogger("plimsoll.loop_watch")

TICK_S = 0.02
IDLE_TICK_S = 0.04
IDLE_CPU_S = 0.002
"""A loop is not held up if its thread has computed no longer since the last tick: the next
comes later."""
LOOK_S = 0.025
FRAMES_MAX = 4
LOOKS_MAX = 200


class LoopWatch:
    """`holds` is read by the metrics.  `start` and `stop` are called in the loop to be watched."""

    def __init__(self) -> None:
        self.holds = LoopHolds()
        self._stopped = False
        # From `start` on.
        self._alarm: Alarm | None = None
        self._waits: ThreadWaits | None = None
        self._thread = threading.Thread(target=self._look, name="loop watch", daemon=True)
        self._loop_thread = 0
        self._due_s = 0.0
        self._after_s = TICK_S  # from the last tick until the next is due
        self._cpu_s = self._waited_s = 0.0
        self._seen: list[str] = []  # what the thread saw, a look each; it only ever appends
        self._loop: asyncio.AbstractEventLoop | None = None
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._loop_thread = threading.get_ident()
        self._alarm = Alarm(LOOK_S)
        self._waits = ThreadWaits(threading.get_native_id())
        self._again(self._loop, TICK_S, time.monotonic(), time.thread_time())
        self._thread.start()

    def stop(self) -> None:
        self._stopped = True
        if self._alarm is not None:
            self._alarm.ring()
        if self._timer is not None:
            self._timer.cancel()
        if self._waits is not None:
            self._waits.close()

    def _again(
        self, loop: asyncio.AbstractEventLoop, after_s: float, now_s: float, cpu_s: float
    ) -> None:
        if self._alarm is not None and not self._stopped:
            self._alarm.put_off(after_s + LOOK_S)
        self._cpu_s = cpu_s
        self._waited_s = 0.0 if self._waits is None else self._waits.seconds()
        self._after_s = after_s
        self._due_s = now_s + after_s
        self._timer = loop.call_later(after_s, self._tick)

    def _tick(self) -> None:
        now_s = time.monotonic()
        read_s = time.thread_time()
        late_s = max(now_s - self._due_s, 0.0)
        used_s = read_s - self._cpu_s
        if used_s > max(late_s, TICK_S):
            # Work that began right after the last tick counts its whole delay.
            late_s = min(used_s, late_s + self._after_s - TICK_S)
        cpu_s = min(used_s, late_s)
        waited_s = 0.0
        if late_s > HELD_S_MAX and self._waits is not None:
            waited_s = min(self._waits.seconds() - self._waited_s, late_s - cpu_s)
        turn = LoopTurn(late_s, cpu_s, waited_s)
        line = self.holds.note(turn, now_s, self._seen_most())
        if line is not None:
            logger.log(logging.WARNING if cpu_s > HELD_S_MAX else logging.INFO, "%s", line)
        assert self._loop is not None
        after_s = TICK_S if used_s > IDLE_CPU_S else IDLE_TICK_S
        self._again(self._loop, after_s, now_s, read_s)

    def _seen_most(self) -> str:
        """Return the place where the loop was seen most often since the last tick. The watching
        thread may still append to the list that is replaced here; that observation is lost."""
        if not self._seen:
            return "nothing was seen"
        seen, self._seen = self._seen, []
        return Counter(seen).most_common(1)[0][0]

    # --- the thread -----------------------------------------------------------------------------

    def _look(self) -> None:
        assert self._alarm is not None, "started"
        while not self._stopped:
            self._alarm.wait()
            if time.monotonic() - self._due_s >= LOOK_S:
                self._look_once()
        self._alarm.close()

    def _look_once(self) -> None:
        frame = _frames().get(self._loop_thread)
        if frame is not None and len(self._seen) < LOOKS_MAX:
            self._seen.append(_what_runs(frame))


def where_runs(thread: int) -> str:
    """Our functions on the stack of a thread, by its Python identity, outermost first."""
    frame = _frames().get(thread)
    return "nowhere" if frame is None else _what_runs(frame)


def _frames() -> dict[int, FrameType]:
    """Return the frames of all threads. CPython before 3.11.9 may collect garbage while it makes
    this dictionary, and holds a lock of the whole runtime: a finalizer that lets another thread
    run, which wants that lock to begin or end a thread, stops the process (python/cpython
    gh-106883)."""
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
    yield table.counter(f"{prefix}loop_waited_seconds", holds.waited_s)
