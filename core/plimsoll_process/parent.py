"""A process that does not outlive its parent, however that ends.  Linux alone.

Brokers of a local cluster ask for it themselves.  A program that knows nothing of it is run by
`python -m plimsoll_process.parent PID PROGRAM ARGUMENT…`: the request outlives execve (prctl(2)).
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys

PR_SET_PDEATHSIG = 1


def die_with_parent(parent_pid: int) -> None:
    """Ask the kernel to kill this process when its parent ends; exit at once if it has ended.
    Raises OSError."""
    library = ctypes.CDLL(None, use_errno=True)
    if library.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_PDEATHSIG)")
    if os.getppid() != parent_pid:
        # It ended before we asked.
        sys.exit(1)


if __name__ == "__main__":
    die_with_parent(int(sys.argv[1]))
    os.execv(sys.argv[2], sys.argv[2:])
