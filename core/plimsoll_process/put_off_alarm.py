"""An alarm for a thread that looks at an event loop: it rings when the loop has not put it off.

Made by `loop_watch`.  While the loop puts it off in time the thread sleeps in the kernel and never
asks for the interpreter's lock: a thread that looked at a clock 40 times a second cost a busy
broker as many changes of threads, and an idle one a third of its processor time.  Where there is no
timerfd (Linux has it) it rings at every interval.
"""

from __future__ import annotations

import ctypes
import os
import time
from typing import Any

_LIBRARY = ctypes.PyDLL(None)  # both calls return at once, so they keep the interpreter's lock
_CREATE = getattr(_LIBRARY, "timerfd_create", None)
_SET_TIME: Any = getattr(_LIBRARY, "timerfd_settime", None)
_CLOCK_MONOTONIC = 1
_CLOSE_ON_EXEC = 0o2000000
_NS = 1_000_000_000
_COUNT_BYTES = 8


class _Times(ctypes.Structure):
    """A `struct itimerspec`: the interval after the first time, and when that is."""

    _fields_ = tuple(
        (name, ctypes.c_long) for name in ("every_s", "every_ns", "first_s", "first_ns")
    )


class Alarm:
    """Rings unless it is put off in time, then again every `every_s` until it is put off."""

    def __init__(self, every_s: float) -> None:
        self._every_s = every_s
        self._times = _Times(0, int(every_s * _NS), 0, 0)
        self._reference = ctypes.byref(self._times)
        # None: there is no timer.
        self._fd: int | None = None
        if _CREATE is not None and (fd := _CREATE(_CLOCK_MONOTONIC, _CLOSE_ON_EXEC)) >= 0:
            self._fd = fd

    def put_off(self, first_s: float) -> None:
        """Delay the alarm by this time, below a second; called from the loop."""
        if self._fd is not None:
            self._times.first_ns = int(first_s * _NS)
            _SET_TIME(self._fd, 0, self._reference, None)

    def ring(self) -> None:
        """Ring at once."""
        self.put_off(1 / _NS)

    def wait(self) -> None:
        """Block the thread until the alarm rings."""
        if self._fd is None:
            time.sleep(self._every_s)
        else:
            os.read(self._fd, _COUNT_BYTES)

    def close(self) -> None:
        """Called by the thread, once it is not put off any more."""
        fd, self._fd = self._fd, None
        if fd is not None:
            os.close(fd)
