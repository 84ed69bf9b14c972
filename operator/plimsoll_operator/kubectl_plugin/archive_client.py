"""Reads the history's archive: ConfigMaps of the API server, or the files of a local cluster.

It first asks the operator to store its latest changes. If none answers, it shows the stored rows
and the time up to which they reach.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from uuid import UUID

from plimsoll_operator.api.conditions import timestamp
from plimsoll_operator.history.archive import ArchiveUnavailable, SegmentStore
from plimsoll_operator.history.changes import ChangeRow
from plimsoll_operator.history.directory_store import DirectoryStore
from plimsoll_operator.history.kube_store import KubeStore
from plimsoll_operator.history.segments import ArchiveSegment, UnreadableSegment, rows_of
from plimsoll_operator.kubectl_plugin.session import PluginSession
from plimsoll_operator.kubectl_plugin.shown import Problem, ViewUnavailable


@dataclass(frozen=True, slots=True, kw_only=True)
class Archived:
    """`notes`: sentences about rows that may be missing."""

    rows: list[ChangeRow]
    notes: list[str]


async def read(session: PluginSession, topic: str = "", partition: int = 0) -> Archived:
    """Return the rows about one partition; without a topic, all rows. Raises `Problem`."""
    notes: list[str] = []
    directory = ""
    try:
        told = await session.see("/history")
        directory = str(told.get("directory", ""))
        if not told["archived"]:
            notes.append(
                "The operator could not archive its latest changes; they are missing here."
            )
    except ViewUnavailable as error:
        notes.append(f"{error} Showing what was archived before.")
    store = _store(session, directory)
    try:
        segments = [segment for _, segment in await store.stored()]
    except ArchiveUnavailable as error:
        raise Problem(f"Cannot read the history archive: {error}.") from error
    rows, unread = await asyncio.to_thread(_rows, segments, topic, partition)
    notes += unread
    if notes and segments:
        notes.append(f"The archive ends at {timestamp(segments[-1].header.last_ms)}.")
    return Archived(rows=rows, notes=notes)


def _store(session: PluginSession, directory: str) -> SegmentStore:
    if directory:
        return DirectoryStore(Path(directory))
    namespace, name = session.cluster.key
    return KubeStore(session.kube, namespace, name, UUID(session.cluster_id))


def _rows(
    segments: Sequence[ArchiveSegment], topic: str, partition: int
) -> tuple[list[ChangeRow], list[str]]:
    rows: list[ChangeRow] = []
    notes: list[str] = []
    for segment in segments:
        try:
            found = rows_of(segment)
        except UnreadableSegment as error:
            notes.append(f"Part {segment.header.sequence} of the archive cannot be read: {error}.")
            continue
        rows += [row for row in found if not topic or row.holds(topic, partition)]
    return rows, notes
