"""Ends a process when its parent process ends, for whatever reason. Linux only.

Brokers of a local cluster request this themselves. Another program is run by `python -m
plimsoll_process.parent PID PROGRAM ARGUMENT…`, since the request stays in force when the process
executes the program (prctl(2)).
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys

PR_SET_PDEATHSIG = 1


def die_with_parent(parent_pid: int) -> None:
    """Ask the kernel to kill this process when its parent ends. Exit at once if `parent_pid` is not
    the parent any more. Raises OSError if the kernel refuses."""
    library = ctypes.CDLL(None, use_errno=True)
    if library.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_PDEATHSIG)")
    if os.getppid() != parent_pid:
        # It ended before we asked.
        sys.exit(1)


if __name__ == "__main__":
    die_with_parent(int(sys.argv[1]))
    os.execv(sys.argv[2], sys.argv[2:])
