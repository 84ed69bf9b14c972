"""The memory limit of this process, as its container states it.

`__main__` asks once. cgroup v2 (`memory.max`) and v1 (`memory.limit_in_bytes`); the limit of any
enclosing group applies, so the smallest counts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path, PurePosixPath

_NONE = 2**60
"""cgroup v1 states "no limit" as a number near the largest, which no machine has."""


def read_text(path: str) -> str | None:
    """Return a small file's content; None if it cannot be read."""
    try:
        return Path(path).read_text()
    except OSError:
        return None


def memory_limit(read: Callable[[str], str | None] = read_text) -> int | None:
    """Return the memory limit of this process's cgroup in bytes. Return None if there is none."""
    limits = [
        int(text)
        for path in _candidates(read("/proc/self/cgroup") or "")
        if (text := (read(path) or "").strip()).isdecimal()
    ]
    return min((limit for limit in limits if 0 < limit < _NONE), default=None)


def _candidates(groups: str) -> Iterator[str]:
    """Yield the paths of the cgroup files that may state the memory limit, for each line of
    /proc/self/cgroup: those of the process's group, of all enclosing groups and, in a namespace,
    of the root."""
    for line in ["0::/", "0:memory:/", *groups.splitlines()]:
        _, _, rest = line.partition(":")
        controllers, _, group = rest.partition(":")
        if controllers == "":
            root, name = "/sys/fs/cgroup", "memory.max"
        elif "memory" in controllers.split(","):
            root, name = "/sys/fs/cgroup/memory", "memory.limit_in_bytes"
        else:
            continue
        own = PurePosixPath(group)
        for each in (own, *own.parents):
            yield f"{root}{each if each != PurePosixPath('/') else ''}/{name}"
