"""The memory limit of this process, as its container states it.

`__main__` asks once.  cgroup v2 (`memory.max`) and v1 (`memory.limit_in_bytes`); a limit of any
group around ours holds for us, so the smallest counts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path, PurePosixPath

_NONE = 2**60
"""cgroup v1 states "no limit" by a number near the largest, which no machine has."""


def read_text(path: str) -> str | None:
    """A small file's content; None when it cannot be read."""
    try:
        return Path(path).read_text()
    except OSError:
        return None


def memory_limit(read: Callable[[str], str | None] = read_text) -> int | None:
    """Bytes; None where nothing limits it."""
    limits = [
        int(text)
        for path in _candidates(read("/proc/self/cgroup") or "")
        if (text := (read(path) or "").strip()).isdecimal()
    ]
    return min((limit for limit in limits if 0 < limit < _NONE), default=None)


def _candidates(groups: str) -> Iterator[str]:
    """The files that may say it, for our group, all around it and, in a namespace, the root."""
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
