"""Stores of the history archive: ConfigMaps of the API server, or files beside a local cluster's
log.

Each segment is one ConfigMap, which users can read. It lacks the label of a LogCluster's children,
so a write does not requeue the cluster. It has no owner, like the metadata log, since the history
outlives a deleted LogCluster. Both its name, which contains the segment's number, and its labels
must match. A ConfigMap with the labels and another name is foreign, whatever its content, and is
left unchanged.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import logging
from collections.abc import AsyncGenerator
from contextlib import aclosing
from pathlib import Path
from uuid import UUID

import msgspec

from plimsoll_operator.api import labels
from plimsoll_operator.history.archive import ArchiveConflict, ArchiveUnavailable
from plimsoll_operator.history.segments import ArchiveSegment, Header, Stored, unreadable
from plimsoll_operator.kube.errors import ApiError, Conflict, NotFound
from plimsoll_operator.kube.kube_api import KubeApi, Object
from plimsoll_operator.kube.resources import CONFIG_MAPS
from plimsoll_operator.metalog.directory import write_whole

GLOB = "history-*.zlib"


class DirectoryStore:
    """`archive.SegmentStore` over files in `path`. Its only writer is the process that holds the
    lock of the metadata log."""

    def __init__(self, path: Path) -> None:
        self._path = path

    async def stored(self) -> AsyncGenerator[tuple[Stored, ArchiveSegment], None]:
        try:
            for path in await asyncio.to_thread(lambda: sorted(self._path.glob(GLOB))):
                if (found := await asyncio.to_thread(_read_file, path)) is not None:
                    yield found
        except OSError as error:
            raise ArchiveUnavailable(
                f"cannot read the directory {self._path} of the archive of the metadata history: "
                f"{error.strerror}"
            ) from error

    async def write(self, segment: ArchiveSegment, over: Stored | None) -> Stored:
        path = self._path / f"history-{segment.header.sequence:08d}.zlib"
        data = msgspec.json.encode(segment.header) + b"\n" + segment.packed
        try:
            await asyncio.to_thread(write_whole, path, data)
        except OSError as error:
            raise ArchiveUnavailable(
                f"cannot write the file {path} of the archive of the metadata history: "
                f"{error.strerror}"
            ) from error
        return Stored(header=segment.header, size=len(segment.packed), version=path.name)

    async def delete(self, stored: Stored) -> None:
        try:
            (self._path / stored.version).unlink(missing_ok=True)
        except OSError as error:
            path = self._path / stored.version
            raise ArchiveUnavailable(
                f"cannot delete the file {path} of the archive of the metadata history: "
                f"{error.strerror}"
            ) from error


def _read_file(path: Path) -> tuple[Stored, ArchiveSegment] | None:
    """Return the segment in a file, or None if the file has no segment's name and content."""
    head, _, packed = path.read_bytes().partition(b"\n")
    try:
        header = msgspec.json.decode(head, type=Header)
    except msgspec.MsgspecError:
        if (header_by_name := unreadable(path.name)) is None:
            return None
        header, packed = header_by_name, b""
    stored = Stored(header=header, size=len(packed), version=path.name)
    return stored, ArchiveSegment(header=header, packed=packed)


logger = logging.getLogger("plimsoll.history")

HEADER = "header"
ROWS = "rows"
PART = "history"
TOLD_MAX = 100
PAGE_ITEMS = 16
"""How many ConfigMaps are in memory at a time: those of an archive may have 256 MiB together, and
others may have its labels."""


class KubeStore:
    """`archive.SegmentStore` over the ConfigMaps of one cluster."""

    def __init__(self, kube: KubeApi, namespace: str, cluster: str, cluster_id: UUID) -> None:
        self._kube = kube
        self._namespace = namespace
        self._cluster_id = str(cluster_id)
        # Names of foreign ConfigMaps that were logged, at most `TOLD_MAX`.
        self._told: set[str] = set()
        self._prefix = f"{cluster}-{labels.short_id(cluster_id)}-history"
        self._labels = {
            labels.NAME: "plimsoll",
            labels.MANAGED_BY: labels.OPERATOR,
            labels.LOG_CLUSTER_ID: str(cluster_id),
            labels.LOG_PART: PART,
        }
        self._selector = f"{labels.LOG_CLUSTER_ID}={cluster_id},{labels.LOG_PART}={PART}"

    async def stored(self) -> AsyncGenerator[tuple[Stored, ArchiveSegment], None]:
        pages = self._kube.pages(
            CONFIG_MAPS, self._namespace, label_selector=self._selector, limit=PAGE_ITEMS
        )
        try:
            async with aclosing(pages):
                async for page in pages:
                    for item in page.items:
                        if (found := self._read(item)) is not None:
                            yield found
        except ApiError as error:
            raise ArchiveUnavailable(error.message) from error

    def _read(self, item: Object) -> tuple[Stored, ArchiveSegment] | None:
        """Return the segment in a ConfigMap, or None if the ConfigMap is foreign. A header that is
        unreadable, or contradicts the name or the cluster, is replaced by the placeholder
        header."""
        name = item["metadata"]["name"]
        by_name = unreadable(name)
        if by_name is None or name != self._name(by_name.sequence):
            self._tell_foreign(name)
            return None
        header, packed = _content(item) or (by_name, b"")
        if (header.sequence, header.cluster_id) != (by_name.sequence, self._cluster_id):
            header, packed = by_name, b""
        stored = Stored(header=header, size=len(packed), version=_version(item))
        return stored, ArchiveSegment(header=header, packed=packed)

    def _name(self, sequence: int) -> str:
        return f"{self._prefix}-{sequence:06d}"

    def _tell_foreign(self, name: str) -> None:
        if name not in self._told and len(self._told) < TOLD_MAX:
            self._told.add(name)
            logger.warning(
                "the operator ignores ConfigMap %s/%s: it has the labels of the archive of this "
                "cluster's metadata history, but the operator did not write it; remove these "
                "labels from it",
                self._namespace,
                name,
            )

    async def write(self, segment: ArchiveSegment, over: Stored | None) -> Stored:
        name = self._name(segment.header.sequence)
        meta: Object = {"name": name, "namespace": self._namespace, "labels": self._labels}
        if over is not None:
            uid, _, version = over.version.partition(" ")
            meta |= {"uid": uid, "resourceVersion": version}
        manifest: Object = CONFIG_MAPS.manifest(
            meta,
            data={HEADER: msgspec.json.encode(segment.header).decode()},
            binaryData={ROWS: base64.b64encode(segment.packed).decode()},
        )
        send = self._kube.create if over is None else self._kube.replace
        try:
            body = await send(CONFIG_MAPS, manifest)
        except (Conflict, NotFound) as error:
            raise ArchiveConflict(error.message) from error
        except ApiError as error:
            raise ArchiveUnavailable(error.message) from error
        size = len(segment.packed)
        return Stored(header=segment.header, size=size, version=_version(body))

    async def delete(self, stored: Stored) -> None:
        name = self._name(stored.header.sequence)
        uid = stored.version.partition(" ")[0]
        try:
            await self._kube.delete(CONFIG_MAPS, self._namespace, name, uid=uid)
        except (Conflict, NotFound):
            return
        except ApiError as error:
            raise ArchiveUnavailable(error.message) from error


def _version(body: Object) -> str:
    meta = body["metadata"]
    return f"{meta['uid']} {meta['resourceVersion']}"


def _content(item: Object) -> tuple[Header, bytes] | None:
    """Return the header and the compressed rows in a ConfigMap, or None if they are unreadable."""
    try:
        header = msgspec.json.decode(item["data"][HEADER], type=Header)
        return header, base64.b64decode(item["binaryData"][ROWS], validate=True)
    except (KeyError, TypeError, msgspec.MsgspecError, binascii.Error):
        return None
