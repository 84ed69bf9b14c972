"""The metadata log in a directory: for `plimsoll local`, and for tests without Kubernetes.

One append-only file at a time, fsynced before an append returns; a torn last line is cut when the
log is opened. An flock on the directory excludes a second process. If the lock is lost all the same
(a network file system), the end of the file serves as compare-and-set: a writer appends only where
it knows the log to end, else it raises `AppendConflict`. Called by the controller. The module
interprets no record but `SnapshotTaken`. It raises `OSError` for failures of the system and
`LogCorrupt` for bytes that no writer can have written.

- `cluster.json`: the cluster that owns this log.
- `batches-<first sequence>.jsonl`: one batch a line. Only the last line of the newest file may be
  torn, by a crash in mid-write.
- `snapshot-<end>-<epoch>-<random>.zlib`: a line of JSON, then the compressed image.
- `restored-<sequence>.json`: the end of a restored history. Earlier batches belong to another one.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import secrets
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from uuid import UUID

import msgspec

from plimsoll_core.cluster.records import SnapshotTaken
from plimsoll_operator.metalog import codec, log_integrity
from plimsoll_operator.metalog.interface import (
    NOT_OPEN,
    AppendConflict,
    AppendRefused,
    Batch,
    LogCorrupt,
    LogRegressed,
    LogUnavailable,
    OpenedLog,
    RestoredHistory,
    Snapshot,
    SnapshotEnd,
)

CLUSTER_FILE = "cluster.json"
BATCHES_GLOB = "batches-*.jsonl"
SNAPSHOTS_GLOB = "snapshot-*.zlib"
RESTORED_GLOB = "restored-*.json"


class ClusterFile(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    cluster_id: str
    version: int = 1


class SnapshotHeader(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    end_offset: int
    last_sequence: int
    nonce: str
    controller_epoch: int
    image_size: int
    sha256: str


class RestoredFile(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The end of a restored history: the sequence that it has used, end offset and last nonce."""

    sequence: int
    end_offset: int
    nonce: str


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchFile:
    """The batches read from one file. The first `good_bytes` of the file are complete, valid lines;
    `torn` is True if something incomplete follows them."""

    path: Path
    batches: tuple[Batch, ...]
    good_bytes: int
    torn: bool


def batches_path(directory: Path, first_sequence: int) -> Path:
    return directory / f"batches-{first_sequence:020d}.jsonl"


def sync_directory(directory: Path) -> None:
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_whole(path: Path, data: bytes, *, private: bool = False) -> None:
    """Create or replace a file atomically and durably: after a crash it has its former content, or
    is absent as before, or holds all of `data`. With `private`, only its owner may read it. Raises
    OSError."""
    temporary = path.with_name(path.name + ".tmp")
    temporary.unlink(missing_ok=True)
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL
    with os.fdopen(os.open(temporary, flags, 0o600 if private else 0o666), "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)
    sync_directory(path.parent)


def claim(directory: Path, cluster_id: str) -> None:
    """Write `cluster_id`, the owner of the log, into `cluster.json` if the directory has no such
    file. Raise `LogCorrupt` if the file names another cluster or cannot be decoded."""
    path = directory / CLUSTER_FILE
    if not path.exists():
        mine = ClusterFile(cluster_id=cluster_id)
        write_whole(path, msgspec.json.encode(mine) + b"\n")
        return
    check_owner(directory, cluster_id)


def check_owner(directory: Path, cluster_id: str) -> None:
    path = directory / CLUSTER_FILE
    if not path.exists():
        return
    try:
        found = msgspec.json.decode(path.read_bytes(), type=ClusterFile)
    except msgspec.MsgspecError as error:
        raise LogCorrupt(f"the file {path} of the metadata log cannot be read: {error}") from error
    if found.cluster_id != cluster_id:
        raise LogCorrupt(
            f"the directory {directory} holds the metadata log of cluster {found.cluster_id}, "
            f"not of cluster {cluster_id}"
        )


def read_batch_files(directory: Path) -> list[BatchFile]:
    paths = sorted(directory.glob(BATCHES_GLOB))
    found = [read_batch_file(path) for path in paths]
    for file in found[:-1]:
        if file.torn:
            raise LogCorrupt(
                f"the file {file.path} of the metadata log is damaged, although it is not the "
                "last one, so batches in the middle of the log are lost"
            )
    return found


def read_batch_file(path: Path) -> BatchFile:
    """Return the batches of a file up to the first invalid line. An invalid last line counts as
    torn by a crash. Raise `LogCorrupt` if anything follows the invalid line."""
    batches: list[Batch] = []
    good_bytes = 0
    lines = path.read_bytes().split(b"\n")
    for index, line in enumerate(lines[:-1]):
        try:
            batches.append(codec.decode_batch(line))
        except LogCorrupt:
            if index != len(lines) - 2 or lines[-1]:
                raise LogCorrupt(
                    f"the file {path} of the metadata log is damaged at byte {good_bytes}, "
                    "before its end, so no controller can use the log until it is restored"
                ) from None
            break
        good_bytes += len(line) + 1
    return BatchFile(
        path=path,
        batches=tuple(batches),
        good_bytes=good_bytes,
        torn=good_bytes != sum(len(line) + 1 for line in lines) - 1,
    )


def write_snapshot(directory: Path, name: str, header: SnapshotHeader, stored: bytes) -> None:
    write_whole(directory / name, msgspec.json.encode(header) + b"\n" + stored)


def _snapshot_name(end_offset: int, controller_epoch: int) -> str:
    return f"snapshot-{end_offset:020d}-{controller_epoch:010d}-{secrets.token_hex(4)}.zlib"


def read_snapshots(directory: Path) -> list[Snapshot]:
    """Return the snapshots in the directory that match their checksum, lowest end offset first. One
    that is torn, half-copied or deleted during the read is left out."""
    found = (_read_snapshot(path) for path in sorted(directory.glob(SNAPSHOTS_GLOB)))
    return [snapshot for snapshot in found if snapshot is not None]


def _read_snapshot(path: Path) -> Snapshot | None:
    try:
        head, _, stored = path.read_bytes().partition(b"\n")
        header = msgspec.json.decode(head, type=SnapshotHeader)
    except (FileNotFoundError, msgspec.MsgspecError):
        return None
    if codec.sha256(stored) != header.sha256:
        return None
    image = codec.decompress(stored, header.image_size)
    if image is None:
        return None
    return Snapshot(
        name=path.name,
        end_offset=header.end_offset,
        last_sequence=header.last_sequence,
        nonce=header.nonce,
        controller_epoch=header.controller_epoch,
        image_bytes=image,
    )


def read_restored(directory: Path) -> dict[int, log_integrity.Emptied]:
    """Return the ends of restored histories by sequence. Raise `LogCorrupt` if one cannot be
    decoded."""
    found = {}
    for path in directory.glob(RESTORED_GLOB):
        try:
            file = msgspec.json.decode(path.read_bytes(), type=RestoredFile)
        except msgspec.MsgspecError as error:
            raise LogCorrupt(
                f"the file {path} of the metadata log cannot be read: {error}"
            ) from error
        found[file.sequence] = log_integrity.Emptied(
            sequence=file.sequence, end_offset=file.end_offset, nonce=file.nonce
        )
    return found


READS_MAX = 5


@dataclass(slots=True, kw_only=True)
class _Tail:
    """The file to which the next batch is appended, and the size in bytes up to which its content
    is known."""

    path: Path
    descriptor: int
    size: int


class DirectoryLog:
    """`metalog.interface.MetadataLog` over files in the directory `path`, which `open` creates.
    `poll_ms`: interval in which `watch` looks for changed files."""

    def __init__(self, path: Path, cluster_id: UUID, *, poll_ms: int = 200) -> None:
        self._path = path
        self._cluster_id = str(cluster_id)
        self._poll_ms = poll_ms
        self._lock: int | None = None
        self._tail: _Tail | None = None
        self._follower: log_integrity.LogFollower | None = None
        self._writing: asyncio.Future[None] | None = None
        self._turn = asyncio.Lock()
        self._history = log_integrity.History()
        self._weight = codec.Weight()

    async def open(self) -> OpenedLog:
        await self._settle()
        self._follower = None
        self._close_tail()
        self._path.mkdir(parents=True, exist_ok=True)
        self._take_lock()
        claim(self._path, self._cluster_id)
        for leftover in self._path.glob("*.tmp"):
            leftover.unlink(missing_ok=True)  # the thread of a cancelled snapshot renames its own
        # The last writer may have been killed before its sync; make what was read safe from a power
        # loss.
        sync_directory(self._path)
        found, (opened, follower) = self._read()
        self._open_tail(found, opened)
        self._follower = follower
        self._history.rebuild(opened.snapshot, opened.batches)
        self._weigh(opened)
        return opened

    async def read(self) -> OpenedLog:
        _, (opened, _) = self._read()
        return opened

    async def append(self, batch: Batch) -> None:
        async with self._turn:
            await self._append(batch)

    async def _append(self, batch: Batch) -> None:
        tail, follower = self._held()
        assert follower.tip.next_sequence == batch.sequence, (follower.tip, batch.sequence)
        line = codec.encode_batch(batch) + b"\n"
        self._writing = asyncio.ensure_future(asyncio.to_thread(self._write, tail, batch, line))
        # Cancelling the caller does not stop the thread: `_writing` stays set until `open`. So it
        # does after a failure, except a refusal, which leaves the log as it was.
        try:
            await asyncio.shield(self._writing)
        except AppendRefused:
            self._writing = None
            raise
        self._writing = None
        for committed in follower.offer(batch):
            self._history.add(committed)
        self._weight.batch_bytes += len(line)

    async def write_snapshot(
        self, image_bytes: bytes, end_offset: int, nonce: str, controller_epoch: int
    ) -> str:
        last_sequence = self._history.sequence_of(end_offset, nonce)
        name = _snapshot_name(end_offset, controller_epoch)
        stored = await asyncio.to_thread(codec.compress, image_bytes)
        header = SnapshotHeader(
            end_offset=end_offset,
            last_sequence=last_sequence,
            nonce=nonce,
            controller_epoch=controller_epoch,
            image_size=len(image_bytes),
            sha256=codec.sha256(stored),
        )
        try:
            await asyncio.to_thread(write_snapshot, self._path, name, header, stored)
        except OSError as error:
            raise LogUnavailable(
                f"the snapshot {name} of the metadata log cannot be written: {error}"
            ) from error
        return name

    async def remains(self) -> tuple[Batch, ...]:
        found = [batch for file in read_batch_files(self._path) for batch in file.batches]
        return tuple(sorted(found, key=lambda batch: batch.sequence))

    async def newest_snapshot(self) -> SnapshotEnd | None:
        found = await asyncio.to_thread(read_snapshots, self._path)
        newest = max(found, key=lambda one: one.last_sequence, default=None)
        if newest is None:
            return None
        return SnapshotEnd(end_offset=newest.end_offset, nonce=newest.nonce)

    async def restore(self, history: RestoredHistory) -> None:
        await self._settle()
        self._follower = None
        self._close_tail()
        self._take_lock()
        used = {batch.sequence for batch in await self.remains()} | set(read_restored(self._path))
        used |= {snapshot.last_sequence for snapshot in read_snapshots(self._path)}
        sequence = max(used, default=-1) + 1
        stored = await asyncio.to_thread(codec.compress, history.image_bytes)
        header = SnapshotHeader(
            end_offset=history.end_offset,
            last_sequence=sequence,
            nonce=history.nonce,
            controller_epoch=history.controller_epoch,
            image_size=len(history.image_bytes),
            sha256=codec.sha256(stored),
        )
        name = _snapshot_name(history.end_offset, history.controller_epoch)
        end = RestoredFile(sequence=sequence, end_offset=history.end_offset, nonce=history.nonce)
        try:
            await asyncio.to_thread(write_snapshot, self._path, name, header, stored)
            path = self._path / f"restored-{sequence:020d}.json"
            await asyncio.to_thread(write_whole, path, msgspec.json.encode(end) + b"\n")
        except OSError as error:
            raise LogUnavailable(
                f"the metadata log in {self._path} cannot be restored: {error}"
            ) from error

    async def lost(self) -> tuple[str, ...]:
        """Return (): no object of this log can be deleted unnoticed, since this process holds its
        files open."""
        return ()

    async def mend(self) -> None: ...

    async def release(self, taken: SnapshotTaken) -> None:
        async with self._turn:
            self._release(taken)

    def _release(self, taken: SnapshotTaken) -> None:
        _, follower = self._held()
        path = self._path / taken.name
        if not path.exists():
            raise LogCorrupt(
                f"the snapshot {taken.name} of the metadata log was written but cannot be found"
            )
        self._start_new_file(follower.tip.next_sequence)
        for old in sorted(self._path.glob(SNAPSHOTS_GLOB)):
            if old.name.split("-")[1] < taken.name.split("-")[1]:
                old.unlink(missing_ok=True)
        for file in read_batch_files(self._path):
            if file.batches and file.batches[-1].end_offset <= taken.end_offset:
                file.path.unlink(missing_ok=True)
        sync_directory(self._path)
        self._history.forget_below(taken.end_offset)
        self._weight = codec.Weight(snapshot_bytes=path.stat().st_size)

    def needs_snapshot(self) -> bool:
        return self._weight.due()

    def nonce_at(self, applied_offset: int) -> str | None:
        return self._history.nonce_at(applied_offset)

    async def watch(self) -> AsyncIterator[OpenedLog | Batch]:
        signature = self._signature()
        opened = await self.read()
        seen = opened.tip.next_sequence
        yield opened
        while True:
            await asyncio.sleep(self._poll_ms / 1000)
            if (now := self._signature()) == signature:
                continue
            opened, signature = await self.read(), now
            first = opened.snapshot.last_sequence + 1 if opened.snapshot else 0
            if first > seen:
                yield opened
            else:
                for batch in opened.batches:
                    if batch.sequence >= seen:
                        yield batch
            seen = max([seen, first, *(batch.sequence + 1 for batch in opened.batches)])

    async def close(self) -> None:
        await self._settle()
        self._follower = None
        self._close_tail()
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    # --- reading --------------------------------------------------------------------------------

    def _read(
        self,
    ) -> tuple[list[BatchFile], tuple[OpenedLog, log_integrity.LogFollower]]:
        gap: log_integrity.Gap | None = None
        for _ in range(READS_MAX):
            check_owner(self._path, self._cluster_id)
            stored = read_snapshots(self._path)
            try:
                found = read_batch_files(self._path)
                batches: dict[int, Batch | log_integrity.Emptied] = {
                    batch.sequence: batch for file in found for batch in file.batches
                }
                batches |= read_restored(self._path)
                return found, log_integrity.assemble(stored, batches)
            except FileNotFoundError:
                continue
            except log_integrity.Gap as error:
                gap = error
        raise LogRegressed(
            f"the metadata log in {self._path} is incomplete, and no controller can use it until "
            f"it is restored: {gap}"
        )

    def _signature(self) -> list[tuple[str, int]]:
        """Return the names and sizes of the directory's files, to compare with earlier ones: the
        log has changed if they differ. Return [] if a file vanished during the read."""
        try:
            with os.scandir(self._path) as entries:
                return sorted((entry.name, entry.stat().st_size) for entry in entries)
        except FileNotFoundError:
            return []

    def _weigh(self, opened: OpenedLog) -> None:
        self._weight = codec.Weight(
            batch_bytes=sum(len(batch.records_json) for batch in opened.batches)
        )
        if opened.snapshot is not None:
            self._weight.snapshot_bytes = (self._path / opened.snapshot.name).stat().st_size

    # --- writing --------------------------------------------------------------------------------

    def _held(self) -> tuple[_Tail, log_integrity.LogFollower]:
        if self._tail is None or self._follower is None or self._writing is not None:
            raise AppendConflict(NOT_OPEN)
        return self._tail, self._follower

    def _take_lock(self) -> None:
        if self._lock is not None:
            return
        descriptor = os.open(self._path, os.O_RDONLY | os.O_DIRECTORY)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            raise LogUnavailable(
                f"the metadata log in {self._path} is in use by another process; stop that process"
            ) from None
        self._lock = descriptor

    def _open_tail(self, found: list[BatchFile], opened: OpenedLog) -> None:
        if not found:
            self._start_new_file(opened.tip.next_sequence)
            return
        newest = found[-1]
        descriptor = os.open(newest.path, os.O_RDWR)
        if newest.torn:
            os.ftruncate(descriptor, newest.good_bytes)
        os.fsync(descriptor)  # its last line, too, may be only in the page cache
        self._tail = _Tail(path=newest.path, descriptor=descriptor, size=newest.good_bytes)

    def _start_new_file(self, first_sequence: int) -> None:
        path = batches_path(self._path, first_sequence)
        if self._tail is not None and self._tail.path == path:
            return
        try:
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o644)
        except FileExistsError:
            raise AppendConflict(
                f"another process has written to the metadata log in {self._path}, so this "
                "controller reads the log again before it writes more"
            ) from None
        sync_directory(self._path)
        self._close_tail()
        self._tail = _Tail(path=path, descriptor=descriptor, size=0)

    def _write(self, tail: _Tail, batch: Batch, line: bytes) -> None:
        """Append one batch as a line and sync it. Runs in a thread. Raise `AppendRefused` if
        nothing of the line is left in the file, `AppendConflict` if another process has written to
        the log, and `LogCorrupt` if the file's content is unknown."""
        self._check_end(tail, batch)
        try:
            written = 0
            while written < len(line):
                written += os.pwrite(tail.descriptor, line[written:], tail.size + written)
        except OSError as error:
            self._cut_back(tail)
            raise AppendRefused(
                f"the file {tail.path} of the metadata log cannot be written: {error.strerror}"
            ) from error
        try:
            os.fsync(tail.descriptor)
        except OSError as error:
            # The kernel may have dropped the pages: the content of this file is unknown.
            raise LogCorrupt(
                f"the file {tail.path} of the metadata log cannot be synced to disk: "
                f"{error.strerror}"
            ) from error
        tail.size += len(line)

    def _check_end(self, tail: _Tail, batch: Batch) -> None:
        status = os.fstat(tail.descriptor)
        next_file = batches_path(self._path, batch.sequence)
        elsewhere = next_file != tail.path and next_file.exists()
        if status.st_nlink == 0 or status.st_size != tail.size or elsewhere:
            raise AppendConflict(
                f"another process has written to the metadata log in {self._path}, so this "
                "controller reads the log again before it writes more"
            )

    def _cut_back(self, tail: _Tail) -> None:
        try:
            os.ftruncate(tail.descriptor, tail.size)
            os.fsync(tail.descriptor)
        except OSError as error:
            raise LogCorrupt(
                f"the file {tail.path} of the metadata log cannot be truncated: {error.strerror}"
            ) from error

    async def _settle(self) -> None:
        """Wait for a write that is still running after its caller was cancelled. The next read of
        the file shows its outcome."""
        if self._writing is not None:
            await asyncio.wait([self._writing])
            self._writing.exception()
            self._writing = None

    def _close_tail(self) -> None:
        if self._tail is not None:
            os.close(self._tail.descriptor)
            self._tail = None
