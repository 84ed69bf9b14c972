"""The values that a log is made of and hands out."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple, Protocol
from uuid import UUID

from plimsoll_broker.storage.disk import Disk, DiskFile
from plimsoll_broker.storage.producer_snapshots import PendingSnapshot
from plimsoll_broker.storage.recent_batches import RecentMemory
from plimsoll_broker.storage.segment import Segment
from plimsoll_core.replica.leader_epochs import EpochCache
from plimsoll_core.replica.producer_states import ProducerStates


@dataclass(frozen=True, slots=True, kw_only=True)
class LogPlace:
    """Which partition's log, and where it is.  `recent`: what the newest batches of all logs of its
    broker have together."""

    disk: Disk
    directory: Path
    topic: str
    topic_id: UUID
    index: int
    recent: RecentMemory = field(default_factory=RecentMemory)


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """What the checkpoints say of a log; None where they say nothing.  `saved_start`: the start
    that is on the disk, where `log_start_offset` may be a later one; `noted_start`: it begins there
    or before, or has lost its beginning."""

    recovery_point: int | None = None
    log_start_offset: int | None = None
    saved_start: int | None = None
    noted_start: int | None = None
    clean: bool = False


class LogNotes(Protocol):
    """What the checkpoints say of a log, where that must change before the log does; each raises
    StorageError where the disk does not take it."""

    def before_cut(self, offset: int) -> None: ...
    def before_discard(self, offset: int) -> None: ...
    def before_second_file(self, start: int) -> None: ...
    def begins(self, start: int) -> None: ...
    def supersedes_below(self, end: int) -> None: ...


@dataclass(slots=True, kw_only=True)
class LogContents:
    """What was found (or made) there.  `rebuilt`: segments whose indexes were made again, and may
    not have reached the disk; `beginning_lost`: it was noted to begin earlier."""

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
    """What must be synced after a cut, before the next append; `sync` may run in a thread,
    `Log.settled` may not.  `cuts`, `renames`: how many there had been."""

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
    """A `leader-epoch-checkpoint` as it was written for one version of the terms."""

    path: Path
    version: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Flush:
    """What a flush has to sync; `sync` may run in a thread, `Log.flushed` may not.

    `cuts`: how often the log had been cut when it began.  `active`: the active segment and its
    size then.  `indexes`: sealed segments whose indexes are among the files.  `names`: where files
    were made or removed since they were last synced; `renames`: how often that had happened.
    `terms`: the file of the terms, where it has newer ones, of that version.  `snapshot`: a
    checkpoint has one, for after everything else is synced.
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
        for file in self.files:
            file.fsync()
        if self.terms is not None:
            self.disk.sync(self.terms.path)
        if self.names is not None:
            self.disk.sync_directory(self.names)
        if self.snapshot is not None:
            self.snapshot.write()
