"""Settings of a process that must not pause: garbage collector, thread switching, priority.

`tune`: our objects hardly ever form cycles, so that reference counting frees them. With the default
thresholds, a process that creates some hundred thousand objects would scan all its objects again
and again, for tens to hundreds of milliseconds each time.

`switch_soon` shortens the time for which the event loop waits for threads that compute. CPython
lets one thread run at a time, and a thread that wants to run can interrupt the running one only
after an interval, 5 ms by default. A loop gives up the interpreter with every system call, a dozen
for one request. So a client's answer, which passes three brokers, took 100 ms and more while two
threads of each broker wrote long answers for other clients.

`work_in_background`: lowers a process's priority against other processes of the machine. Linux
only. A nice value only compares the processes of one scheduling group. Where Linux divides
processors among sessions ("autogroup" in sched(7): desktops, machines without containers), each
session (setsid(2)) is such a group. There a child that stays in its broker's session takes
processor time from the broker's share, whatever its nice value. In a container the group is the
container's own, so the nice value suffices, and that of the session is ignored.
"""

from __future__ import annotations

import gc
import os
import sys
import time
from pathlib import Path


def tune(young_objects: int = 50_000, looks: int = 20, second_looks: int = 20) -> None:
    """Exclude all present objects from garbage collection, and set the thresholds for new ones.
    `young_objects`: how many more objects must be created than freed before the youngest generation
    is collected. `looks`: how many such collections precede one of the next generation.
    `second_looks`: how many of those precede a full collection."""
    gc.freeze()
    gc.set_threshold(young_objects, looks, second_looks)


INTERVAL_S = 0.0005
"""Seconds after which a running thread must let another run. Threads that compute lose little time
by switching so often."""


def switch_soon() -> None:
    """Set the interval after which a running thread of this process must let another run to
    `INTERVAL_S`."""
    sys.setswitchinterval(INTERVAL_S)


LOWEST = 19
SESSION_NICE = 10
"""Nice value of a session in the background. It gives the session a tenth of the share that a
normal one has. With the lowest value, 1.5 %, a process would hardly run while others are busy, and
what waits for it would wait for minutes."""
SESSION = Path("/proc/self/autogroup")
"""File to which a session's nice value is written. Without special rights, all processes of the
machine together may write it ten times a second."""
_TRIES = 20
_TRY_EVERY_S = 0.1


def work_in_background(session: Path = SESSION) -> str | None:
    """Lower the priority of this process, which leads a session of its own, against all other
    processes of the machine. Return a sentence if the session's priority could not be lowered.
    Return None if it was, or if the kernel does not schedule by session."""
    os.nice(LOWEST)
    try:
        _write(session, str(SESSION_NICE))
    except FileNotFoundError:
        return None
    except OSError as error:
        return f"{session} cannot be written ({error.strerror or type(error).__name__})"
    return None


def work_within() -> None:
    """Lower the priority of this process against the other processes of its parent's session
    only."""
    os.nice(LOWEST)


def _write(file: Path, text: str) -> None:
    for left in reversed(range(_TRIES)):
        try:
            file.write_text(text)
        except BlockingIOError:
            if not left:
                raise
            time.sleep(_TRY_EVERY_S)
        else:
            return
