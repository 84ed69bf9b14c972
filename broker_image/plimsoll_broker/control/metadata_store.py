"""MetadataCopy: the broker's own copy of the metadata it replays: a snapshot of the cluster image,
and the batches after it.

The metadata stream writes it; the broker reads it when it starts. It proves to a controller that
its log was not restored to an older state, and a lost log can be rebuilt from it. Batches are
written without fsync until `sync` is called: the page cache survives the process, and records lost
in a machine's crash are replayed from the controller. `load` syncs what it has read, with all file
names, so that it is on disk before the broker reports it; a snapshot is on disk before the batches
that it covers are removed.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from uuid import UUID

import msgspec

from plimsoll_broker.storage.disk import Disk, DiskFile, StorageError
from plimsoll_core.cluster.image import apply_all
from plimsoll_core.cluster.image_encoding import decode_image, encode_image
from plimsoll_core.cluster.model import ClusterImage
from plimsoll_core.cluster.record_versions import MetadataTooNew, read_records
from plimsoll_core.ids import ControllerEpoch, MetadataOffset
from plimsoll_core.messages.metadata_copy import CopyContent
from plimsoll_core.messages.metadata_stream import MetadataBatchCopy
from plimsoll_core.messages.requests import LogPosition

logger = logging.getLogger("plimsoll.metadata")

DIRECTORY = "__cluster_metadata"
TAIL_BYTES_MIN = 1024 * 1024


class _SnapshotHeader(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The first line of a snapshot file. `sha256`: the checksum of the encoded image that follows
    this line."""

    end_offset: MetadataOffset
    nonce: str
    controller_epoch: ControllerEpoch
    sha256: str


class _Line(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One stored batch of metadata records. `sha256`: the checksum of `records`, the JSON of
    `record_count` records from `base_offset` on. `nonce`, `controller_epoch`: those of the
    batch."""

    base_offset: MetadataOffset
    controller_epoch: ControllerEpoch
    nonce: str
    record_count: int
    sha256: str
    records: msgspec.Raw


_line = msgspec.json.Decoder(_Line)
_header = msgspec.json.Decoder(_SnapshotHeader)


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredMetadata:
    """The metadata that a broker has applied. `nonce` and `controller_epoch`: the random number and
    the epoch in the last applied batch; `nonce` is None before any batch."""

    image: ClusterImage
    nonce: str | None
    controller_epoch: ControllerEpoch

    @property
    def position(self) -> LogPosition:
        """The position in the metadata log after the last applied batch."""
        return LogPosition(
            applied_offset=self.image.next_offset,
            nonce=self.nonce,
            controller_epoch=self.controller_epoch,
            term_id=self.image.term_id,
        )


def advance(replica: StoredMetadata, batch: MetadataBatchCopy) -> StoredMetadata:
    """Return the metadata after the batch, which must begin at the next offset, is applied to
    `replica`, which stays unchanged. Raises MetadataTooNew if the batch has a record that this
    release does not know."""
    assert batch.base_offset == replica.image.next_offset, "metadata has no gaps"
    try:
        records = read_records(batch.records_json)
    except MetadataTooNew as error:
        raise MetadataTooNew(
            f"the cluster's metadata at offset {batch.base_offset} cannot be read: {error}"
        ) from error
    return StoredMetadata(
        image=apply_all(replica.image, records),
        nonce=batch.nonce,
        controller_epoch=batch.controller_epoch,
    )


class MetadataCopy:
    """Reads and writes a broker's copy of the metadata on its volume. Only one caller may use it at
    a time. A write returns when its data are in the page cache; `sync` writes them to the disk."""

    def __init__(self, data_dir: Path, disk: Disk | None = None) -> None:
        self._disk = disk if disk is not None else Disk()
        self._directory = data_dir / DIRECTORY
        self._tail: DiskFile | None = None
        self._tail_bytes = 0
        self._snapshot_bytes = 0

    def load(self, cluster_id: UUID) -> StoredMetadata:
        """Return the stored metadata: the newest valid snapshot, and the batches after it up to the
        first one that is incomplete, fails its checksum or leaves a gap; cut the file of batches
        there. If nothing is stored, return an empty image. Raises StorageError, and MetadataTooNew
        if a batch has a record that this release does not know."""
        disk = self._disk
        disk.make_directory(self._directory)
        disk.sync_directory(self._directory.parent)
        replica = StoredMetadata(
            image=ClusterImage(cluster_id=cluster_id),
            nonce=None,
            controller_epoch=ControllerEpoch(0),
        )
        for name, stored in self._snapshots():
            found = _decode_snapshot(name, stored, cluster_id)
            if found is not None:
                replica = found
                self._snapshot_bytes = len(stored)
                break
        path = self._tail_path(replica.image.next_offset)
        good = 0
        for batch, end in _decode_tail(disk.read(path) or b""):
            if batch.base_offset != replica.image.next_offset:
                break
            replica = advance(replica, batch)
            good = end
        self._open_tail(path, good)
        # The previous process may have left its writes in the page cache alone.
        self.sync()
        return replica

    def clear(self, cluster_id: UUID) -> StoredMetadata:
        """Remove what is stored, and return an empty image. Raises StorageError."""
        self.close()
        # The snapshot first: batches without it are not loaded after a crash.
        for name in sorted(self._disk.list(self._directory)):
            self._disk.remove(self._directory / name)
        self._disk.sync_directory(self._directory)
        self._snapshot_bytes = 0
        return self.load(cluster_id)

    def content(self, replica: StoredMetadata, *, stored: bool) -> CopyContent:
        """Return the metadata that this broker has applied, `replica`, to be sent: the stored
        snapshot and the batches after it. Without `stored`, or if the files do not end where
        `replica` does, return its image alone."""
        with contextlib.suppress(StorageError, msgspec.DecodeError):
            if stored and (found := self._stored_content(replica)) is not None:
                return found
        return CopyContent(
            image=encode_image(replica.image),
            nonce=replica.nonce,
            controller_epoch=replica.controller_epoch,
        )

    def _stored_content(self, replica: StoredMetadata) -> CopyContent | None:
        """Return the stored snapshot and batches, or None if they do not end where `replica`
        does."""
        name, newest = next(self._snapshots(), ("", b""))
        first_line, _, encoded = newest.partition(b"\n")
        header = _header.decode(first_line) if name else None
        if header is None:
            encoded = encode_image(ClusterImage(cluster_id=replica.image.cluster_id))
        end = MetadataOffset(0) if header is None else header.end_offset
        nonce = None if header is None else header.nonce
        batches = []
        for batch, _ in _decode_tail(self._disk.read(self._tail_path(end)) or b""):
            if batch.base_offset != end or end >= replica.image.next_offset:
                break
            batches.append(batch)
            end, nonce = MetadataOffset(end + batch.record_count), batch.nonce
        if (end, nonce) != (replica.image.next_offset, replica.nonce):
            return None
        return CopyContent(
            image=encoded,
            nonce=None if header is None else header.nonce,
            controller_epoch=ControllerEpoch(0) if header is None else header.controller_epoch,
            batches=tuple(batches),
        )

    def append(self, batch: MetadataBatchCopy) -> None:
        """Append a committed batch to the file of batches, without a sync. Raises StorageError."""
        assert self._tail is not None, "loaded first"
        line = msgspec.json.encode(
            _Line(
                base_offset=batch.base_offset,
                controller_epoch=batch.controller_epoch,
                nonce=batch.nonce,
                record_count=batch.record_count,
                sha256=hashlib.sha256(batch.records_json).hexdigest(),
                records=msgspec.Raw(batch.records_json),
            )
        )
        self._tail.append(line + b"\n")
        self._tail_bytes += len(line) + 1

    def sync(self) -> None:
        """Sync the appended batches to the disk. Raises StorageError."""
        assert self._tail is not None, "loaded, and not closed"
        self._tail.fsync()

    def needs_snapshot(self) -> bool:
        """Return True if a snapshot should replace the stored batches: they are larger than
        `TAIL_BYTES_MIN` and larger than two snapshots."""
        return self._tail_bytes > max(TAIL_BYTES_MIN, 2 * self._snapshot_bytes)

    def write_snapshot(self, replica: StoredMetadata) -> None:
        """Replace the stored snapshot and batches by a snapshot of this image. It is synced before
        older files are removed. Raises StorageError."""
        assert replica.nonce is not None, "an image of something"
        encoded = encode_image(replica.image)
        end = replica.image.next_offset
        header = msgspec.json.encode(
            _SnapshotHeader(
                end_offset=end,
                nonce=replica.nonce,
                controller_epoch=replica.controller_epoch,
                sha256=hashlib.sha256(encoded).hexdigest(),
            )
        )
        path = self._directory / f"snapshot-{end:020d}.json"
        self._disk.replace(path, header + b"\n" + encoded, sync=True)
        self._snapshot_bytes = len(encoded)
        tail = self._tail_path(end)
        self._open_tail(tail, 0)
        for name in self._disk.list(self._directory):
            if name not in (path.name, tail.name):
                self._disk.remove(self._directory / name)

    def close(self) -> None:
        """Sync and close the file of batches. A second call does nothing. Raises StorageError."""
        tail, self._tail = self._tail, None
        if tail is not None:
            try:
                tail.fsync()
            finally:
                tail.close()

    def _snapshots(self) -> Iterator[tuple[str, bytes]]:
        """Yield the name and the content of each stored snapshot, the newest first. Raises
        StorageError."""
        for name in sorted(self._disk.list(self._directory), reverse=True):
            if name.startswith("snapshot-") and name.endswith(".json"):
                yield name, self._disk.read(self._directory / name) or b""

    def _tail_path(self, start: MetadataOffset) -> Path:
        return self._directory / f"tail-{start:020d}.jsonl"

    def _open_tail(self, path: Path, good: int) -> None:
        """Open the file of batches and cut it to `good` bytes, the length of its valid batches.
        Sync the directory."""
        # Cut a torn tail before writing goes on.
        if self._tail is not None:
            self._tail.close()
            self._tail = None
        tail = self._disk.open(path)
        tail.truncate(good)
        self._tail, self._tail_bytes = tail, good
        # Without this a power cut could remove a new file with all that was synced in it.
        self._disk.sync_directory(self._directory)


def _decode_snapshot(name: str, stored: bytes, cluster_id: UUID) -> StoredMetadata | None:
    """Return the metadata in a snapshot file. Return None, and log why, if it is damaged or of
    another cluster."""
    header_line, _, encoded = stored.partition(b"\n")
    try:
        header = _header.decode(header_line)
        if hashlib.sha256(encoded).hexdigest() != header.sha256:
            raise msgspec.ValidationError("the metadata snapshot does not match its checksum")
        image = decode_image(encoded)
    except msgspec.DecodeError as error:
        logger.warning(
            "this broker ignores its metadata snapshot %s, which is unreadable; the controller "
            "sends the metadata again, so nothing needs to be done: %s",
            name,
            error,
        )
        return None
    if image.cluster_id != cluster_id or image.next_offset != header.end_offset:
        logger.warning(
            "this broker ignores its metadata snapshot %s, which belongs to another cluster or "
            "has another offset than its name; the controller sends the metadata again, so "
            "nothing needs to be done",
            name,
        )
        return None
    return StoredMetadata(image=image, nonce=header.nonce, controller_epoch=header.controller_epoch)


def _decode_tail(stored: bytes) -> Iterator[tuple[MetadataBatchCopy, int]]:
    """Yield the stored batches, each with the byte position after it. Stop before the first one
    that is incomplete or fails its checksum."""
    end = 0
    for raw in stored.splitlines(keepends=True):
        end += len(raw)
        try:
            line = _line.decode(raw)
        except msgspec.DecodeError:
            return
        body = bytes(line.records)
        if hashlib.sha256(body).hexdigest() != line.sha256 or not raw.endswith(b"\n"):
            return
        batch = MetadataBatchCopy(
            base_offset=line.base_offset,
            controller_epoch=line.controller_epoch,
            nonce=line.nonce,
            records_json=body,
            record_count=line.record_count,
        )
        yield batch, end
