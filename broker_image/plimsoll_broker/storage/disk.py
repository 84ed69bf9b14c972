"""Disk: the only module that touches files; everything else in storage goes through it.

Called by storage only; the simulator replaces it by a simulated disk. It translates errors of the
operating system into `StorageError` and decides nothing else.

`OpenFiles`: the open files of logs, at most half of the process's descriptors. Beyond the bound the
least recently used file is dropped: it is closed when its last user is done, and reopened on its
next use. The other half is for connections, the metrics server, checkpoints and certificates. Any
thread may open; each step is one operation of a dictionary. A file with unsynced writes is dropped
last: a new descriptor still reports a failed write-back while the kernel keeps the inode.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import resource
import shutil
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from enum import Enum
from functools import cached_property, partial
from pathlib import Path
from typing import Protocol, TypeVar
from weakref import ref

FILES_MIN = 16
LOOKED_AT_MAX = 32
"""The number of files that are examined for an unused one each time a file must be closed."""


class OpenFile(Protocol):
    """An open file that `OpenFiles` may close. `unsynced`: True if there were writes to it since
    its last sync."""

    unsynced: bool


class Holder(Protocol):
    """The owner of one open file: a segment's log or an index. `used`: True if the file was used
    since `OpenFiles` last considered closing it. `open_file`: None if it is closed. `let_go`:
    closes it once it is unused."""

    used: bool

    @property
    def open_file(self) -> OpenFile | None: ...
    def let_go(self) -> None: ...


F = TypeVar("F", bound=OpenFile)


class OpenFiles:
    """Limits the number of open log and index files of a broker. At `files_max` files, the least
    recently used one is closed for each that is opened."""

    __slots__ = ("_holders", "closed_for_others", "files_max")

    def __init__(self, descriptors_max: int) -> None:
        """Limit the open files to half of `descriptors_max`, the number of descriptors that the
        process may have, but at least FILES_MIN."""
        self.files_max = max(descriptors_max // 2, FILES_MIN)
        self.closed_for_others = 0
        """The number of files that were closed because others were needed; a metric."""
        self._holders: OrderedDict[ref[Holder], None] = OrderedDict()

    def __len__(self) -> int:
        return len(self._holders)

    def opened(self, holder: Holder, opening: Callable[[], F]) -> F:
        """Open the holder's file by `opening`, count it and return it. While the limit is reached,
        close other holders' files first; if none can be closed, exceed it. Raise StorageError if
        the file cannot be opened."""
        while len(self._holders) >= self.files_max and self._let_one_go():
            pass
        file = opening()
        self._holders[ref(holder, self._gone)] = None
        return file

    def let_some_go(self) -> bool:
        """Close an eighth of the counted files, at least one, because the process has no descriptor
        left. Return False if none is open."""
        many = max(len(self._holders) // 8, 1)
        gone = [self._let_one_go() for _ in range(many)]
        return any(gone)

    def closed(self, holder: Holder) -> None:
        """Stop counting the file of this holder, which has closed the file itself."""
        self._holders.pop(ref(holder), None)

    def _gone(self, reference: ref[Holder]) -> None:
        self._holders.pop(reference, None)

    def _let_one_go(self) -> bool:
        """Close one file that is synced and was not used since it was last examined, the oldest
        first. If the first LOOKED_AT_MAX files are not of that kind, close the next one. Return
        False, and close none, if no file is open."""
        for left in reversed(range(LOOKED_AT_MAX)):
            try:
                reference, _ = self._holders.popitem(last=False)
            except KeyError:
                return False
            holder = reference()
            file = None if holder is None else holder.open_file
            if holder is None or file is None:
                return True
            if left and (holder.used or file.unsynced):
                holder.used = False
                self._holders[reference] = None
                continue
            holder.let_go()
            self.closed_for_others += 1
            return True
        return False


Buffer = bytes | bytearray | memoryview
T = TypeVar("T")

_FULL = frozenset({errno.ENOSPC, errno.EDQUOT})
_NO_DESCRIPTOR = frozenset({errno.EMFILE, errno.ENFILE})
_OPEN_FILES = Path("/proc/self/fd")
_THREADS = 8
DRILLED = "a drill fills it"
_SYNC_FILE_RANGE = getattr(ctypes.CDLL(None), "sync_file_range", None)
_SYNC_FILE_RANGE_WRITE = 2


class StorageFault(Enum):
    """The kinds of fault of a disk or file. The value is the end of a sentence."""

    FULL = "the disk is full"
    DESCRIPTORS = "no file descriptor is left"
    IO = "the disk failed"
    CORRUPT = "the file is corrupt"


class StorageError(Exception):
    """Raised if a file could not be read or written: the disk failed or is full, no descriptor is
    left, or the content is damaged. `fault`: which of these.

    Only the partition with this file goes offline (KAFKA_STORAGE_ERROR).
    """

    def __init__(self, fault: StorageFault, path: Path, detail: str) -> None:
        super().__init__(f"{path}: {fault.value} ({detail})")
        self.fault = fault
        self.path = path


def _fault(error: OSError) -> StorageFault:
    """Return the kind of fault of an operating system's error."""
    if error.errno in _FULL:
        return StorageFault.FULL
    return StorageFault.DESCRIPTORS if error.errno in _NO_DESCRIPTOR else StorageFault.IO


@contextmanager
def _translated(path: Path) -> Iterator[None]:
    """Raise StorageError for an OSError in the `with` block."""
    try:
        yield
    except OSError as error:
        raise StorageError(_fault(error), path, error.strerror or str(error)) from error


class DiskFile:
    """An open file, closed when nothing refers to it any more.

    A read in a thread keeps its reference, so a file that is deleted meanwhile stays readable, and
    its descriptor is not reused under the reader.
    """

    __slots__ = ("_disk", "_fd", "path", "unsynced")

    def __init__(self, fd: int, path: Path, disk: Disk) -> None:
        self._fd = fd
        self._disk = disk
        self.path = path
        self.unsynced = False
        """True if data were written through this descriptor since its last sync."""

    def append(self, data: Buffer) -> None:
        """Write all of `data` at the end of the file. Raise StorageError; then some of the data may
        have been written."""
        self.unsynced = True
        if self._disk.is_full:
            raise StorageError(StorageFault.FULL, self.path, DRILLED)
        try:
            written = os.write(self._fd, data)
            if written != len(data):
                view = memoryview(data)
                while written < len(view):
                    written += os.write(self._fd, view[written:])
        except OSError as error:
            raise StorageError(_fault(error), self.path, error.strerror or str(error)) from error

    def pread(self, size: int, position: int) -> bytes:
        """Return `size` bytes from `position`; fewer, or none, only at the end of the file. Raise
        StorageError."""
        try:
            data = os.pread(self._fd, size, position)
            if len(data) == size or not data:
                return data
            parts = [data]
            got = len(data)
            while got < size and (data := os.pread(self._fd, size - got, position + got)):
                parts.append(data)
                got += len(data)
            return b"".join(parts)
        except OSError as error:  # as `_translated`, which costs more than a read of the page cache
            raise StorageError(_fault(error), self.path, error.strerror or str(error)) from error

    def size(self) -> int:
        with _translated(self.path):
            return os.fstat(self._fd).st_size

    def fsync(self) -> None:
        """Sync the file to the disk. Raise StorageError. A full disk that is reported only now has
        lost data, so that error counts as StorageFault.IO, which lasts until a restart."""
        self.unsynced = False  # an append during the sync sets it again
        try:
            os.fdatasync(self._fd)
        except OSError as error:
            self.unsynced = True
            text = error.strerror or str(error)
            raise StorageError(StorageFault.IO, self.path, text) from error

    def begin_writing(self, position: int, size: int) -> None:
        """Have the kernel begin to write `size` bytes of the file from `position` to the disk, and
        return without waiting for that. This is a hint, which guarantees nothing and may be
        unsupported."""
        if _SYNC_FILE_RANGE is not None:  # on Linux
            start, length = ctypes.c_int64(position), ctypes.c_int64(size)
            _SYNC_FILE_RANGE(self._fd, start, length, _SYNC_FILE_RANGE_WRITE)

    def truncate(self, size: int) -> None:
        self.unsynced = True
        with _translated(self.path):
            os.ftruncate(self._fd, size)

    def close(self) -> None:
        """Close the descriptor. Call it only if no reader uses the file; otherwise drop the
        reference."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def __del__(self) -> None:
        self.close()


class Lock:
    """The exclusive lock of a directory for this process, until `release` or the end of the
    process."""

    def __init__(self, fd: int) -> None:
        self._fd = fd

    def release(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


class Disk:
    """The files of a real disk; the simulator replaces it. Every method raises StorageError.
    `files`: the open files of logs, made on first use. `is_full`: True while a drill has the disk
    behave as a full one: nothing can be appended, and no room is left."""

    is_full = False

    @cached_property
    def files(self) -> OpenFiles:
        return OpenFiles(self.descriptors_max())

    def allow_many_files(self) -> None:
        """Raise the process's soft limit of open files to the hard limit."""
        _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))

    def open(self, path: Path, *, make: bool = True) -> DiskFile:
        """Open a file for reading and appending. Create it if it does not exist; with `make` False,
        raise StorageError then."""
        with _translated(path):
            flags = os.O_RDWR | os.O_APPEND | os.O_CLOEXEC | (os.O_CREAT if make else 0)
            return DiskFile(os.open(path, flags, 0o644), path, self)

    def open_kept(self, holder: Holder, path: Path, *, make: bool) -> DiskFile:
        """Open a file as `open` does, and count it in `files` for its holder. If the process has no
        descriptor left, close some other files of logs and try again."""
        opening = partial(self.open, path, make=make)
        try:
            return self.files.opened(holder, opening)
        except StorageError as error:
            if error.fault is not StorageFault.DESCRIPTORS or not self.files.let_some_go():
                raise
        return self.files.opened(holder, opening)

    def read(self, path: Path) -> bytes | None:
        """Return a small file's content, or None if it does not exist."""
        with _translated(path):
            try:
                return path.read_bytes()
            except FileNotFoundError:
                return None

    def replace(self, path: Path, data: bytes, *, sync: bool) -> None:
        """Replace the content of the file atomically; create it if it does not exist.

        With `sync` the new content survives a power cut once this returns.
        """
        temporary = path.with_name(path.name + ".tmp")
        with _translated(path):
            fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644)
            try:
                view = memoryview(data)
                while view:
                    view = view[os.write(fd, view) :]
                if sync:
                    os.fsync(fd)
            finally:
                os.close(fd)
            os.replace(temporary, path)
            if sync:
                self.sync_directory(path.parent)

    def sync(self, path: Path) -> None:
        """Sync a file's content to the disk. Its directory entry needs `sync_directory`."""
        with _translated(path):
            fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            try:
                os.fsync(fd)
            finally:
                os.close(fd)

    def sync_directory(self, path: Path) -> None:
        with _translated(path):
            fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            try:
                os.fsync(fd)
            finally:
                os.close(fd)

    def size(self, path: Path) -> int | None:
        """Return the file's size in bytes, or None if it does not exist."""
        with _translated(path):
            try:
                return os.stat(path).st_size
            except FileNotFoundError:
                return None

    def exists(self, path: Path) -> bool:
        with _translated(path):
            return path.exists()

    def list(self, path: Path) -> list[str]:
        with _translated(path):
            return sorted(os.listdir(path))

    def is_directory(self, path: Path) -> bool:
        with _translated(path):
            return path.is_dir()

    def make_directory(self, path: Path) -> None:
        with _translated(path):
            path.mkdir(parents=True, exist_ok=True)

    def rename(self, old: Path, new: Path) -> None:
        with _translated(old):
            os.rename(old, new)

    def remove(self, path: Path) -> None:
        """Remove a file. Do nothing if it does not exist."""
        with _translated(path):
            path.unlink(missing_ok=True)

    def remove_tree(self, path: Path) -> None:
        with _translated(path):
            if path.exists():
                shutil.rmtree(path)

    def room(self, path: Path) -> tuple[int, int]:
        """Return the free bytes and the size of the file system of `path`."""
        with _translated(path):
            found = os.statvfs(path)
            free = 0 if self.is_full else found.f_bavail * found.f_frsize
            return free, found.f_blocks * found.f_frsize

    def descriptors_max(self) -> int:
        """Return the number of descriptors that this process may have."""
        return resource.getrlimit(resource.RLIMIT_NOFILE)[0]

    def descriptors_left(self) -> int:
        """Return the number of files that this process may still open; 0 if that cannot be
        determined."""
        try:
            return max(self.descriptors_max() - len(os.listdir(_OPEN_FILES)), 0)
        except OSError:
            return 0  # listing takes a descriptor, too

    def set_apart(self, path: Path, size: int) -> None:
        """Make a file that occupies `size` bytes of disk space."""
        if self.is_full:
            raise StorageError(StorageFault.FULL, path, DRILLED)
        with _translated(path):
            fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o644)
            try:
                os.posix_fallocate(fd, 0, size)
            finally:
                os.close(fd)

    def modified_ms(self, path: Path) -> int:
        with _translated(path):
            return os.stat(path).st_mtime_ns // 1_000_000

    def set_modified(self, path: Path, modified_ms: int) -> None:
        """Set the file's modification time, in ms since 1970."""
        with _translated(path):
            os.utime(path, ns=(modified_ms * 1_000_000, modified_ms * 1_000_000))

    def together(self, works: Iterable[Callable[[], T]]) -> tuple[T, ...]:
        """Call the functions in parallel threads, and return their results in order; raise the
        first error. The file system can combine syncs that run at the same time."""
        with ThreadPoolExecutor(_THREADS) as threads:
            return tuple(threads.map(lambda work: work(), works))

    def lock(self, path: Path) -> Lock | None:
        """Lock the file, created if necessary, for this process, without waiting. Return None if
        another process has locked it."""
        with _translated(path):
            fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                os.close(fd)
                return None
            return Lock(fd)
