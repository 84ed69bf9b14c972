"""Settings of a process that must not pause: garbage collector, change of threads, priority.

`tune`: what we make hardly ever holds cycles, and references free it; with the defaults, a process
that takes up some hundred thousand objects looks at all it has again and again, for tens to
hundreds of milliseconds each time.

`switch_soon` shortens the wait of the event loop for threads that compute. CPython lets one thread
run at a time: a thread that wants to run asks the running one to give way, and asks only once that
has run for an interval, 5 ms by default. A loop gives way with every system call that it makes, a
dozen for one request, so that a client's answer, which passes three brokers, took 100 ms and more
while two threads of each wrote long answers for other clients.

`work_in_background`: a priority against other processes of the machine. Linux alone. A nice value
counts within a group that Linux schedules as one, and such a group is each session (setsid(2)) by
itself where it divides processors among sessions ("autogroup" in sched(7): desktops, machines
without containers). A child of a broker that stays in its session takes its processor time from the
broker's share, whatever its nice value, and the broker waits behind other processes for that. In a
container the group is the container's own, its nice value is enough, and the other one is not
looked at.
"""

from __future__ import annotations

import gc
import os
import sys
import time
from pathlib import Path


def tune(young_objects: int = 50_000, looks: int = 20, second_looks: int = 20) -> None:
    """Exclude all present objects from garbage collection, and set the thresholds for new ones:
    collect the youngest once `young_objects` more were created than freed, the next generation
    after `looks` such collections, and all after `second_looks` of these."""
    gc.freeze()
    gc.set_threshold(young_objects, looks, second_looks)


INTERVAL_S = 0.0005
"""Two threads that compute lose nothing that matters by changing places so often."""


def switch_soon() -> None:
    """Set the interval after which a running thread of this process must let another run."""
    sys.setswitchinterval(INTERVAL_S)


LOWEST = 19
SESSION_NICE = 10
"""A tenth of the share of a session that works as ours does: with the lowest, 1.5 %, a process gets
next to nothing while a few others are busy, and what waits for it would wait for minutes."""
SESSION = Path("/proc/self/autogroup")
"""Its nice value is written there; without rights, the whole machine may do so ten times a
second."""
_TRIES = 20
_TRY_EVERY_S = 0.1


def work_in_background(session: Path = SESSION) -> str | None:
    """Lower the priority of this process, which leads a session of its own, against all others of
    the machine. Return a sentence if the session's priority could not be lowered, otherwise None,
    also if the kernel has no scheduling by session."""
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
