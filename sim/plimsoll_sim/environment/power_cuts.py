"""Files and directories, and the state in which a power cut would leave them.

Each file is left with what was synced plus an arbitrary prefix of what was appended since, whose
end may be zeros; a cut below the synced part may come undone.  Each directory is left without some
of its changes since its last sync: a file that was made may have no name, a rename or a deletion
may not have happened.  Most file systems keep to the order of those changes; POSIX does not ask it
of them, so now and then they come in any order.  A file that was replaced is old or new.
Source: the protocol's disk model.
"""

from __future__ import annotations

import random
from collections.abc import Callable

REORDERED = 0.3


class PowerCut:
    """Draws how much unsynced content survives a power cut."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng

    def changes(self, count: int, name: str) -> int:
        """Return how many of a directory's changes survive; the first was to `name`."""
        return self._rng.randint(0, count)

    def size(self, durable: int, size: int) -> int:
        """Return the length of a file after the cut."""
        return self._rng.randint(durable, size)

    def written(self, durable: int, size: int) -> int:
        """Return where the written bytes end: the new size may reach the disk before the last
        blocks."""
        return self._rng.randint(durable, size) if self._rng.random() < 0.2 else size

    def uncuts(self) -> bool:
        """Return True if a file that was cut below what was durable is as long as before."""
        return self._rng.random() < 0.3

    def reorders(self) -> bool:
        """Return True if the changes of a directory reached the disk in any order."""
        return self._rng.random() < REORDERED


class FileNode:
    """A file: its bytes, how many of them are durable, and what a cut took away undurably."""

    __slots__ = ("cut_off", "data", "durable", "modified_us")

    def __init__(self, data: bytes = b"", *, durable: bool = False) -> None:
        self.data = bytearray(data)
        self.durable = len(data) if durable else 0
        self.cut_off = b""
        self.modified_us = 0

    @property
    def unsynced(self) -> bool:
        return self.durable < len(self.data) or bool(self.cut_off)

    def sync(self) -> None:
        self.durable = len(self.data)
        self.cut_off = b""

    def truncate(self, size: int) -> None:
        if size < self.durable:
            self.cut_off = bytes(self.data[size : self.durable]) + self.cut_off
            self.durable = size
        del self.data[size:]

    def lose_power(self, cut: PowerCut) -> None:
        if self.cut_off and cut.uncuts():
            self.data = self.data[: self.durable] + self.cut_off
        elif len(self.data) > self.durable:
            del self.data[cut.size(self.durable, len(self.data)) :]
            written = cut.written(self.durable, len(self.data))
            self.data[written:] = bytes(len(self.data) - written)
        self.sync()


class Change:
    """One change of names in a directory, and how to undo it."""

    __slots__ = ("names", "undo")

    def __init__(self, undo: Callable[[], None], *names: str) -> None:
        self.undo = undo
        self.names = names


class Folder:
    """A directory: its entries, and what happened to them since the last sync."""

    __slots__ = ("changes", "entries")

    def __init__(self) -> None:
        self.entries: dict[str, FileNode | Folder] = {}
        self.changes: list[Change] = []

    def put(self, name: str, entry: FileNode | Folder) -> None:
        self.changes.append(Change(self._restore(name), name))
        self.entries[name] = entry

    def take(self, name: str) -> FileNode | Folder:
        self.changes.append(Change(self._restore(name), name))
        return self.entries.pop(name)

    def rename(self, old: str, new: str) -> None:
        """Rename an entry; a power cut undoes both names at once."""
        back, away = self._restore(old), self._restore(new)

        def undo() -> None:
            away()
            back()

        self.changes.append(Change(undo, old, new))
        self.entries[new] = self.entries.pop(old)

    def _restore(self, name: str) -> Callable[[], None]:
        before = self.entries.get(name)

        def undo() -> None:
            if before is None:
                self.entries.pop(name, None)
            else:
                self.entries[name] = before

        return undo

    def sync(self) -> None:
        """Sync the directory and everything in it."""
        self.changes.clear()
        for entry in self.entries.values():
            entry.sync()

    def lose_power(self, cut: PowerCut) -> None:
        if self.changes:
            for run in _runs(self.changes) if cut.reorders() else [self.changes]:
                kept = cut.changes(len(run), run[0].names[0])
                for change in reversed(run[kept:]):
                    change.undo()
            self.changes.clear()
        for entry in self.entries.values():
            entry.lose_power(cut)


def _runs(changes: list[Change]) -> list[list[Change]]:
    """Group the changes that must keep their order because they are about the same names."""
    runs: dict[str, dict[int, Change]] = {}
    for number, change in enumerate(changes):
        run: dict[int, Change] = {}
        for name in change.names:
            if (mine := runs.get(name)) is not None and mine is not run:
                mine |= run
                run = mine
        run[number] = change
        if len(change.names) > 1:
            for before in run.values():
                runs |= dict.fromkeys(before.names, run)
        runs |= dict.fromkeys(change.names, run)
    distinct = {id(run): run for run in runs.values()}
    return [[run[number] for number in sorted(run)] for run in distinct.values()]
