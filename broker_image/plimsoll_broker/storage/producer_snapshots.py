"""ProducerSnapshots: one log's snapshots, `<end offset>.snapshot`, taken at rolls, checkpoints and
clean closes.

Called by `Log`. A snapshot is not needed for correctness, since the batches before it hold the
same. So one that is torn, or another log's or offset's (CRCs show it), is removed and an older one
is used.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from pathlib import Path

from plimsoll_broker.storage import checkpoint_formats
from plimsoll_broker.storage.disk import Disk, StorageError
from plimsoll_broker.storage.segment import Segment, file_name
from plimsoll_core.replica.producer_states import ProducerEntry, ProducerStates

_SUFFIX = ".snapshot"


class PendingSnapshot:
    """A snapshot on its way to the disk. If the disk fails, only the next start takes longer."""

    __slots__ = ("_data", "_disk", "_path", "_written")

    def __init__(self, disk: Disk, path: Path, data: bytes) -> None:
        self._disk = disk
        self._path = path
        self._data = data
        self._written = False

    @property
    def _hidden(self) -> Path:
        return self._path.with_name(self._path.name + ".new.tmp")

    def write(self) -> None:
        """Write it under a hidden name; may run in a thread."""
        with contextlib.suppress(StorageError):
            self._disk.replace(self._hidden, self._data, sync=True)
            self._written = True

    def keep(self) -> None:
        """Give it its name."""
        if self._written:
            with contextlib.suppress(StorageError):
                self._disk.rename(self._hidden, self._path)

    def drop(self) -> None:
        """Remove it: the log was truncated."""
        if self._written:
            with contextlib.suppress(StorageError):
                self._disk.remove(self._hidden)


class ProducerSnapshots:
    """The snapshot files in the log's directory."""

    __slots__ = ("_directory", "_disk")

    def __init__(self, disk: Disk, directory: Path) -> None:
        self._disk = disk
        self._directory = directory

    def offsets(self) -> list[int]:
        """Return the offsets of all snapshots, oldest first."""
        names = (name.removesuffix(_SUFFIX) for name in self._names())
        return sorted(int(name) for name in names if name.isdecimal())

    def _names(self) -> list[str]:
        return [name for name in self._disk.list(self._directory) if name.endswith(_SUFFIX)]

    def _path(self, offset: int) -> Path:
        return self._directory / file_name(offset, _SUFFIX)

    def save(self, end_offset: int, producers: ProducerStates, *, sync: bool) -> None:
        self._disk.replace(self._path(end_offset), self._encoded(end_offset, producers), sync=sync)

    def begin(self, end_offset: int, producers: ProducerStates) -> PendingSnapshot:
        """Return a snapshot to be written in a thread, and named only if the log was not truncated
        meanwhile."""
        data = self._encoded(end_offset, producers)
        return PendingSnapshot(self._disk, self._path(end_offset), data)

    def load(self, offset: int) -> ProducerStates | None:
        """Return the producers as of `offset`, or None if there is no valid snapshot."""
        entries = self._entries(offset)
        return None if entries is None else ProducerStates(entries)

    def _encoded(self, offset: int, producers: ProducerStates) -> bytes:
        return checkpoint_formats.encode_snapshot(producers.snapshot(), self._owner(offset))

    def _entries(self, offset: int) -> list[ProducerEntry] | None:
        data = self._disk.read(self._path(offset))
        if data is None:
            return None
        return checkpoint_formats.decode_snapshot(data, self._owner(offset))

    def _owner(self, offset: int) -> str:
        """Return the log and offset of a snapshot: under another name it is not trusted."""
        return f"{self._directory.name} {offset}"

    def remove(self, above: int) -> bool:
        """Remove snapshots above an offset. Return True if there were any."""
        gone = [offset for offset in self.offsets() if offset > above]
        for offset in gone:
            self._disk.remove(self._path(offset))
        return bool(gone)

    def prune(self, bases: frozenset[int]) -> None:
        """Keep the newest and those at the start of segments; every clean stop leaves one more."""
        offsets = self.offsets()
        for offset in offsets[:-1]:
            if offset not in bases:
                self._disk.remove(self._path(offset))

    def remove_below(self, offset: int) -> None:
        """Remove snapshots that only describe deleted records."""
        for each in self.offsets():
            if each < offset:
                self._disk.remove(self._path(each))

    def restore(self, producers: ProducerStates, log_end: int) -> int:
        """Load the newest valid snapshot. Return the offset from which batches must be replayed:
        all that exist, also below the log start, which may lie within a batch."""
        self.remove(above=log_end)
        producers.clear()
        for offset in reversed(self.offsets()):
            entries = self._entries(offset)
            if entries is not None:
                producers.restore(entries)
                return offset
            self._disk.remove(self._path(offset))
        return 0

    def rebuild(self, producers: ProducerStates, segments: Sequence[Segment], log_end: int) -> None:
        """Rebuild the state at the log end: the newest valid snapshot, and the batches since."""
        start = self.restore(producers, log_end)
        for segment, following in zip(segments, [*segments[1:], None], strict=True):
            if following is not None and following.base_offset <= start:
                continue
            segment.replay(start, producers)
