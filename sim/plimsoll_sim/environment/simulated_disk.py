"""A simulated volume: the file operations of processes, and the content that survives a power cut.

A killed process loses nothing.  Source: the protocol's disk model.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import TypeVar

from plimsoll_broker.storage.disk import (
    Buffer,
    Disk,
    DiskFile,
    Lock,
    StorageError,
    StorageFault,
)
from plimsoll_sim.engine.process import Process, ProcessDied

T = TypeVar("T")
ROOM_BYTES = 2**40
DESCRIPTORS = 128
MOUNT = "data"


class Volume:
    """A disk, which outlives processes. `full` and `broken`: writes fail. `free_bytes`: the free
    space that the disk reports if it is little; writes still succeed. `no_descriptors`: share of
    files that cannot be opened. `crash_in`: number of writes and syncs until the one during which
    the process is killed (None: never)."""

    def __init__(self, rng: random.Random, now_us: Callable[[], int]) -> None:
        self.root = _mounted()
        self.full = False
        self.broken = False
        self.free_bytes: int | None = None
        self.no_descriptors = 0.0
        self.crash_in: int | None = None
        self.holders: dict[str, Process] = {}
        self.writes = 0
        self._rng = rng
        self._now_us = now_us

    def heal(self) -> None:
        """End all faults: requests succeed again."""
        self.full = self.broken = False
        self.free_bytes = None
        self.no_descriptors = 0.0
        self.crash_in = None

    def lose_power(self, cut: PowerCut | None = None) -> None:
        self.root.lose_power(cut or PowerCut(self._rng))

    def write_back(self) -> None:
        """Write the page cache to the disk, as a kernel does: everything becomes durable."""
        self.root.sync()

    def empty(self) -> None:
        """Replace the disk by an empty one."""
        self.root = _mounted()

    def find(self, path: Path) -> FileNode | Folder | None:
        entry: FileNode | Folder | None = self.root
        for part in path.parts[1:]:
            if not isinstance(entry, Folder):
                return None
            entry = entry.entries.get(part)
        return entry

    def folder(self, path: Path) -> Folder:
        found = self.find(path)
        if not isinstance(found, Folder):
            raise StorageError(StorageFault.IO, path, "no such directory")
        return found

    def make(self, path: Path) -> None:
        self.folder(path.parent).put(path.name, Folder())

    def nodes(self, path: Path, suffix: str) -> Iterable[tuple[str, FileNode]]:
        """Yield every file below `path` with a name that ends in `suffix`."""
        found = self.find(path)
        if isinstance(found, Folder):
            for name, entry in sorted(found.entries.items()):
                if isinstance(entry, Folder):
                    yield from self.nodes(path / name, suffix)
                elif name.endswith(suffix):
                    yield str(path / name), entry

    def writing(self, process: Process, path: Path) -> int | None:
        """Called before each write or sync. Return the number of bytes to write before the process
        is killed; None for all."""
        if not process.alive:
            raise ProcessDied
        self.writes += 1
        if self.crash_in is not None:
            self.crash_in -= 1
            if self.crash_in < 0:
                self.crash_in = None
                return self._rng.choice((0, 1, 10, 61, 100, 10_000))
        if self.broken:
            raise StorageError(StorageFault.IO, path, "input/output error")
        return None

    def opening(self, path: Path) -> None:
        """Called before each operation that takes a file descriptor. Raises OSError if there is
        none left."""
        if self.no_descriptors and self._rng.random() < self.no_descriptors:
            raise StorageError(StorageFault.DESCRIPTORS, path, "too many open files")

    def creating(self, path: Path) -> None:
        """Called before a name is created. Raises OSError if the disk is full and has no block left
        for it."""
        if self.full and self._rng.random() < 0.5:
            raise StorageError(StorageFault.FULL, path, "no space left")

    def stamp(self, node: FileNode) -> None:
        node.modified_us = self._now_us()


class SimFile(DiskFile):
    """An open file of one process."""

    __slots__ = ("_node", "_process", "_volume")

    def __init__(self, disk: SimDisk, node: FileNode, path: Path) -> None:
        super().__init__(-1, path, disk)
        self._volume = disk.volume
        self._process = disk.process
        self._node = node

    def append(self, data: Buffer) -> None:
        limit = self._volume.writing(self._process, self.path)
        self._volume.stamp(self._node)
        if limit is not None:
            self._node.data += bytes(data)[:limit]
            self._process.die()
            raise ProcessDied
        if self._volume.full:
            self._node.data += bytes(data)[: len(data) // 2]
            raise StorageError(StorageFault.FULL, self.path, "no space left")
        self._node.data += data

    def pread(self, size: int, position: int) -> bytes:
        self._alive()
        return bytes(self._node.data[position : position + size])

    def size(self) -> int:
        self._alive()
        return len(self._node.data)

    def begin_writing(self, position: int, size: int) -> None:
        """Mark the bytes from `position` on as not durable: a power cut may remove a write that was
        begun and not synced."""

    def fsync(self) -> None:
        limit = self._volume.writing(self._process, self.path)
        if limit is None or limit:
            self._node.sync()
        if limit is not None:
            self._process.die()
            raise ProcessDied

    def truncate(self, size: int) -> None:
        limit = self._volume.writing(self._process, self.path)
        if limit is None or limit:
            self._node.truncate(size)
            self._volume.stamp(self._node)
        if limit is not None:
            self._process.die()
            raise ProcessDied

    def close(self) -> None:
        pass

    def _alive(self) -> None:
        if not self._process.alive:
            raise ProcessDied


class SimLock(Lock):
    """A file lock, held until `release`, or until its process ends."""

    def __init__(self, volume: Volume, path: str) -> None:
        super().__init__(-1)
        self._volume = volume
        self._path = path

    def release(self) -> None:
        self._volume.holders.pop(self._path, None)


class SimDisk(Disk):
    """One process's view of a volume. A dead process can change nothing."""

    def __init__(self, volume: Volume, process: Process) -> None:
        self.volume = volume
        self.process = process

    def allow_many_files(self) -> None:
        pass

    def _change(self, path: Path, change: Callable[[], None]) -> None:
        """Make one change of a directory. The process may be killed before or after it."""
        limit = self.volume.writing(self.process, path)
        if limit is None or limit:
            change()
        if limit is not None:
            self.process.die()
            raise ProcessDied

    def _look(self, path: Path) -> FileNode | Folder | None:
        if not self.process.alive:
            raise ProcessDied
        return self.volume.find(path)

    def open(self, path: Path, *, make: bool = True) -> DiskFile:
        node = self._look(path)
        self.volume.opening(path)
        if node is None and not make:
            raise StorageError(StorageFault.IO, path, "no such file")
        if node is None:
            self.volume.creating(path)
            node = FileNode()
            made = node
            self._change(path, lambda: self.volume.folder(path.parent).put(path.name, made))
        assert isinstance(node, FileNode), path
        return SimFile(self, node, path)

    def read(self, path: Path) -> bytes | None:
        node = self._look(path)
        if isinstance(node, Folder):
            raise StorageError(StorageFault.IO, path, "it is a directory")
        if node is not None:
            self.volume.opening(path)
        return None if node is None else bytes(node.data)

    def replace(self, path: Path, data: bytes, *, sync: bool) -> None:
        self.volume.opening(path)
        if self.volume.full:
            raise StorageError(StorageFault.FULL, path, "no space left")
        node = FileNode(data, durable=sync)
        self.volume.stamp(node)
        self._change(path, lambda: self.volume.folder(path.parent).put(path.name, node))
        if sync:
            self.sync_directory(path.parent)

    def sync(self, path: Path) -> None:
        node = self._look(path)
        if not isinstance(node, FileNode):
            raise StorageError(StorageFault.IO, path, "no such file")
        self.volume.opening(path)
        self._change(path, node.sync)

    def sync_directory(self, path: Path) -> None:
        self._look(path)
        self.volume.opening(path)
        self._change(path, self.volume.folder(path).changes.clear)

    def size(self, path: Path) -> int | None:
        node = self._look(path)
        return len(node.data) if isinstance(node, FileNode) else None

    def exists(self, path: Path) -> bool:
        return self._look(path) is not None

    def list(self, path: Path) -> list[str]:
        self._look(path)
        self.volume.opening(path)
        return sorted(self.volume.folder(path).entries)

    def is_directory(self, path: Path) -> bool:
        return isinstance(self._look(path), Folder)

    def make_directory(self, path: Path) -> None:
        for parent in (*reversed(path.parents), path):
            if self._look(parent) is None:
                self.volume.creating(parent)
                self._change(parent, partial(self.volume.make, parent))

    def rename(self, old: Path, new: Path) -> None:
        if self._look(old) is None:
            raise StorageError(StorageFault.IO, old, "no such file")

        def change() -> None:
            assert old.parent == new.parent, "no file moves to another directory"
            self.volume.folder(old.parent).rename(old.name, new.name)

        self._change(old, change)

    def remove(self, path: Path) -> None:
        if self._look(path) is not None:
            self._change(path, lambda: _forget(self.volume.folder(path.parent), path.name))

    def remove_tree(self, path: Path) -> None:
        self.remove(path)

    def room(self, path: Path) -> tuple[int, int]:
        self._look(path)
        left = ROOM_BYTES if self.volume.free_bytes is None else self.volume.free_bytes
        return (0 if self.volume.full else left), ROOM_BYTES

    def descriptors_max(self) -> int:
        """Return the limit of open files, which is so low that logs close and reopen files all the
        time."""
        return DESCRIPTORS

    def descriptors_left(self) -> int:
        return 0 if self.volume.no_descriptors else DESCRIPTORS

    def set_apart(self, path: Path, size: int) -> None:
        if self.volume.full:
            raise StorageError(StorageFault.FULL, path, "no space left")
        self.open(path)

    def modified_ms(self, path: Path) -> int:
        node = self._look(path)
        return node.modified_us // 1_000 if isinstance(node, FileNode) else 0

    def set_modified(self, path: Path, modified_ms: int) -> None:
        """Set a file's time of change. It is the time of the run, not that of a broker's wall
        clock."""
        self._look(path)

    def together(self, works: Iterable[Callable[[], T]]) -> tuple[T, ...]:
        return tuple(work() for work in works)

    def lock(self, path: Path) -> Lock | None:
        self.open(path)
        holder = self.volume.holders.get(str(path))
        if holder is not None and holder.alive:
            return None
        self.volume.holders[str(path)] = self.process
        return SimLock(self.volume, str(path))


def _mounted() -> Folder:
    root = Folder()
    root.entries[MOUNT] = Folder()
    return root


def _forget(folder: Folder, name: str) -> None:
    folder.take(name)


# --- what a power cut leaves of files and folders -------------------------------------------------

REORDERED = 0.3


class PowerCut:
    """Decides randomly how much content that is not durable survives a power cut."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng

    def changes(self, count: int, name: str) -> int:
        """Return how many of a directory's changes survive. `count`: all of them; `name`: the name
        that the first one changed."""
        return self._rng.randint(0, count)

    def size(self, durable: int, size: int) -> int:
        """Return the length in bytes of a file after the cut. `durable`: its durable length;
        `size`: its length before the cut."""
        return self._rng.randint(durable, size)

    def written(self, durable: int, size: int) -> int:
        """Return the position up to which written bytes are on the disk: a file's new size may
        become durable before its last blocks."""
        return self._rng.randint(durable, size) if self._rng.random() < 0.2 else size

    def uncuts(self) -> bool:
        """Return True if a file that was truncated below its durable length has its former length
        again."""
        return self._rng.random() < 0.3

    def reorders(self) -> bool:
        """Return True if the changes of a directory reached the disk in an arbitrary order."""
        return self._rng.random() < REORDERED


class FileNode:
    """A file: its bytes, how many of them are durable, and what a truncation removed that is not
    durable yet."""

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
    """One change of names in a directory, with the means to undo it."""

    __slots__ = ("names", "undo")

    def __init__(self, undo: Callable[[], None], *names: str) -> None:
        self.undo = undo
        self.names = names


class Folder:
    """A directory: its entries, and their changes since the last sync."""

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
        """Rename an entry. A power cut undoes the change of both names together."""
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
    """Group changes that must keep their order because they concern the same names."""
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
