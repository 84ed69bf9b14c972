"""ProducerSnapshots: one log's snapshots of producer states, `<end offset>.snapshot`, taken at
rolls, checkpoints and clean closes.

Called by `Log`. A snapshot is not needed for correctness, since the batches before it hold the
same. So a snapshot that is incomplete, or of another log or offset (CRCs show it), is removed and
an older one is used.
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
    """A producer snapshot that is written but not used yet. `write` is called in a thread, then
    `keep` or `drop` in the event loop. A disk error is ignored: without the snapshot only the next
    recovery takes longer."""

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
        """Write and sync the snapshot under a temporary name. May run in a thread. A disk error is
        ignored; `keep` then does nothing."""
        with contextlib.suppress(StorageError):
            self._disk.replace(self._hidden, self._data, sync=True)
            self._written = True

    def keep(self) -> None:
        """Rename the written snapshot to its final name, so that recovery uses it."""
        if self._written:
            with contextlib.suppress(StorageError):
                self._disk.rename(self._hidden, self._path)

    def drop(self) -> None:
        """Remove the snapshot, since the log was truncated meanwhile."""
        if self._written:
            with contextlib.suppress(StorageError):
                self._disk.remove(self._hidden)


class ProducerSnapshots:
    """The producer snapshot files in one log's directory, each with the producer states at the
    offset in its name."""

    __slots__ = ("_directory", "_disk")

    def __init__(self, disk: Disk, directory: Path) -> None:
        self._disk = disk
        self._directory = directory

    def offsets(self) -> list[int]:
        """Return the offsets of all snapshots, in increasing order."""
        names = (name.removesuffix(_SUFFIX) for name in self._names())
        return sorted(int(name) for name in names if name.isdecimal())

    def _names(self) -> list[str]:
        return [name for name in self._disk.list(self._directory) if name.endswith(_SUFFIX)]

    def _path(self, offset: int) -> Path:
        return self._directory / file_name(offset, _SUFFIX)

    def save(self, end_offset: int, producers: ProducerStates, *, sync: bool) -> None:
        """Write a snapshot of the producers at `end_offset` at once. `sync`: True to sync it to the
        disk."""
        self._disk.replace(self._path(end_offset), self._encoded(end_offset, producers), sync=sync)

    def begin(self, end_offset: int, producers: ProducerStates) -> PendingSnapshot:
        """Return a snapshot of the producers at `end_offset` that a thread can write."""
        data = self._encoded(end_offset, producers)
        return PendingSnapshot(self._disk, self._path(end_offset), data)

    def load(self, offset: int) -> ProducerStates | None:
        """Return the producer states at `offset`, or None if there is no valid snapshot for it."""
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
        """Return the text that binds a snapshot to this log and offset, so that a file copied or
        renamed is not trusted."""
        return f"{self._directory.name} {offset}"

    def remove(self, above: int) -> bool:
        """Delete the snapshots with an offset above `above` (exclusive). Return True if there were
        any."""
        gone = [offset for offset in self.offsets() if offset > above]
        for offset in gone:
            self._disk.remove(self._path(offset))
        return bool(gone)

    def prune(self, bases: frozenset[int], committed: int | None = None) -> None:
        """Remove all snapshots except the newest one, the newest one at or below `committed`, and
        those at the base offsets of segments. `bases`: these base offsets. `committed`: a clean
        election truncates the log no further, and what is left is read from that snapshot on; None
        if it is unknown."""
        offsets = self.offsets()
        kept = {*bases, *offsets[-1:]}
        if committed is not None:
            kept |= {*[offset for offset in offsets if offset <= committed][-1:]}
        for offset in offsets:
            if offset not in kept:
                self._disk.remove(self._path(offset))

    def remove_below(self, offset: int) -> None:
        """Remove the snapshots below `offset`, which describe deleted records only."""
        for each in self.offsets():
            if each < offset:
                self._disk.remove(self._path(each))

    def restore(self, producers: ProducerStates, log_end: int) -> int:
        """Replace the producer states by the newest valid snapshot at or below `log_end`, and
        return its offset, from which the caller must replay batches. Without one, clear the states
        and return 0, so that all batches are replayed. Transactions known to be decided stay so.
        Snapshots above `log_end` and invalid ones are deleted."""
        self.remove(above=log_end)
        decided_end = min(producers.transactions.decided_end, log_end)
        producers.clear()
        producers.transactions.committed(decided_end)
        for offset in reversed(self.offsets()):
            entries = self._entries(offset)
            if entries is not None:
                producers.restore(entries)
                return offset
            self._disk.remove(self._path(offset))
        return 0

    def rebuild(self, producers: ProducerStates, segments: Sequence[Segment], log_end: int) -> None:
        """Replace the producer states by those at the log end: the newest valid snapshot, with the
        batches after it applied."""
        start = self.restore(producers, log_end)
        for segment, following in zip(segments, [*segments[1:], None], strict=True):
            if following is not None and following.base_offset <= start:
                continue
            segment.replay(start, producers)
