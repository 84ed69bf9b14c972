"""DeletedDirectories: directories of deleted logs and strays: renamed at once, removed a minute or
a day later.

Called by the store. A stray's name holds the time since when it is one, so that it is removed even
if the broker restarts every day.
"""

from __future__ import annotations

import time
from pathlib import Path
from uuid import uuid4

from plimsoll_broker.storage.disk import Disk

DELETE_DELAY_MS = 60_000
STRAY_DELAY_MS = 24 * 3600 * 1000
DELETE = "-delete"
STRAY = "-stray"
_NAME_MAX = 255


class DeletedDirectories:
    """`now_ms` is the caller's clock; only a stray's name has wall-clock time. `unsynced`: a power
    cut may restore an old name, and the next start moves it again."""

    __slots__ = ("_directory", "_disk", "_due_ms", "unsynced")

    def __init__(self, disk: Disk, directory: Path) -> None:
        self._disk = disk
        self._directory = directory
        self._due_ms: dict[Path, int] = {}
        self.unsynced = False

    def found(self, path: Path, now_ms: int) -> bool:
        """At a start: return True if this is such a directory; its removal is scheduled again."""
        if path.name.endswith(DELETE):
            self._due_ms[path] = now_ms
        elif path.name.endswith(STRAY):
            self._due_ms[path] = now_ms + _left_ms(path.name)
        else:
            return False
        return True

    def move(self, path: Path, suffix: str, now_ms: int) -> None:
        """Rename the directory, and schedule its removal."""
        since = f"{_wall_ms()}." if suffix == STRAY else ""
        tail = f".{since}{uuid4().hex}{suffix}"
        moved = path.with_name(path.name[: _NAME_MAX - len(tail)] + tail)
        self._disk.rename(path, moved)
        self.unsynced = True
        delay_ms = STRAY_DELAY_MS if suffix == STRAY else DELETE_DELAY_MS
        self._due_ms[moved] = now_ms + delay_ms

    def sync(self) -> None:
        """Make the new names durable; may run in a thread."""
        self.unsynced = False
        self._disk.sync_directory(self._directory)

    def again(self, path: Path, now_ms: int) -> None:
        """Schedule another attempt to remove it."""
        self._due_ms[path] = now_ms + DELETE_DELAY_MS

    def due(self, now_ms: int) -> list[Path]:
        """Remove and return the directories that are due. Removing a large one takes long: use a
        thread."""
        due = [path for path, due_ms in self._due_ms.items() if due_ms <= now_ms]
        for path in due:
            del self._due_ms[path]
        return due


def _wall_ms() -> int:
    return time.time_ns() // 1_000_000


def _left_ms(name: str) -> int:
    """Return the rest of a stray's day; all of it if the name has no valid time."""
    parts = name.removesuffix(STRAY).split(".")
    since = parts[-2] if len(parts) > 2 else ""
    if not since.isdecimal():
        return STRAY_DELAY_MS
    passed_ms = max(_wall_ms() - int(since), 0)
    return max(STRAY_DELAY_MS - passed_ms, 0)
