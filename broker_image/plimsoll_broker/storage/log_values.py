"""The values that a log consists of and returns.

`EpochFile`: a log's `leader-epoch-checkpoint`, and how far it has been written and synced. Leader
epochs above the recovery point are read from the batches again, so the file is written with every
flush and synced only if it has changed.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple, Protocol
from uuid import UUID

from plimsoll_broker.storage import checkpoint_formats
from plimsoll_broker.storage.disk import Disk, DiskFile
from plimsoll_broker.storage.log_reading import RecentMemory
from plimsoll_broker.storage.producer_snapshots import PendingSnapshot
from plimsoll_broker.storage.segment import Segment
from plimsoll_broker.storage.segment_room import SegmentRoom
from plimsoll_core.replica.leader_epochs import EpochCache
from plimsoll_core.replica.producer_states import ProducerStates


@dataclass(frozen=True, slots=True, kw_only=True)
class LogPlace:
    """The identity of a log, its directory, and the shared objects with which it is opened.
    `recent`: the memory for newest batches, which all logs of a broker share, as they share the
    `room` for segments."""

    disk: Disk
    directory: Path
    topic: str
    topic_id: UUID
    index: int
    recent: RecentMemory = field(default_factory=RecentMemory)
    room: SegmentRoom = field(default_factory=SegmentRoom)


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """The checkpoints of one log, as their files state them; None if a file has no entry for the
    log. `saved_start`: the log start on the disk; `log_start_offset` may be a later one from
    memory. `noted_start`: an offset at or after the start of the log's first file; a first file
    that starts later shows that the log has lost its beginning. `high_watermark`: records below it
    are committed. `clean`: True if the last stop was clean."""

    recovery_point: int | None = None
    log_start_offset: int | None = None
    saved_start: int | None = None
    noted_start: int | None = None
    high_watermark: int | None = None
    clean: bool = False


class LogNotes(Protocol):
    """The checkpoints that must be changed before a log changes its own files. Each method raises
    StorageError. `CheckpointLines` implements it."""

    def before_cut(self, offset: int) -> None: ...
    def before_discard(self, offset: int) -> None: ...
    def before_second_file(self, start: int) -> None: ...
    def begins(self, start: int) -> None: ...
    def supersedes_below(self, end: int) -> None: ...


@dataclass(slots=True, kw_only=True)
class LogContents:
    """The segments, leader epochs and producers that recovery found or made in a log's directory.
    `rebuilt`: the segments with rebuilt indexes, which may not be on the disk. `beginning_lost`:
    True if the log was noted to start earlier than its first file."""

    segments: list[Segment]
    rebuilt: list[Segment]
    log_start_offset: int
    log_end_offset: int
    recovery_point: int
    epochs: EpochCache
    producers: ProducerStates
    beginning_lost: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Settling:
    """The files and the directory to sync after a truncation, before the next append. `sync` may
    run in a thread; `Log.settled` must be called in the event loop. `cuts`, `renames`: the log's
    counts of truncations and renames when it was made."""

    files: tuple[DiskFile, ...]
    disk: Disk
    names: Path
    renames: int
    cuts: int

    def sync(self) -> None:
        for file in self.files:
            file.fsync()
        self.disk.sync_directory(self.names)


class EpochFileVersion(NamedTuple):
    """The path of a `leader-epoch-checkpoint`, and the version of the leader epochs in it."""

    path: Path
    version: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Flush:
    """The files that a flush must sync. `sync` may run in a thread; `Log.flushed` must be called in
    the event loop.

    `up_to_offset`: the log end when this object was made. `cuts`: the number of truncations by
    then. `active`: the active segment and its size by then. `indexes`: the sealed segments with
    indexes among the files. `names`: the directory if files were made or removed since its last
    sync, otherwise None; `renames`: the number of such changes. `terms`: the file of leader epochs,
    None if the disk has the newest. `snapshot`: a checkpoint's producer snapshot, written after
    everything else.
    """

    up_to_offset: int
    files: tuple[DiskFile, ...]
    disk: Disk
    names: Path | None
    renames: int
    terms: EpochFileVersion | None
    cuts: int
    active: tuple[Segment, int]
    indexes: tuple[Segment, ...]
    snapshot: PendingSnapshot | None = None

    def sync(self) -> None:
        """Sync all files and directories of this flush. Raise StorageError."""
        for file in self.files:
            file.fsync()
        if self.terms is not None:
            self.disk.sync(self.terms.path)
        if self.names is not None:
            self.disk.sync_directory(self.names)
        if self.snapshot is not None:
            self.snapshot.write()


class EpochFile:
    """Writes a log's `leader-epoch-checkpoint`: the whole file, and only if the leader epochs have
    changed."""

    __slots__ = ("_disk", "_epochs", "_path", "_saved", "_synced")

    def __init__(self, disk: Disk, directory: Path, epochs: EpochCache) -> None:
        self._disk = disk
        self._path = directory / checkpoint_formats.EPOCHS
        self._epochs = epochs
        self._saved = -1
        self._synced = -1

    def begin(self) -> EpochFileVersion | None:
        """Write the present leader epochs to the file without a sync, if the file has others, and
        return the file and its version; the caller syncs the file and its directory, then calls
        `synced`. Return None if the disk already has this version."""
        version = self._epochs.version
        if self._synced == version:
            return None
        if self._saved != version:
            data = checkpoint_formats.encode_epochs(self._epochs.entries)
            self._disk.replace(self._path, data, sync=False)
            self._saved = version
        return EpochFileVersion(self._path, version)

    def synced(self, terms: EpochFileVersion | None) -> None:
        """Note that the file that `begin` returned has been synced."""
        if terms is not None:
            self._synced = max(self._synced, terms.version)
