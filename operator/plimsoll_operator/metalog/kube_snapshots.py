"""Snapshots stored as objects: chunks of the compressed image, and an index that proves them
complete.

An index names each chunk with its uid and SHA-256 and is written last. A reader accepts a snapshot
only if all chunks match its index. Objects' names contain end offset, controller epoch and a random
part, so two writers never write the same object. Only objects strictly older than a snapshot with a
committed `SnapshotTaken` are ever deleted. Called by `kubernetes_log`.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import secrets
from collections.abc import Callable
from dataclasses import dataclass
from typing import ParamSpec, TypeVar

import msgspec

from plimsoll_operator.api import labels
from plimsoll_operator.metalog import codec, kube_objects
from plimsoll_operator.metalog.interface import LogCorrupt, LogUnavailable, Snapshot
from plimsoll_operator.metalog.kube_objects import Item, Metadata, ObjectReader
from plimsoll_operator.metalog.ring import STRICT

CHUNK_BYTES_MAX = 512 * 1024
SMALL_BYTES = 64 * 1024
KIND = "MetadataSnapshot"

P = ParamSpec("P")
R = TypeVar("R")


class ChunkRef(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    uid: str
    sha256: str


class _IndexSpec(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    cluster_id: str
    end_offset: int
    last_sequence: int
    nonce: str
    controller_epoch: int
    image_size: int
    stored_size: int
    chunks: list[ChunkRef]


class _ChunkSpec(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    cluster_id: str
    end_offset: int
    data: str


class _AnySpec(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    end_offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Index:
    """The index object of a snapshot. Its chunks may be missing or damaged."""

    name: str
    spec: _IndexSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotDraft:
    """The position in the log that a snapshot to be written covers: all records below `end_offset`,
    the last of them in the batch with `nonce` and `last_sequence`."""

    end_offset: int
    last_sequence: int
    nonce: str
    controller_epoch: int


class SnapshotStore:
    def __init__(self, reader: ObjectReader) -> None:
        self._reader = reader
        self._place = reader.place

    async def indexes(self) -> list[Index]:
        """Return the indexes of all stored snapshots, highest sequence (then end offset, controller
        epoch) first. The chunks of a returned index may be missing."""
        selector = f"{self._place.selector},{labels.LOG_PART}=index"
        found = [
            _index(item) async for item in self._reader.pages(kube_objects.SNAPSHOTS, selector)
        ]
        return sorted(
            found,
            key=lambda index: (
                index.spec.last_sequence,
                index.spec.end_offset,
                index.spec.controller_epoch,
            ),
            reverse=True,
        )

    async def index(self, name: str) -> Index | None:
        item = await self._reader.get(kube_objects.SNAPSHOTS, name)
        return None if item is None else _index(item)

    async def load(self, index: Index) -> Snapshot | None:
        """Return the snapshot of an index, or None if a chunk is missing, damaged or belongs to
        another snapshot. Raise `LogCorrupt` if the index belongs to another cluster."""
        spec = index.spec
        if spec.cluster_id != str(self._place.cluster_id):
            raise LogCorrupt(
                f"MetadataSnapshot {index.name} has the labels of this cluster, but its spec "
                f"names cluster {spec.cluster_id}: another client changed it, so the metadata "
                "log cannot be used"
            )
        chunks = await self._reader.in_parallel(spec.chunks, self._chunk)
        parts = [chunk for chunk in chunks if chunk is not None]
        if len(parts) != len(chunks):
            return None
        stored = b"".join(parts)
        image = await _aside(spec.image_size, codec.decompress, stored, spec.image_size)
        if image is None:
            return None
        return Snapshot(
            name=index.name,
            end_offset=spec.end_offset,
            last_sequence=spec.last_sequence,
            nonce=spec.nonce,
            controller_epoch=spec.controller_epoch,
            image_bytes=image,
        )

    async def _chunk(self, ref: ChunkRef) -> bytes | None:
        item = await self._reader.get(kube_objects.SNAPSHOTS, ref.name)
        if item is None or item.metadata.uid != ref.uid:
            return None
        data = _chunk_data(item)
        return data if data is not None and codec.sha256(data) == ref.sha256 else None

    async def write(self, image_bytes: bytes, draft: SnapshotDraft) -> tuple[str, int]:
        """Write the chunks and then the index of a snapshot. Return its name and its stored
        (compressed) size in bytes. Raise `LogUnavailable` if an object cannot be created."""
        stored = await _aside(len(image_bytes), codec.compress, image_bytes)
        name = (
            f"{self._place.prefix}-{draft.end_offset:020d}-{draft.controller_epoch}-"
            f"{draft.nonce[:16]}-{secrets.token_hex(4)}"
        )

        async def put(start: int) -> ChunkRef:
            part = stored[start : start + CHUNK_BYTES_MAX]
            number = start // CHUNK_BYTES_MAX
            return await self._put_chunk(f"{name}-{number}", part, draft.end_offset)

        starts = range(0, len(stored), CHUNK_BYTES_MAX)
        spec = _IndexSpec(
            cluster_id=str(self._place.cluster_id),
            end_offset=draft.end_offset,
            last_sequence=draft.last_sequence,
            nonce=draft.nonce,
            controller_epoch=draft.controller_epoch,
            image_size=len(image_bytes),
            stored_size=len(stored),
            chunks=await self._reader.in_parallel(starts, put),
        )
        await self._create(name, "index", spec)
        return name, len(stored)

    async def _put_chunk(self, name: str, data: bytes, end_offset: int) -> ChunkRef:
        spec = _ChunkSpec(
            cluster_id=str(self._place.cluster_id),
            end_offset=end_offset,
            data=base64.b64encode(data).decode(),
        )
        item = await self._create(name, "chunk", spec)
        if _chunk_data(item) != data:
            raise LogCorrupt(
                f"the API server stored MetadataSnapshot {name} with a different content than "
                "was sent; check for a webhook or an older CustomResourceDefinition that changes "
                "MetadataSnapshot objects"
            )
        return ChunkRef(name=name, uid=item.metadata.uid, sha256=codec.sha256(data))

    async def _create(self, name: str, part: str, spec: object) -> Item:
        """Create the object `name` of a snapshot and return it as stored. `part`: `index` or
        `chunk`. If the object exists already, an earlier attempt of this process created it, since
        its name is unique; return that one. Raise `LogUnavailable` if the API server refuses."""
        metadata = Metadata(
            name=name,
            namespace=self._place.namespace,
            labels={**self._place.labels, labels.LOG_PART: part},
        )
        body = self._place.manifest(KIND, metadata, spec)
        path = self._place.path(kube_objects.SNAPSHOTS)
        answer = await self._reader.ask("POST", path, STRICT, body)
        if answer.status == 201:
            return kube_objects.decode(answer.body, kube_objects.SNAPSHOTS, name)
        if answer.status == 409:
            item = await self._reader.get(kube_objects.SNAPSHOTS, name)
            if item is not None:
                return item
        raise LogUnavailable(
            f"the operator cannot create MetadataSnapshot {name}: {answer.sentence}"
        )

    async def delete_older(self, kept: Index) -> None:
        """Delete all snapshots with an end offset below that of `kept`, incomplete ones included:
        first indexes, then chunks. One of a higher controller epoch stays: another process restored
        the log to an earlier end, and this one has not noticed. One deleted meanwhile is no error.
        Raise `LogUnavailable` if the API server refuses."""
        for part in ("index", "chunk"):
            selector = f"{self._place.selector},{labels.LOG_PART}={part}"
            old = [
                item.metadata
                async for item in self._reader.pages(kube_objects.SNAPSHOTS, selector)
                if msgspec.json.decode(item.spec, type=_AnySpec).end_offset < kept.spec.end_offset
                and self._epoch_in(item.metadata.name) <= kept.spec.controller_epoch
            ]
            await self._reader.in_parallel(old, self._delete)

    def _epoch_in(self, name: str) -> int:
        """Return the controller epoch in the name of a snapshot's object, 0 for any other name."""
        _, _, rest = name.removeprefix(f"{self._place.prefix}-").partition("-")
        epoch = rest.partition("-")[0]
        return int(epoch) if epoch.isdecimal() else 0

    async def _delete(self, metadata: Metadata) -> None:
        body = msgspec.json.encode({"preconditions": {"uid": metadata.uid}})
        path = self._place.path(kube_objects.SNAPSHOTS, metadata.name)
        answer = await self._reader.ask("DELETE", path, None, body)
        if answer.status not in (200, 202, 404, 409):
            raise LogUnavailable(
                f"the operator cannot delete MetadataSnapshot {metadata.name}: {answer.sentence}"
            )


async def _aside(size: int, work: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
    """Return the result of `work`. Run it in a thread if it handles so many bytes (`size`) that it
    would block the event loop for more than about a millisecond."""
    if size < SMALL_BYTES:
        return work(*args, **kwargs)
    return await asyncio.to_thread(work, *args, **kwargs)


def _index(item: Item) -> Index:
    try:
        return Index(name=item.metadata.name, spec=msgspec.json.decode(item.spec, type=_IndexSpec))
    except msgspec.MsgspecError as error:
        raise LogCorrupt(
            f"the content of MetadataSnapshot {item.metadata.name} cannot be read: {error}"
        ) from error


def _chunk_data(item: Item) -> bytes | None:
    try:
        spec = msgspec.json.decode(item.spec, type=_ChunkSpec)
        return base64.b64decode(spec.data, validate=True)
    except (msgspec.MsgspecError, binascii.Error):
        return None
