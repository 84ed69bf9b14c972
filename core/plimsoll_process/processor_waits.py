"""Reads how long one thread of this process has waited for a processor.

Called by `loop_watch` with every tick, so it keeps the file open.  A kernel without these figures
tells of no waits.  What a container's CPU limit takes is not in them (`hang_watch` counts both).
"""

from __future__ import annotations

import os
from pathlib import Path

_THREADS = Path("/proc/self/task")
_BYTES_MAX = 100


class ThreadWaits:
    """`thread_id`: the native one."""

    def __init__(self, thread_id: int, threads: Path = _THREADS) -> None:
        self._file = -1
        try:
            self._file = os.open(threads / str(thread_id) / "schedstat", os.O_RDONLY)
        except FileNotFoundError:
            return

    def seconds(self) -> float:
        """Return the waits since the thread began; 0.0 if the kernel does not tell."""
        if self._file < 0:
            return 0.0
        _, waited_ns, *_ = os.pread(self._file, _BYTES_MAX, 0).split()
        return int(waited_ns) / 1e9

    def close(self) -> None:
        if self._file >= 0:
            os.close(self._file)
            self._file = -1
