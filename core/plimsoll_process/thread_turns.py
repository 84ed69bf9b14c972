"""Shortens the wait of a process's event loop for threads that compute.

Called by each entry point, before its loop runs.  CPython lets one thread run at a time: a thread
that wants to run asks the running one to give way, and asks only once that has run for an interval,
5 ms by default.  A loop gives way with every system call that it makes, a dozen for one request, so
that a client's answer, which passes three brokers, took 100 ms and more while two threads of each
wrote long answers for other clients.
"""

from __future__ import annotations

import sys

INTERVAL_S = 0.0005
"""Two threads that compute lose nothing that matters by changing places so often."""


def switch_soon() -> None:
    """Set the interval of the whole process."""
    sys.setswitchinterval(INTERVAL_S)
