"""Reads a backup up to a point in time, as a copy of the metadata that `prove_content`
proves: the same proof as for a broker's copy."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass
from uuid import UUID

from plimsoll_core.cluster.image_encoding import encode_image
from plimsoll_core.cluster.model import ClusterImage
from plimsoll_core.ids import ControllerEpoch
from plimsoll_core.messages.metadata_copy import CopyContent
from plimsoll_core.messages.requests import LogPosition
from plimsoll_core.phrasing import bytes_text
from plimsoll_operator.backup import backup_objects
from plimsoll_operator.backup.backup_objects import Content, ObjectName, ObjectUnreadable, Point
from plimsoll_operator.backup.backup_stores import BackupStore
from plimsoll_operator.controller.restore_decision import ProvenCopy, prove_content


@dataclass(frozen=True, slots=True, kw_only=True)
class BackupCopy:
    """A backup up to a point, proven. `at_ms`: when its last object was stored; `bytes`: the stored
    size of its objects."""

    copy: ProvenCopy
    at_ms: int
    objects: int
    bytes: int


_OTHERWISE = (
    "Restore to an earlier point, or put an intact copy of this object back into the backup. If "
    "the cluster still runs, nothing needs to be restored: it stores a new snapshot within a day, "
    "or within an hour if you move the damaged object out of the backup."
)


class NoPoint(Exception):
    """Raised if a backup has no such point, or a part of it is not proven. The message is a
    sentence."""


async def read_point(store: BackupStore, cluster_id: UUID, point: Point) -> BackupCopy:
    """Return the backup in `store` up to a point. Raises `NoPoint` and `StoreUnavailable`."""
    names = [one.name for one in await store.stored()]
    found = await asyncio.to_thread(lambda: backup_objects.chain(parsed(names), point))
    if isinstance(found, str):
        raise NoPoint(
            f"The metadata cannot be restored from the backup in {store.place}: {found}. Ask for "
            "another point, or correct the place that spec.backup names."
        )
    contents, size, inflated = [], 0, 0
    for name in found:
        left = backup_objects.STORED_BYTES_MAX - size
        data = await store.read(str(name), left + 1)
        size += len(data)
        if len(data) > left:
            raise NoPoint(
                f"The metadata cannot be restored from the backup in {store.place}: its objects "
                f"up to that point have more than {bytes_text(backup_objects.STORED_BYTES_MAX)}, "
                "the most that a restore reads. Restore an earlier point. In a running cluster "
                "reduce the number of topics, partitions and users; within a day the operator "
                "stores a smaller snapshot."
            )
        try:
            decoded = await asyncio.to_thread(
                backup_objects.decode,
                *(data, name, cluster_id, backup_objects.POINT_BYTES_MAX - inflated),
            )
        except ObjectUnreadable as error:
            raise NoPoint(
                f"The metadata cannot be restored from the backup in {store.place}: object {name} "
                f"cannot be used: {error}. {_OTHERWISE}"
            ) from None
        inflated += decoded.size
        contents.append(decoded)
    copy = await asyncio.to_thread(_proven, contents, cluster_id, point)
    if isinstance(copy, str):
        raise NoPoint(
            f"The metadata cannot be restored from the backup in {store.place}: {copy}. "
            f"{_OTHERWISE}"
        )
    return BackupCopy(copy=copy, at_ms=found[-1].written_ms, objects=len(found), bytes=size)


def _proven(contents: list[Content], cluster_id: UUID, point: Point) -> ProvenCopy | str:
    first, rest = contents[0], contents[1:]
    if first.name.is_snapshot:
        image, nonce = first.image, first.name.nonce
        epoch = ControllerEpoch(first.name.epoch)
    else:
        image, nonce = encode_image(ClusterImage(cluster_id=cluster_id)), None
        epoch, rest = ControllerEpoch(0), contents
    batches = tuple(batch for one in rest for batch in one.batches)
    position = contents[-1].position
    if point.offset is not None and point.offset < contents[-1].name.end:
        before = contents[-2].term_id if len(contents) > 1 else ""
        cut = _cut(contents[-1], point.offset, before)
        if isinstance(cut, str):
            return cut
        batches = tuple(one for one in batches if one.end_offset <= cut.applied_offset)
        position = cut
    content = CopyContent(image=image, nonce=nonce, controller_epoch=epoch, batches=batches)
    return prove_content(content, cluster_id, None, position)


def _cut(last: Content, offset: int, term_before: str) -> LogPosition | str:
    """Return the position at the end of the last batch of an object that ends at `offset` or
    before; a sentence without an end if there is none."""
    kept = [batch for batch in last.batches if batch.end_offset <= offset]
    if not kept:
        return f"no metadata batch ends at offset {offset}; the next one ends at {_first_end(last)}"
    try:
        term_id = backup_objects.term_of(kept, term_before)
    except ObjectUnreadable as error:
        return str(error)
    return LogPosition(
        applied_offset=kept[-1].end_offset,
        nonce=kept[-1].nonce,
        controller_epoch=kept[-1].controller_epoch,
        term_id=term_id,
    )


def _first_end(last: Content) -> int:
    return last.batches[0].end_offset if last.batches else last.name.end


def parsed(names: Iterable[str]) -> list[ObjectName]:
    """Return those of the names that are names of objects."""
    return [found for one in names if (found := backup_objects.parse(one)) is not None]
