"""LogStore: a broker's volume: its owner, its lock, and every log on it.

Called by `node.broker` (open, identify, clean stop) and by the replica manager (logs). It follows
the protocol's local storage order: the clean-shutdown marker is read and removed before anything
else, and written after everything else.

`DeletedDirectories`: directories of deleted logs and strays. They are renamed at once, and removed
a minute or a day later. A stray's name holds the time when it became one, so that it is removed
even if the broker restarts every day.

`NewLogs`: new logs, with a directory that a power cut may still remove. Each must be durable before
its first record. A thread removes logs that it made durable, while the event loop may give the same
name to another topic's log.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from uuid import UUID, uuid4

from plimsoll_broker.storage import checkpoint_formats, volume_owner
from plimsoll_broker.storage.checkpoint_files import CheckpointFiles, CheckpointLines
from plimsoll_broker.storage.checkpoint_formats import PARTITION_METADATA, Meta, Partition
from plimsoll_broker.storage.cleaner.round import CleaningWork
from plimsoll_broker.storage.disk import Disk, Lock, StorageError, StorageFault
from plimsoll_broker.storage.log import Log
from plimsoll_broker.storage.log_config import LogConfig
from plimsoll_broker.storage.log_reading import RecentMemory
from plimsoll_broker.storage.log_values import Known, LogPlace
from plimsoll_broker.storage.recovery import load_log, new_log
from plimsoll_broker.storage.segment_room import SegmentRoom
from plimsoll_broker.storage.volume_owner import VolumeRefused
from plimsoll_core.replica.producer_states import ProducerMemory

logger = logging.getLogger("plimsoll.log_store")
DELETE_DELAY_MS = 60_000
STRAY_DELAY_MS = 24 * 3600 * 1000
DELETE = "-delete"
STRAY = "-stray"
_NAME_MAX = 255


class DeletedDirectories:
    """Renames the directories of deleted and stray logs, and keeps the time when each is to be
    removed. `now_ms`: the monotonic clock of the caller. `unsynced`: True if a power cut may
    restore the old name of a renamed directory; the next start then renames it again."""

    __slots__ = ("_directory", "_disk", "_due_ms", "unsynced")

    def __init__(self, disk: Disk, directory: Path) -> None:
        self._disk = disk
        self._directory = directory
        self._due_ms: dict[Path, int] = {}
        self.unsynced = False

    def found(self, path: Path, now_ms: int) -> bool:
        """If the name of a directory found at a start shows that it was renamed for removal,
        schedule the removal and return True: of a deleted log now, of a stray after the rest of its
        day. Otherwise return False."""
        if path.name.endswith(DELETE):
            self._due_ms[path] = now_ms
        elif path.name.endswith(STRAY):
            self._due_ms[path] = now_ms + _left_ms(path.name)
        else:
            return False
        return True

    def move(self, path: Path, suffix: str, now_ms: int) -> Path:
        """Rename the directory with this suffix, DELETE or STRAY, and schedule its removal for a
        minute or a day later. Return its new path."""
        since = f"{_wall_ms()}." if suffix == STRAY else ""
        tail = f".{since}{uuid4().hex}{suffix}"
        moved = path.with_name(path.name[: _NAME_MAX - len(tail)] + tail)
        self._disk.rename(path, moved)
        self.unsynced = True
        delay_ms = STRAY_DELAY_MS if suffix == STRAY else DELETE_DELAY_MS
        self._due_ms[moved] = now_ms + delay_ms
        return moved

    def sync(self) -> None:
        """Make the new names of renamed directories durable. May run in a thread."""
        self.unsynced = False
        self._disk.sync_directory(self._directory)

    def again(self, path: Path, now_ms: int) -> None:
        """Schedule the removal of a directory again, a minute later, after a failure."""
        self._due_ms[path] = now_ms + DELETE_DELAY_MS

    def due(self, now_ms: int) -> list[Path]:
        """Remove from the schedule, and return, the directories with a removal time at or before
        `now_ms`. The caller deletes them in a thread, since a large one takes long."""
        due = [path for path, due_ms in self._due_ms.items() if due_ms <= now_ms]
        for path in due:
            del self._due_ms[path]
        return due


def _wall_ms() -> int:
    """Return the wall clock in ms."""
    return time.time_ns() // 1_000_000


def _left_ms(name: str) -> int:
    """Return the ms until a stray directory of this name is to be removed: the rest of its day, or
    a whole day if the name holds no valid time."""
    parts = name.removesuffix(STRAY).split(".")
    since = parts[-2] if len(parts) > 2 else ""
    if not since.isdecimal():
        return STRAY_DELAY_MS
    passed_ms = max(_wall_ms() - int(since), 0)
    return max(STRAY_DELAY_MS - passed_ms, 0)


class NewLogs:
    """The logs that were made and may not survive a power cut yet. Each must be made durable before
    its first append."""

    def __init__(self, disk: Disk, directory: Path) -> None:
        self._disk = disk
        self._directory = directory
        self._new: dict[Partition, Path] = {}
        self._changing = threading.Lock()
        # New logs whose sync failed: a repeated sync may succeed although the first lost data.
        # Their appends raise the error.
        self._undurable: dict[Partition, StorageError] = {}

    def add(self, partition: Partition, log: Log) -> None:
        """Add an empty log, which is made durable by its first append if not before. Either it is
        new, or the process that made it may have died before it was durable."""
        with self._changing:
            self._new[partition] = log.directory
        log.make_durable = partial(self._make_one_durable, partition)

    def forget(self, partition: Partition) -> None:
        """Remove a log from this set, because it is closed."""
        self._new.pop(partition, None)
        self._undurable.pop(partition, None)

    def reopened(self, partition: Partition, log: Log) -> None:
        """If this set has the log, have the reopened log made durable again, even after a failed
        sync."""
        if partition in self._new:
            self._undurable.pop(partition, None)
            log.make_durable = partial(self._make_one_durable, partition)

    def __bool__(self) -> bool:
        return bool(self._new)

    def among(self, partitions: Iterable[Partition]) -> list[Partition]:
        """Return those of these partitions, in order, with a log that was made here and is not
        durable yet."""
        return [at for at in partitions if at in self._new] if self._new else []

    def begin_of(self, partitions: Iterable[Partition]) -> Callable[[], None]:
        """Return a function that makes the logs of these partitions durable. It may run in a
        thread."""
        return partial(self._make_durable, partitions)

    def begin(self) -> Callable[[], None] | None:
        """Return a function that makes all new logs durable, except those with a failed sync, and
        may run in a thread. Return None if there are none."""
        new = tuple(at for at in self._new if at not in self._undurable)
        return partial(self._make_durable, new) if new else None

    def _make_durable(self, partitions: Iterable[Partition]) -> None:
        """Sync the files and names of these partitions' logs, and remove the logs from the set. A
        log with a failed sync stays in the set, and its first append raises the error."""
        wanted = [at for at in partitions if at not in self._undurable]
        paths = {at: path for at in wanted if (path := self._new.get(at)) is not None}
        failed = {at: error for at, path in paths.items() if (error := _sync(self._disk, path))}
        if paths:
            try:
                self._disk.sync_directory(self._directory)
            except StorageError as error:
                failed = dict.fromkeys(paths, error)
        for partition, path in paths.items():
            with self._changing:
                if self._new.get(partition) is not path:
                    continue
                if partition in failed:
                    self._undurable[partition] = failed[partition]
                else:
                    self._new.pop(partition, None)

    def _make_one_durable(self, partition: Partition) -> None:
        """Make one log durable. Raise StorageError if that fails or has failed before."""
        self._make_durable((partition,))
        if (error := self._undurable.get(partition)) is not None:
            raise error


def _sync(disk: Disk, path: Path) -> StorageError | None:
    """Sync a new log's files. Return the error of a failed sync. Return None if it succeeded or the
    log was deleted meanwhile."""
    if not disk.exists(path):
        return None
    try:
        disk.sync(path / PARTITION_METADATA)
        disk.sync_directory(path)
    except StorageError as error:
        return error if disk.exists(path) else None
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """A partition's directory found at a start. `topic_id`: None if it is unknown, so that the log
    must not be served. `damaged`: True if the file with the topic id is missing or invalid although
    the log should have one."""

    topic: str
    index: int
    topic_id: UUID | None
    path: Path
    damaged: bool = False


class LogStore(CheckpointFiles):
    """One broker's volume: a directory with a subdirectory for each partition's log, and the
    checkpoint files. Used by `node.broker` and the replica manager."""

    def __init__(self, directory: Path, disk: Disk | None = None) -> None:
        super().__init__(directory, disk if disk is not None else Disk())
        self.clean_epoch: int | None = None
        # Does the work of compaction; None: in a thread.
        self.cleaning: CleaningWork | None = None
        # Free bytes and size of the volume as of the last look (`full_disks`); None: none yet.
        self.room: tuple[int, int] | None = None
        # Memory that all logs share: newest batches, segments and producers.
        self.recent = RecentMemory()
        self.segment_room = SegmentRoom()
        # The number of replicas for which there is memory and descriptors; None: unknown.
        self.partitions_max: int | None = None
        self.producers = ProducerMemory()
        self._lock: Lock | None = None
        # Deleted and stray directories, until they are removed.
        self.deleted = DeletedDirectories(self.disk, directory)
        self._early: set[Partition] = set()
        self.new_logs = NewLogs(self.disk, directory)
        self._unopened: set[Partition] = set()

    # --- owner -----------------------------------------------------------------------------------

    def open(self) -> VolumeRefused | None:
        """Create the directory if necessary and lock it. Return the refusal if another process
        holds the lock, otherwise None."""
        self.disk.allow_many_files()
        self.disk.make_directory(self.directory)
        self._lock = self.disk.lock(self.directory / ".lock")
        if self._lock is None:
            return VolumeRefused(
                reason="VolumeInUse",
                message=(
                    f"another process uses the log directory {self.directory}: stop that process "
                    "first"
                ),
            )
        return None

    @property
    def meta(self) -> Meta | None:
        """The volume's identity, read from two files of which one may be damaged. None if the
        volume is not formatted."""
        return volume_owner.read(self.disk, self.directory)

    def identify(self, cluster_id: UUID, node_id: int) -> VolumeRefused | None:
        """Return the refusal if the volume belongs to another broker or cluster. Return None if it
        is not formatted, or belongs to this broker; then both identity files are repaired if
        necessary."""
        meta = self.meta
        if meta is None:
            return None
        refused = volume_owner.refusal(meta, self.directory, cluster_id, node_id)
        if refused is None:
            volume_owner.keep(self.disk, self.directory, meta)
        return refused

    def format(self, cluster_id: UUID, node_id: int, directory_id: UUID) -> Meta:
        """Write the identity of this broker to an empty volume, and return it."""
        meta = Meta(cluster_id=cluster_id, node_id=node_id, directory_id=directory_id)
        volume_owner.keep(self.disk, self.directory, meta)
        return meta

    def take_clean_marker(self) -> int | None:
        """Remove the marker of a clean stop, record its broker epoch as `clean_epoch` and return
        it. Return None if the last stop was not clean. Call it before registering."""
        self.clean_epoch = volume_owner.take_marker(self.disk, self.directory)
        return self.clean_epoch

    def doubt_logs(self, replicated: Callable[[str, int], bool], now_ms: int) -> None:
        """Treat the last stop as unclean, and set aside the logs of partitions that are
        `replicated`, durably. Call it before `load`. Raise StorageError."""
        self.clean_epoch = None
        for name in self.disk.list(self.directory):
            path = self.directory / name
            partition = checkpoint_formats.partition_of(name)
            if partition is not None and replicated(*partition) and self.disk.is_directory(path):
                self.deleted.move(path, STRAY, now_ms)
        self.deleted.sync()

    # --- what is there ----------------------------------------------------------------------------

    def load(self, now_ms: int) -> list[Found]:
        """Read the checkpoint files, and return the partitions' directories. Directories of deleted
        and stray logs are scheduled for removal instead; any other name is ignored. After an
        unclean stop, forget the recovery points of partitions without a directory."""
        # The previous process may have died before its sync: what is read must survive a power cut.
        self.disk.sync_directory(self.directory)
        self.load_checkpoints()
        found = []
        for name in self.disk.list(self.directory):
            path = self.directory / name
            if not self.disk.is_directory(path):
                continue
            if self.deleted.found(path, now_ms):
                continue
            if (partition := checkpoint_formats.partition_of(name)) is not None:
                topic, index = partition
                data = self.disk.read(path / checkpoint_formats.PARTITION_METADATA)
                topic_id = checkpoint_formats.decode_partition_metadata(data or b"")
                damaged = topic_id is None and (data is not None or _counted_on(self, partition))
                found.append(
                    Found(topic=topic, index=index, topic_id=topic_id, path=path, damaged=damaged)
                )
        if self.clean_epoch is None:
            # The cluster counts on no record here: missing logs may start anew, also after the next
            # clean stop.
            self._recovery_points.forget_but({(one.topic, one.index) for one in found})
        return found

    # --- logs -------------------------------------------------------------------------------------

    def open_log(
        self,
        topic: str,
        topic_id: UUID,
        index: int,
        config: LogConfig,
        now_ms: int,
        *,
        evenly: bool = False,
    ) -> Log:
        """Return the partition's log: an existing one, recovered if the last stop was not clean, or
        a new one. `evenly`: True if all logs of a start are opened one by one (see
        `ProducerStates.share`). Raise StorageError.

        A directory of another topic under this name is set aside first.
        """
        partition = (topic, index)
        if partition in self._early:
            self._early.discard(partition)
            early = self.logs[partition]
            if early.topic_id == topic_id:
                return early
            self.strand_log(early, now_ms)
        assert partition not in self.logs, "one log, one owner"
        self._unopened.add(partition)  # until it is open: otherwise it was not closed cleanly
        path = self.directory / f"{topic}-{index}"
        known = Known(
            recovery_point=self._recovery_points.get(partition),
            log_start_offset=self._log_starts.get(partition),
            saved_start=self._log_starts.get(partition),
            noted_start=self.beginnings.get(partition),
            high_watermark=self._high_watermarks.get(partition),
            clean=self.clean_epoch is not None,
        )
        there = _is_there(self, partition, path, topic_id)
        if there is False:
            self.set_aside(path, now_ms)
        place = _place(self, path, topic, topic_id, index)
        notes = CheckpointLines(self, partition)
        if there:
            log = _loaded(partial(load_log, place, config, known, notes), path)
        else:
            self._forget(partition)
            self._forget_on_disk(partition)
            self.disk.make_directory(path)
            data = checkpoint_formats.encode_partition_metadata(topic_id)
            self.disk.replace(path / checkpoint_formats.PARTITION_METADATA, data, sync=False)
            log = _loaded(partial(new_log, place, config, notes), path)
        log.superseding_lost = self.superseding_lost(log)
        for offsets in (self._high_watermarks, self.cleaned_ends):
            offsets.lower(partition, log.log_end_offset)
        if not log.size:  # new, or made by a process that may have died before it was durable
            self.new_logs.add(partition, log)
        log.producers.share(self.producers, evenly=evenly)
        self.logs[partition] = log
        self._unopened.discard(partition)
        return log

    def begin_new(self) -> Callable[[], None] | None:
        """Return a function that makes new logs durable, and the renames of directories with what
        the checkpoints have forgotten, and may run in a thread. Return None if there is nothing to
        do. An append makes its own log durable if it comes before that function."""
        made = self.new_logs.begin()
        if not self.deleted.unsynced:
            return made
        deleted = self.deleted.sync, self.begin_forget()
        works = deleted if made is None else (made, *deleted)

        def sync() -> None:
            for work in works:
                work()

        return sync

    def open_early(
        self, topic: str, topic_id: UUID, index: int, config: LogConfig, now_ms: int
    ) -> None:
        """Recover a log at a start, or create it, and hold it for a later `open_log`, which returns
        it. The caller recovers the logs one by one in a thread, while the event loop runs other
        tasks. Raise StorageError."""
        self.open_log(topic, topic_id, index, config, now_ms, evenly=True)
        self._early.add((topic, index))

    def delete_log(self, log: Log, now_ms: int) -> None:
        """Close and delete the log of a dropped replica: rename its directory now, and schedule its
        removal for a minute later."""
        self._release(log, DELETE, now_ms)

    def strand_log(self, log: Log, now_ms: int) -> Path:
        """Close a log that must not be served and set its directory aside for a day, so that a
        person can inspect it. Return the directory's new path."""
        return self._release(log, STRAY, now_ms)

    def _release(self, log: Log, suffix: str, now_ms: int) -> Path:
        """Close the log, forget its checkpoints, and rename its directory with this suffix. Return
        the new path."""
        partition = (log.topic, log.index)
        assert self.logs.pop(partition) is log
        self.new_logs.forget(partition)
        self._forget(partition)
        log.close(clean=False)
        return self.deleted.move(log.directory, suffix, now_ms)

    def set_aside(self, path: Path, now_ms: int) -> Path:
        """Rename a directory that must not be served, close its log if that was opened early, and
        forget its checkpoints. Return the new path. The directory is removed after a day."""
        partition = checkpoint_formats.partition_of(path.name)
        if partition is not None and partition in self._early:
            self._early.discard(partition)
            return self.strand_log(self.logs[partition], now_ms)
        if partition is not None:
            self._forget(partition)
        return self.deleted.move(path, STRAY, now_ms)

    # --- after a full disk ------------------------------------------------------------------------

    def begin_reopen(self, log: Log) -> Callable[[], Log]:
        """Return a function that opens the log anew, as after a crash, and may run in a thread. The
        producers of the new log do not count against the memory budget until `reopened`. The caller
        must hold the log's partition in `reopening` from before this call until `reopened`, so that
        nothing else uses the directory."""
        partition = (log.topic, log.index)
        place = _place(self, log.directory, log.topic, log.topic_id, log.index)
        known = Known(
            recovery_point=log.recovery_point,
            log_start_offset=log.log_start_offset,
            saved_start=self.saved_log_start(log),
            noted_start=self.beginnings.saved(partition),
            high_watermark=self._high_watermarks.get(partition),
        )
        load = partial(load_log, place, log.config, known, CheckpointLines(self, partition))
        return partial(_loaded, load, log.directory)

    def reopened(self, old: Log, log: Log) -> None:
        """Put the log opened by `begin_reopen` in the place of the old one, count its producers
        against the memory budget, and lower checkpoints above its end. Called in the event loop."""
        partition = (log.topic, log.index)
        assert self.logs[partition] is old
        self.logs[partition] = log
        log.beginning_lost = log.beginning_lost or old.beginning_lost
        log.superseding_lost = self.superseding_lost(log)
        old.producers.clear()  # the new one knows them
        old.uncount_segments()
        log.configure(log.config)  # counts its segments
        log.producers.share(self.producers)
        self.new_logs.reopened(partition, log)
        for offsets in (self._high_watermarks, self.cleaned_ends):
            offsets.lower(partition, log.log_end_offset)

    # --- the end ----------------------------------------------------------------------------------

    def close(self, broker_epoch: int | None, high_watermarks: Mapping[Partition, int]) -> bool:
        """Flush and close all logs, save the checkpoints and release the lock. Only if every log
        was opened and closed without an error, write the marker and return True; otherwise return
        False.

        `broker_epoch`: the epoch to write into the marker; None if this process never registered or
        must not count as cleanly stopped; then no marker is written. `high_watermarks`: by topic
        name and index."""
        closing = [partial(_closed_cleanly, log) for log in self.logs.values()]
        clean = all(self.disk.together(closing))
        clean = clean and not self._unopened
        try:
            if self.deleted.unsynced:
                self.deleted.sync()
            self.save_all_log_starts()
            self.checkpoint_recovery_points()
            self.checkpoint_high_watermarks(high_watermarks)
            if clean and broker_epoch is not None:
                volume_owner.write_marker(self.disk, self.directory, broker_epoch)
        except StorageError:
            clean = False
        self.logs.clear()
        self.release_lock()
        return clean and broker_epoch is not None

    def release_lock(self) -> None:
        """Release the lock of the directory, if this process holds it."""
        if self._lock is not None:
            self._lock.release()
            self._lock = None


def _is_there(store: LogStore, partition: Partition, path: Path, topic_id: UUID) -> bool | None:
    """Return True if the directory is this partition's, False if it is another topic's, so that it
    must be set aside, and None if there is none. Raise StorageError if, after a clean stop, the
    directory is missing or does not name its topic, because the cluster may count on its
    records."""
    exists = store.disk.exists(path)
    data = store.disk.read(path / checkpoint_formats.PARTITION_METADATA) if exists else None
    found = checkpoint_formats.decode_partition_metadata(data or b"")
    gone = not exists and store.flushed_at_stop(partition) is not None
    untold = found is None and (data is not None or (exists and _counted_on(store, partition)))
    if store.clean_epoch is not None and (gone or untold):
        why = (
            "the log directory is missing"
            if gone
            else "the file partition.metadata does not name the partition of this directory"
        )
        raise StorageError(StorageFault.CORRUPT, path, why)
    return found == topic_id if exists else None


def _counted_on(store: LogStore, partition: Partition) -> bool:
    """Return True if the last stop was clean and left records in the partition's log."""
    return store.clean_epoch is not None and bool(store.flushed_at_stop(partition))


def _place(store: LogStore, path: Path, topic: str, topic_id: UUID, index: int) -> LogPlace:
    return LogPlace(
        disk=store.disk,
        directory=path,
        topic=topic,
        topic_id=topic_id,
        index=index,
        recent=store.recent,
        room=store.segment_room,
    )


def _loaded(load: Callable[[], Log], directory: Path) -> Log:
    """Return the log that `load` opens. Turn any other error than a StorageError, such as a bug,
    into a StorageError of this log alone, so that the broker starts and only this replica is
    offline."""
    try:
        return load()
    except StorageError:
        raise
    except Exception as error:
        logger.exception(
            "internal error of the broker while it loaded log %s: the replica is offline until "
            "this broker is restarted; please report the error with this traceback",
            directory,
        )
        why = f"{type(error).__name__}: {error}"
        raise StorageError(StorageFault.CORRUPT, directory, why) from error


def _closed_cleanly(log: Log) -> bool:
    """Close the log cleanly. Return False if its disk failed."""
    try:
        log.close(clean=True)
    except StorageError:
        return False
    return True
