"""Reads the limits of this process's container, and divides its memory between the JVM and Python.

Called by `run` and `failures`. Reads the files of cgroup v2, or v1, below /sys/fs/cgroup; outside a
container there may be none, which means no limit. Source: Linux, "Control Group v2".
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

ROOT = Path("/sys/fs/cgroup")
MEBIBYTE = 1024 * 1024
NO_LIMIT = 2**60
"""cgroup v1 states a number above this if it has no limit."""
TASKS_MAX = 8
TASKS_WITHOUT_LIMIT = 2
HEAP_SHARE = 0.25
HEAP_MIN_MB, HEAP_MAX_MB = 256, 2048
OTHERS_MB = 300
"""The JVM outside its heap, and the driver's own Python process."""
TASK_MB = 190
"""One task: Python with its libraries, the queue of librdkafka, and one range of offsets."""
MEMORY_MIN_MB = HEAP_MIN_MB + OTHERS_MB + TASK_MB


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """The limits of this process's container. `memory_bytes`: None without a limit; `cores`: number
    of processors, a fraction rounded up."""

    memory_bytes: int | None
    cores: int

    @property
    def memory_mb(self) -> int | None:
        """Return the memory limit in MiB, rounded down; None without a limit."""
        return None if self.memory_bytes is None else self.memory_bytes // MEBIBYTE

    @property
    def heap_mb(self) -> int | None:
        """Return the size of the JVM's heap in MiB: a quarter of the memory, within bounds, since
        the JVM only schedules. Return None without a limit."""
        if self.memory_mb is None:
            return None
        return max(HEAP_MIN_MB, min(HEAP_MAX_MB, int(self.memory_mb * HEAP_SHARE)))

    @property
    def tasks(self) -> int:
        """Return how many tasks may run at the same time: one for each core, at most `TASKS_MAX`,
        at least `TASKS_WITHOUT_LIMIT`; fewer if the memory beside the JVM holds only fewer. It is 0
        if the memory is below `MEMORY_MIN_MB`."""
        wanted = max(TASKS_WITHOUT_LIMIT, min(self.cores, TASKS_MAX))
        if self.memory_mb is None or self.heap_mb is None:
            return wanted
        return min(wanted, max(0, (self.memory_mb - self.heap_mb - OTHERS_MB) // TASK_MB))


def limits(root: Path = ROOT) -> Limits:
    """Return the limits of this container. `root`: where the control groups are mounted."""
    memory = _number(root / "memory.max", 0) or _number(root / "memory/memory.limit_in_bytes", 0)
    quota, period = _number(root / "cpu.max", 0), _number(root / "cpu.max", 1)
    if quota is None:
        quota, period = (_number(root / f"cpu/cpu.cfs_{one}_us", 0) for one in ("quota", "period"))
    cores = len(os.sched_getaffinity(0))
    if quota is not None and period and quota > 0:
        cores = min(cores, -(-quota // period))
    known = memory is not None and 0 < memory < NO_LIMIT
    return Limits(memory_bytes=memory if known else None, cores=cores)


def processes_killed(root: Path = ROOT) -> int:
    """Return how many processes of this container the kernel has killed for want of memory; 0 if it
    does not say."""
    try:
        text = (root / "memory.events").read_text()
    except FileNotFoundError:
        return 0
    found = dict(line.split(maxsplit=1) for line in text.splitlines() if " " in line)
    return int(found.get("oom_kill", 0))


def _number(path: Path, column: int) -> int | None:
    """Return the word at `column` (from 0) of a file as a number; None if the file is absent, has
    no such word, or says `max`."""
    try:
        words = path.read_text().split()
    except (FileNotFoundError, NotADirectoryError):
        return None
    return int(words[column]) if column < len(words) and words[column] != "max" else None
