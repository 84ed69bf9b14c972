"""Measures for how long each turn of an event loop runs, and finds the code that ran in long turns.

Entry points start one in the loop. A timer measures how late it ran, how much CPU time the loop's
thread used meanwhile, and how long the thread waited for a processor. If the timer is late, another
thread samples the code that the loop runs; otherwise that thread sleeps. The cost is 50 timers a
second, half as many in an idle loop.

`Alarm` wakes the sampling thread unless the loop postpones it in time. Until then the thread sleeps
in the kernel and does not ask for the interpreter's lock: a thread that looked at a clock 40 times
a second cost a busy broker as many thread switches, and an idle one a third of its processor time.
Without timerfd (Linux has it) the alarm rings at every interval.

`LoopHolds` counts the durations of turns, and decides which long turns are logged. A turn is the
code that runs between two points at which a timer could run: meanwhile no other connection is
served and no heartbeat is sent. Pure.

`ThreadWaits` reads for how long a thread has waited for a processor; 0 if the kernel does not count
that. Time for which a container's CPU limit stopped the process is not included (`hang_watch`
counts both).
"""

from __future__ import annotations

import asyncio
import ctypes
import gc
import logging
import os
import sys
import threading
import time
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple

from prometheus_client.core import Metric

from plimsoll_process.log_lines import LineLimit
from plimsoll_process.metric_table import MetricTable, loop_rows

logger = logging.getLogger("plimsoll.loop_watch")
_LIBRARY = ctypes.PyDLL(None)  # both calls return at once, so they keep the interpreter's lock
_CREATE = getattr(_LIBRARY, "timerfd_create", None)
_SET_TIME: Any = getattr(_LIBRARY, "timerfd_settime", None)
_CLOCK_MONOTONIC = 1
_CLOSE_ON_EXEC = 0o2000000
_NS = 1_000_000_000
_COUNT_BYTES = 8


class _Times(ctypes.Structure):
    """The kernel's `struct itimerspec`: the interval of repetition, and the time until the first
    expiry."""

    _fields_ = tuple(
        (name, ctypes.c_long) for name in ("every_s", "every_ns", "first_s", "first_ns")
    )


class Alarm:
    """A kernel timer that wakes the sampling thread if the loop does not postpone it in time, and
    again every `every_s` seconds until the loop postpones it."""

    def __init__(self, every_s: float) -> None:
        self._every_s = every_s
        self._times = _Times(0, int(every_s * _NS), 0, 0)
        self._reference = ctypes.byref(self._times)
        # None: there is no timer.
        self._fd: int | None = None
        if _CREATE is not None and (fd := _CREATE(_CLOCK_MONOTONIC, _CLOSE_ON_EXEC)) >= 0:
            self._fd = fd

    def put_off(self, first_s: float) -> None:
        """Postpone the alarm to `first_s` seconds from now, less than one. Called by the loop."""
        if self._fd is not None:
            self._times.first_ns = int(first_s * _NS)
            _SET_TIME(self._fd, 0, self._reference, None)

    def ring(self) -> None:
        """Wake the thread at once."""
        self.put_off(1 / _NS)

    def wait(self) -> None:
        """Block the thread until the alarm rings."""
        if self._fd is None:
            time.sleep(self._every_s)
        else:
            os.read(self._fd, _COUNT_BYTES)

    def close(self) -> None:
        """Close the timer. Called by the watching thread after the last `put_off`."""
        fd, self._fd = self._fd, None
        if fd is not None:
            os.close(fd)


HELD_S_MAX = 0.05
"""Seconds for which a turn may hold the loop. No request and no background task should take
longer."""
BOUNDS_S = (0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
RECENT_S = 60.0


class LoopTurn(NamedTuple):
    """One turn of the event loop, in seconds. `late_s`: by how much a timer ran late. `cpu_s`: CPU
    time that the loop's thread used in that time. `waited_s`: how long the thread waited for a
    processor, which is caused by the machine and not by the code in the loop. The rest is a wait
    for the interpreter's lock, for a disk, or for the end of a stop by the CPU limit."""

    late_s: float
    cpu_s: float
    waited_s: float = 0.0


class LoopHolds:
    """Counts for how long turns held the event loop, for metrics and the log. `counts`: turns by
    their length, up to each of `BOUNDS_S` and above; `too_long`: turns with more than `HELD_S_MAX`
    seconds of CPU time; `worst_cpu_s`: the most CPU time of a turn. All figures but `recent_max_s`
    only grow."""

    def __init__(self) -> None:
        self.counts = [0] * (len(BOUNDS_S) + 1)
        self.sum_s = 0.0
        self.too_long = 0
        self.worst_cpu_s = 0.0
        self.waited_s = 0.0
        """Seconds in which the loop's thread waited for a processor. `hang_watch` adds to it."""
        self._maxima = (0.0, 0.0)
        self._window_began_s = 0.0
        self._limit = LineLimit()

    @property
    def count(self) -> int:
        return sum(self.counts)

    @property
    def recent_max_s(self) -> float:
        """Return the longest turn of the last one to two minutes, in seconds."""
        return max(self._maxima)

    def cumulative(self) -> list[tuple[float, int]]:
        """Return Prometheus' cumulative buckets without `+Inf`: each upper bound in seconds, with
        the number of turns up to it."""
        total, found = 0, []
        for bound, count in zip(BOUNDS_S, self.counts[:-1], strict=True):
            total += count
            found.append((bound, total))
        return found

    def note(self, turn: LoopTurn, now_s: float, where: str) -> str | None:
        """Count a turn. Return the end of a log line if the turn was longer than `HELD_S_MAX` and
        no line was written within the last second, otherwise None. `where`: the code that was seen
        running."""
        self.counts[bisect_left(BOUNDS_S, turn.late_s)] += 1
        self.sum_s += turn.late_s
        self.worst_cpu_s = max(self.worst_cpu_s, turn.cpu_s)
        if now_s - self._window_began_s >= RECENT_S:
            self._window_began_s = now_s
            self._maxima = (0.0, self._maxima[0])
        self._maxima = (max(self._maxima[0], turn.late_s), self._maxima[1])
        if turn.late_s <= HELD_S_MAX:
            return None
        if turn.cpu_s > HELD_S_MAX:
            self.too_long += 1
        return self._line(turn, now_s, where)

    def _line(self, turn: LoopTurn, now_s: float, where: str) -> str | None:
        more = self._limit.due(now_s)
        if more is None:
            return None
        late_ms, cpu_ms, waited_ms = (round(seconds * 1000) for seconds in turn)
        without = f", {waited_ms} ms waiting for a processor" if waited_ms else ""
        return f"{late_ms} ms ({cpu_ms} ms of CPU time{without}); the code that ran: {where}{more}"


_THREADS = Path("/proc/self/task")
_BYTES_MAX = 100


class ThreadWaits:
    """Reads how long one thread of this process has waited for a processor. `thread_id`: the native
    id."""

    def __init__(self, thread_id: int, threads: Path = _THREADS) -> None:
        self._file = -1
        try:
            self._file = os.open(threads / str(thread_id) / "schedstat", os.O_RDONLY)
        except FileNotFoundError:
            return

    def seconds(self) -> float:
        """Return the seconds for which the thread has waited for a processor since it began; 0.0 if
        the kernel does not count them."""
        if self._file < 0:
            return 0.0
        _, waited_ns, *_ = os.pread(self._file, _BYTES_MAX, 0).split()
        return int(waited_ns) / 1e9

    def close(self) -> None:
        if self._file >= 0:
            os.close(self._file)
            self._file = -1


TICK_S = 0.02
IDLE_TICK_S = 0.04
IDLE_CPU_S = 0.002
"""If the loop's thread has used no more CPU seconds than this since the last timer, the loop is
idle, and the next timer is set later."""
LOOK_S = 0.025
FRAMES_MAX = 4
LOOKS_MAX = 200


class LoopWatch:
    """Measures the turns of an event loop, and samples the code that runs in long ones. Call
    `start` and `stop` in that loop; the metrics read `holds`."""

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
            logger.log(
                logging.WARNING if cpu_s > HELD_S_MAX else logging.INFO,
                "the event loop of this process was blocked for %s; the other work of the process "
                "had to wait, and goes on now; if this repeats, please report it with this line",
                line,
            )
        assert self._loop is not None
        after_s = TICK_S if used_s > IDLE_CPU_S else IDLE_TICK_S
        self._again(self._loop, after_s, now_s, read_s)

    def _seen_most(self) -> str:
        """Return the place where the loop was seen most often since the last tick. The watching
        thread may still append to the list that is replaced here; that observation is lost."""
        if not self._seen:
            return "unknown"
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
    """Return the functions of this project on a thread's stack as text, outermost first. `thread`:
    the thread's Python identity."""
    frame = _frames().get(thread)
    return "nowhere" if frame is None else _what_runs(frame)


def _frames() -> dict[int, FrameType]:
    """Return the current frame of each thread. CPython before 3.11.9 may collect garbage while it
    builds this dictionary, and holds a lock of the whole runtime meanwhile: if a finalizer then
    lets another thread run, and that thread wants the lock to begin or end a thread, the process
    deadlocks (python/cpython gh-106883)."""
    collects = gc.isenabled()
    gc.disable()
    try:
        return sys._current_frames()
    finally:
        if collects:
            gc.enable()


def _what_runs(frame: FrameType) -> str:
    """Return the functions of this project on the stack, outermost first. If there are none, return
    the innermost function."""
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
    """Yield the metrics about the event loop. `prefix`: the beginning of their names, including an
    underscore."""
    table = MetricTable(*loop_rows(prefix))
    held = table.histograms(f"{prefix}loop_held_seconds")
    buckets = [(str(bound), float(count)) for bound, count in holds.cumulative()]
    held.add_metric([], [*buckets, ("+Inf", float(holds.count))], holds.sum_s)
    yield held
    yield table.gauge(f"{prefix}loop_held_seconds_max", holds.recent_max_s)
    yield table.gauge(f"{prefix}loop_held_cpu_seconds_max", holds.worst_cpu_s)
    yield table.counter(f"{prefix}loop_holds", float(holds.too_long))
    yield table.counter(f"{prefix}loop_waited_seconds", holds.waited_s)
