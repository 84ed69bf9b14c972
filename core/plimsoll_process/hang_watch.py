"""HangWatch: ends a process with an event loop that hangs, and leaves a process alone that only
gets too little processor time.

Entry points start one in the event loop. It replaces a kubelet's liveness probe: a kubelet cannot
distinguish a process that hangs from one that gets no processor, and would restart all brokers of a
busy node at once, which makes the node busier. A thread asks the loop every five seconds for an
answer, reads from the kernel how long the loop's thread waited for a processor, and passes both to
`HangJudge`. A hung process exits with `EXIT_HUNG`, and its container is started again.

The thread cannot run while native code holds the interpreter's lock. For that case it postpones the
kernel's profiling timer at every check: the kernel ends the process (SIGPROF) once it has used
`SILENT_CPU_S` of processor time without a check. If the kernel provides no such times, no process
counts as hung.

`HangJudge` decides if an event loop without progress is hung. A process that got no processor, was
stopped, or waits for a disk makes no progress either, and a restart would only add to the load, so
such time does not count. A loop is hung if it made no progress for `HUNG_S` seconds in which it
could have run. Pure.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
import threading
import time
from pathlib import Path
from typing import NamedTuple

from plimsoll_process.loop_watch import LoopHolds, where_runs

logger = logging.getLogger("plimsoll.hang_watch")
LOOK_EVERY_S = 5.0
HUNG_S = 60.0
STARVED_S = 10.0
"""Seconds that a thread must wait for a processor for the wait to be logged."""
STARVED_SHARE = 4
"""A process is starved if it waited for a processor for at least one part in this many of the
time."""


def is_starved(waited_ms: int, interval_ms: int) -> bool:
    """Return True if a thread waited for a processor for so large a part of an interval that it
    counts as starved. Both arguments are in milliseconds."""
    return waited_ms > 0 and waited_ms * STARVED_SHARE >= interval_ms


class LoopInterval(NamedTuple):
    """Observations of the event loop between two checks. `interval_s`: wall time. `waited_s`: the
    part of it in which the loop's thread waited for a processor. `on_disk`: True if the thread now
    waits for a disk (state D), a state in which no signal ends it. `progressed`: True if the loop
    has answered since the last check."""

    interval_s: float
    waited_s: float
    on_disk: bool
    progressed: bool


class HangJudge:
    """Decides if an event loop is hung. `silent_s`: seconds for which it has made no progress;
    `proven_s`: the part of these seconds in which it could have run."""

    def __init__(self) -> None:
        self.silent_s = 0.0
        self.proven_s = 0.0

    @property
    def is_hung(self) -> bool:
        return self.proven_s >= HUNG_S

    def look(self, look: LoopInterval) -> float:
        """Add one interval to `silent_s` and `proven_s`; set both to 0 if the loop has answered. If
        it answered after a silence of `STARVED_S` seconds or more, return the seconds of that
        silence, otherwise 0.0."""
        if look.progressed:
            ended_s, self.silent_s, self.proven_s = self.silent_s, 0.0, 0.0
            return ended_s if ended_s >= STARVED_S else 0.0
        self.silent_s += look.interval_s
        if not look.on_disk:
            # A look that comes late was starved, or stopped with the process: no proof.
            self.proven_s += max(0.0, min(look.interval_s, LOOK_EVERY_S) - look.waited_s)
        return 0.0


EXIT_HUNG = 70
SILENT_CPU_S = 120.0
_THREADS = Path("/proc/self/task")
_THROTTLED = (
    (Path("/sys/fs/cgroup/cpu.stat"), "throttled_usec", 1e-6),
    (Path("/sys/fs/cgroup/cpu/cpu.stat"), "throttled_time", 1e-9),
)
"""File, field and unit in seconds of the time for which a container was stopped by its CPU limit,
in cgroup v2 and v1. A thread of a stopped container does not run, and its own figures do not count
the time as a wait."""


class ThreadTimes(NamedTuple):
    """Waits of one thread. `waited_s`: seconds for which it has waited for a processor since it
    began. `on_disk`: True if it waits for a disk now."""

    waited_s: float
    on_disk: bool


def read_times(thread_id: int, threads: Path = _THREADS) -> ThreadTimes | None:
    """Return the waits of one thread of this process, or None if the kernel keeps no such times.
    `thread_id`: its native id. Raises OSError if the times cannot be read now."""
    try:
        ran, waited, *_ = (threads / str(thread_id) / "schedstat").read_text().split()
        # The name in parentheses may hold anything, a parenthesis too.
        state = (threads / str(thread_id) / "stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return None
    if ran == "0":  # a kernel without these figures; the thread that asks has run
        return None
    return ThreadTimes(int(waited) / 1e9 + _throttled_s(), state == "D")


def waited_ms(thread_id: int) -> int:
    """Return for how many milliseconds a thread of this process has waited for a processor; 0 if
    the kernel keeps no such times."""
    try:
        times = read_times(thread_id)
    except OSError:
        return 0
    return 0 if times is None else round(1000 * times.waited_s)


def _throttled_s() -> float:
    """Return for how many seconds in total the container was stopped by its CPU limit; 0.0 without
    a limit."""
    for path, field, unit in _THROTTLED:
        try:
            lines = path.read_text().splitlines()
        except FileNotFoundError:
            continue
        return sum(float(line.split()[1]) * unit for line in lines if line.startswith(field))
    return 0.0


class HangWatch:
    """A thread that ends the process when the event loop hangs. Call `start` and `stop` in that
    loop. `holds`: counters for the metrics; the thread adds the loop's waits for a processor to
    `holds.waited_s`."""

    def __init__(self, holds: LoopHolds, *, every_s: float = LOOK_EVERY_S) -> None:
        self._holds = holds
        self._every_s = every_s
        self._judge = HangJudge()
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="hang watch", daemon=True)
        # From `start` on.
        self._loop: asyncio.AbstractEventLoop | None = None
        self._ident = 0  # of the loop's thread, as Python counts it
        self._native = 0  # and as the kernel does
        self._answered = True

    def start(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._ident, self._native = threading.get_ident(), threading.get_native_id()
        signal.setitimer(signal.ITIMER_PROF, SILENT_CPU_S)
        self._thread.start()

    def stop(self) -> None:
        """Stop the watch, before the loop or the process ends: an ended loop would look like a hung
        one."""
        self._stopped.set()
        self._thread.join()

    # --- the thread -----------------------------------------------------------------------------

    def _watch(self) -> None:
        looked_s, before_s = time.monotonic(), 0.0
        while not self._stopped.wait(self._every_s):
            signal.setitimer(signal.ITIMER_PROF, SILENT_CPU_S)
            now_s = time.monotonic()
            try:
                times = read_times(self._native)
            except OSError as error:  # no descriptor, say: this interval proves nothing
                logger.info(
                    "this process cannot read its own processor times and reads them again in "
                    "some seconds; until then it does not notice if it hangs; if this repeats, "
                    "check the limits of the process, such as that of open files: %s",
                    error,
                )
                looked_s = now_s
                continue
            if times is None:
                break
            waited_s = max(0.0, times.waited_s - before_s)
            self._look(LoopInterval(now_s - looked_s, waited_s, times.on_disk, self._answered))
            looked_s, before_s = now_s, times.waited_s
        signal.setitimer(signal.ITIMER_PROF, 0.0)

    def _look(self, look: LoopInterval) -> None:
        self._holds.waited_s += look.waited_s
        silent_s = self._judge.look(look)
        if silent_s:
            logger.warning(
                "this process made no progress for %.0f s, because it got no processor or waited "
                "for a disk; it continues: give the node more processors or a faster disk, or this "
                "container a higher CPU limit",
                silent_s,
            )
        if self._judge.is_hung:
            self._end()
        if look.progressed:
            self._ask()

    def _ask(self) -> None:
        assert self._loop is not None, "started"
        self._answered = False
        try:
            self._loop.call_soon_threadsafe(self._answer)
        except RuntimeError:  # the loop is closed
            self._stopped.set()

    def _answer(self) -> None:
        self._answered = True

    def _end(self) -> None:
        logger.critical(
            "the event loop is hung: it made no progress for %.0f s, although the process had a "
            "processor and waited for no disk in %.0f s of that time; the process exits with code "
            "%d, so that its container is started again; please report this bug with the stack: %s",
            self._judge.silent_s,
            self._judge.proven_s,
            EXIT_HUNG,
            where_runs(self._ident),
        )
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        os._exit(EXIT_HUNG)
