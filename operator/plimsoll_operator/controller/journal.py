"""The controller's side of the metadata log: replay it, and append decisions at its end.

`controller_term` calls it, `metalog` stores. It decides nothing and never re-orders.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import groupby
from uuid import UUID

from plimsoll_core.cluster.image import apply_all
from plimsoll_core.cluster.image_encoding import decode_image
from plimsoll_core.cluster.model import ClusterImage
from plimsoll_core.cluster.records import Record
from plimsoll_core.cluster.unknown_records import MetadataTooNew
from plimsoll_core.ids import ControllerEpoch, MetadataOffset
from plimsoll_core.messages.metadata_stream import MetadataBatchCopy
from plimsoll_operator.controller.recent_batches import MetadataTail
from plimsoll_operator.metalog.codec import decode_records, pack
from plimsoll_operator.metalog.interface import (
    EMPTY_TIP,
    Batch,
    LogCorrupt,
    MetadataLog,
    OpenedLog,
    Snapshot,
    Tip,
    UnknownRecord,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Restored:
    """Content of the log: the image at its end, and its newest batches for the streams."""

    image: ClusterImage
    tail: MetadataTail


class Journal:
    """Position of the next batch. The caller ensures that one append runs at a time."""

    def __init__(
        self,
        log: MetadataLog,
        cluster_id: UUID,
        now_ms: Callable[[], int] = lambda: 0,
        on_open: Callable[[OpenedLog], None] | None = None,
    ) -> None:
        """Create a journal. `now_ms`: the clock for the batches' times. `on_open`: called with the
        log each time it was read."""
        self._on_open = on_open
        self._log = log
        self._now_ms = now_ms
        self.cluster_id = cluster_id
        self._tip: Tip = EMPTY_TIP
        self.group_unfinished = False
        """A group was begun and not finished: only a new term may follow, which voids the group."""

    async def open(self) -> Restored:
        """Read everything; appends then go to the end that was read."""
        opened = await self._log.open()
        restored = replay(opened, self.cluster_id)
        self._tip = opened.tip
        self.group_unfinished = False
        if self._on_open is not None:
            self._on_open(opened)
        return restored

    async def append(
        self, records: Sequence[Record], controller_epoch: ControllerEpoch
    ) -> MetadataBatchCopy:
        """Commit the records in one batch, or in a group if one batch cannot hold them.

        Returns the copy for brokers.
        """
        batches = pack(records, self._tip, controller_epoch, _new_nonce, self._now_ms())
        for batch in batches:
            await self._log.append(batch)
            self._tip = self._tip.after(batch)
            self.group_unfinished = not batch.last_of_group
        return merged(batches)


def _new_nonce() -> str:
    return secrets.token_hex(8)


def replay(opened: OpenedLog, cluster_id: UUID) -> Restored:
    """Return the image and the tail of a log."""
    snapshot, image = opened.snapshot, first_image(opened, cluster_id)
    tail = MetadataTail(start=image.next_offset, nonce=snapshot.nonce if snapshot else None)
    for whole in _wholes(opened.batches):
        for batch in whole:
            image = apply_all(image, decode_records(batch))
        tail.append(merged(whole))
    return Restored(image=image, tail=tail)


def first_image(opened: OpenedLog, cluster_id: UUID) -> ClusterImage:
    """Return the image before the log's first batch: its snapshot, or an empty cluster."""
    snapshot = opened.snapshot
    image = ClusterImage(cluster_id=cluster_id) if snapshot is None else _image_of(snapshot)
    if image.cluster_id != cluster_id:
        raise LogCorrupt(f"this metadata log belongs to cluster {image.cluster_id}")
    return image


def _image_of(snapshot: Snapshot) -> ClusterImage:
    try:
        return decode_image(snapshot.image_bytes)
    except MetadataTooNew as error:
        raise UnknownRecord(f"in metadata snapshot {snapshot.name} {error}") from error


def _wholes(batches: Sequence[Batch]) -> list[tuple[Batch, ...]]:
    """Yield single batches, and complete groups together."""
    keyed = groupby(batches, key=lambda batch: batch.group or f"single {batch.sequence}")
    return [tuple(members) for _, members in keyed]


def merged(batches: Sequence[Batch]) -> MetadataBatchCopy:
    """Return a batch, or a whole group, as one batch for the brokers: they never see half of a
    group."""
    body = b"[" + b",".join(batch.records_json[1:-1] for batch in batches) + b"]"
    return MetadataBatchCopy(
        base_offset=MetadataOffset(batches[0].base_offset),
        controller_epoch=ControllerEpoch(batches[-1].controller_epoch),
        nonce=batches[-1].nonce,
        records_json=body,
        record_count=sum(batch.record_count for batch in batches),
    )
