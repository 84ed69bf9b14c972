"""Files of the directory shell: their names, reads of whole files, and atomic writes.

Called by `directory` alone. Decides nothing about the log. Raises `OSError` for failures of the
system and `LogCorrupt` for bytes that no writer left behind.

- `cluster.json`: the cluster that owns this log.
- `batches-<first sequence>.jsonl`: one batch a line. Only the last line of the newest file may be
  torn, by a crash in mid-write.
- `snapshot-<end>-<epoch>-<random>.zlib`: a line of JSON, then the compressed image.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

import msgspec

from plimsoll_operator.metalog import codec, snapshot_due
from plimsoll_operator.metalog.interface import Batch, LogCorrupt, Snapshot

CLUSTER_FILE = "cluster.json"
BATCHES_GLOB = "batches-*.jsonl"
SNAPSHOTS_GLOB = "snapshot-*.zlib"


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


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchFile:
    """A file of batches as read: `good_bytes` of it are whole lines."""

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
    """Write a file atomically: its name appears with the whole content or not at all, even after a
    crash. `private`: only its owner may read it."""
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
    """Write the log's owner. Raises for a directory of another cluster."""
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
        raise LogCorrupt(f"{path} cannot be read: {error}") from error
    if found.cluster_id != cluster_id:
        raise LogCorrupt(
            f"{directory} holds the metadata of cluster {found.cluster_id}, not of {cluster_id}"
        )


def read_batch_files(directory: Path) -> list[BatchFile]:
    paths = sorted(directory.glob(BATCHES_GLOB))
    found = [read_batch_file(path) for path in paths]
    for file in found[:-1]:
        if file.torn:
            raise LogCorrupt(f"{file.path} is damaged before the end of the log")
    return found


def read_batch_file(path: Path) -> BatchFile:
    """Read whole lines up to the first bad one, which counts as torn only if nothing follows it."""
    batches: list[Batch] = []
    good_bytes = 0
    lines = path.read_bytes().split(b"\n")
    for index, line in enumerate(lines[:-1]):
        try:
            batches.append(codec.decode_batch(line))
        except LogCorrupt:
            if index != len(lines) - 2 or lines[-1]:
                raise LogCorrupt(f"{path} is damaged at byte {good_bytes}") from None
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


def read_snapshots(directory: Path) -> list[Snapshot]:
    """Return the snapshots that verify; a torn or half-copied one counts as absent."""
    found = (_read_snapshot(path) for path in sorted(directory.glob(SNAPSHOTS_GLOB)))
    return [snapshot for snapshot in found if snapshot is not None]


def _read_snapshot(path: Path) -> Snapshot | None:
    try:
        head, _, stored = path.read_bytes().partition(b"\n")
        header = msgspec.json.decode(head, type=SnapshotHeader)
    except (FileNotFoundError, msgspec.MsgspecError):
        return None
    if snapshot_due.sha256(stored) != header.sha256:
        return None
    image = snapshot_due.decompress(stored, header.image_size)
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
