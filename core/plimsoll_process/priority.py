"""A priority for work in the background, against other processes of the machine.  Linux alone.

Called first thing by a program that works in the background.  A nice value counts within a group
that Linux schedules as one, and such a group is each session (setsid(2)) by itself where it divides
processors among sessions ("autogroup" in sched(7): desktops, machines without containers).  A child
of a broker that stays in its session takes its processor time from the broker's share, whatever its
nice value, and the broker waits behind other processes for that.  In a container the group is the
container's own, its nice value is enough, and the other one is not looked at.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

LOWEST = 19
SESSION_NICE = 10
"""A tenth of the share of a session that works as ours does: with the lowest, 1.5 %, a process gets
next to nothing while a few others are busy, and what waits for it would wait for minutes."""
SESSION = Path("/proc/self/autogroup")
"""File of the session's nice value. Without privileges, all processes of the machine together may
write it ten times a second."""
_TRIES = 20
_TRY_EVERY_S = 0.1


def work_in_background(session: Path = SESSION) -> str | None:
    """Lower the priority of a process that leads its own session. Return a sentence if the session
    keeps its priority, and so its share of processor time; None on success, or on a kernel without
    such groups."""
    os.nice(LOWEST)
    try:
        _write(session, str(SESSION_NICE))
    except FileNotFoundError:
        return None
    except OSError as error:
        return f"{session} cannot be written ({error.strerror or type(error).__name__})"
    return None


def work_within() -> None:
    """Lower the priority of a process within its parent's session, where it competes with the
    parent's other processes."""
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
