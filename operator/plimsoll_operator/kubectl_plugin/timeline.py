"""Reads the history's archive, and formats one partition's history: time, change, reason, origin.

It first asks the operator to store its latest changes. If none answers, it shows the stored rows
and the time up to which they reach. The leader epoch of each row is counted back from the present
one.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from uuid import UUID

import msgspec

from plimsoll_operator.api.conditions import milliseconds, timestamp
from plimsoll_operator.history.archive import ArchiveUnavailable, SegmentStore
from plimsoll_operator.history.changes import RESTORED, ChangeRow, standing
from plimsoll_operator.history.segment_stores import DirectoryStore, KubeStore
from plimsoll_operator.history.segments import ArchiveSegment, UnreadableSegment, rows_of
from plimsoll_operator.kubectl_plugin.session import PluginSession
from plimsoll_operator.kubectl_plugin.shown import Problem, ViewUnavailable


@dataclass(frozen=True, slots=True, kw_only=True)
class Archived:
    """Changes read from the history's archive, oldest first. `notes`: sentences for the user about
    changes that may be missing."""

    rows: list[ChangeRow]
    notes: list[str]


async def read(session: PluginSession, topic: str = "", partition: int = 0) -> Archived:
    """Have the operator archive its latest changes, then return the archived changes of one
    partition, or of all partitions if `topic` is empty. If no operator answers, or a segment is
    unreadable, a note says so and the rest is returned. Raises `Problem` if the archive cannot be
    read."""
    notes: list[str] = []
    directory = ""
    try:
        told = await session.see("/history")
        directory = str(told.get("directory", ""))
        if not told["archived"]:
            notes.append(
                "The latest changes are missing here, because the operator could not write them to "
                "the archive of the metadata history yet. It tries again, and the metadata itself "
                "is safe; if they stay missing, the operator's log says why."
            )
    except ViewUnavailable as error:
        notes.append(f"{error} The changes that were archived before follow.")
    store = _store(session, directory)
    try:
        segments = [segment async for _, segment in store.stored()]
    except ArchiveUnavailable as error:
        raise Problem(f"Cannot read the archive of the metadata history: {error}.") from error
    segments.sort(key=lambda segment: segment.header.sequence)
    rows, unread = await asyncio.to_thread(_rows, segments, topic, partition)
    notes += unread
    if notes and segments:
        notes.append(
            "The archive of the metadata history ends at "
            f"{timestamp(segments[-1].header.last_ms)}. Changes that the operator has not "
            "archived, or that are in an unreadable segment of the archive, are not shown."
        )
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
            notes.append(
                f"Part {segment.header.sequence} of the archive of the metadata history cannot be "
                f"read, so its changes are not shown: {error}."
            )
            continue
        rows += [row for row in found if not topic or row.holds(topic, partition)]
    return standing(rows), notes


_SPAN = re.compile(r"(\d+)(s|m|h|d)")
_UNIT_MS = {"s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}


class Moment(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One change of a partition, as `why` shows it. `time`: RFC 3339; None if the log does not say.
    `leader`, `isr`: after the change; None if the change left them as they were (or there is no
    leader). `why`: the category of the reason; `cause`: the sentence in the record; `asked`: what
    requested the change. `leader_epoch`: after the change; None if the partition's present leader
    epoch is unknown. `offset`: the record's, in the metadata log."""

    time: str | None
    what: str
    leader: int | None = None
    isr: list[int] | None = None
    leader_epoch: int | None = None
    why: str = ""
    planned: bool = False
    cause: str = ""
    asked: str = ""
    offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class AskedPartition:
    """The partition that `why` is about. `since_ms`: the start of the period (milliseconds since
    1970; 0: the whole history). `leader_epoch`: the present one; None if unknown."""

    topic: str
    partition: int
    since_ms: int = 0
    leader_epoch: int | None = None


def since(text: str | None, now_ms: int) -> int:
    """Return the start of the period that `--since` states, in milliseconds since 1970: `2h` and
    `3d` count back from `now_ms`, a time such as 2026-11-24T12:00:00Z stands for itself (UTC if it
    has no zone). Return 0 for None or "". Raises `Problem` for any other text."""
    if not text:
        return 0
    if found := _SPAN.fullmatch(text):
        return now_ms - int(found[1]) * _UNIT_MS[found[2]]
    try:
        at = datetime.fromisoformat(text.replace("Z", "+00:00"))
    except ValueError:
        raise Problem(
            f"--since {text} is no time: give a span (30m, 2h, 3d) or a time such as "
            "2026-11-24T12:00:00Z."
        ) from None
    return int((at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp() * 1000)


def timeline(rows: Iterable[ChangeRow], asked: AskedPartition) -> list[Moment]:
    ours = {row for row in rows if row.holds(asked.topic, asked.partition)}
    made = max((row.offset for row in ours if row.kind == "created"), default=0)
    ours = {row for row in ours if row.kind != "unknown" or row.offset > made}
    found: list[Moment] = []
    epoch = asked.leader_epoch
    # A topic that was recreated under its name counts epochs of its own.
    latest = max((row for row in ours if row.topic_id), key=_place, default=None)
    for row in sorted(ours, key=_place, reverse=True):
        same = latest is not None and row.topic_id == latest.topic_id
        known = epoch if same and row.kind != "removed" else None
        if not row.ms or row.ms >= asked.since_ms:
            found.append(_moment(row, known))
        if epoch is not None and same:
            epoch -= row.epochs
    found.reverse()
    return found


def _place(row: ChangeRow) -> int:
    return row.offset


def _moment(row: ChangeRow, epoch: int | None) -> Moment:
    return Moment(
        time=timestamp(row.ms) if row.ms else None,
        what=_what(row),
        leader=None if row.leader is None else row.leader[1],
        isr=None if row.isr is None else list(row.isr[1]),
        leader_epoch=epoch,
        why=row.word,
        planned=row.planned,
        cause=row.cause,
        asked=row.asked,
        offset=row.offset,
    )


def _what(row: ChangeRow) -> str:
    if row.word == RESTORED:
        return "The metadata were restored to an earlier state; the later changes are lost."
    if row.kind == "unknown":
        return "The archive of the metadata history lacks the changes at this point."
    if row.kind == "removed":
        return "The topic of the partition was removed."
    parts = []
    if row.kind == "created" and row.leader and row.isr:
        return (
            f"The partition was created: leader {_broker(row.leader[1])}, ISR "
            f"{_brokers(row.isr[1])}."
        )
    if row.leader is not None:
        parts.append(f"leader {_broker(row.leader[0])} → {_broker(row.leader[1])}")
    if row.isr is not None:
        before, after = row.isr
        parts.append(f"ISR {_brokers(before)} → {_brokers(after)}{_difference(before, after)}")
    if row.replicas is not None:
        parts.append(f"replicas {_brokers(row.replicas[0])} → {_brokers(row.replicas[1])}")
    return "; ".join(parts) or "same leader, new leader epoch"


def _difference(before: tuple[int, ...], after: tuple[int, ...]) -> str:
    left = [f"-{b}" for b in before if b not in after]
    joined = [f"+{b}" for b in after if b not in before]
    return f" ({' '.join(left + joined)})" if left or joined else ""


def _broker(broker: int | None) -> str:
    return "none" if broker is None else str(broker)


def _brokers(brokers: tuple[int, ...]) -> str:
    return f"[{','.join(map(str, brokers))}]"


def age(stamp: str, now_ms: int) -> str:
    """Return the time from `stamp` to `now_ms` as `kubectl` shows it: 41s, 7m, 3h, 5d."""
    seconds = max(0, now_ms - milliseconds(stamp)) // 1000
    for unit, size in (("d", 86_400), ("h", 3_600), ("m", 60)):
        if seconds >= size:
            return f"{seconds // size}{unit}"
    return f"{seconds}s"
