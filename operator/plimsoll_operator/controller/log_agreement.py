"""Compares a broker's copy of the metadata with what the log in storage still holds. Pure.

Nonces are random: they show where two histories part, and not that their records are the same. A
broker that was taken over could offer the cluster's nonces with records of its own. So the copy's
later records, applied to the image of the log, must give the copy's image. Called by
`restore_decision` and, beside the event loop, by `metadata_restoration`. Source: docs/protocol.md
3.16.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from uuid import UUID

from msgspec import UNSET

from plimsoll_core.cluster.image import apply_all
from plimsoll_core.cluster.image_encoding import encode_image
from plimsoll_core.cluster.model import ClusterImage, PartitionKey
from plimsoll_core.cluster.record_versions import MetadataTooNew, read_records
from plimsoll_core.cluster.records import PartitionsChanged, Record
from plimsoll_core.ids import MetadataOffset
from plimsoll_operator.controller.commit_queue import first_image, wholes
from plimsoll_operator.controller.metadata_tail import MetadataTail, Standing
from plimsoll_operator.metalog.codec import decode_records
from plimsoll_operator.metalog.interface import OpenedLog

HELD = (Standing.WITHIN, Standing.TOO_OLD)


@dataclass(frozen=True, slots=True, kw_only=True)
class Agreement:
    """What the log says about a copy. `shown`: True if the copy shows all its records from the end
    of the common part on; `agrees`: False if these, applied to the image of the log, give another
    image than the copy's. `unlawful_end`: the offset after the last record that gives a partition
    another replica, or an ISR or a leader beyond its ISR and ELR; 0 if none does."""

    shown: bool
    agrees: bool = True
    unlawful_end: int = 0


def agreement(
    copy: ClusterImage, tail: MetadataTail, opened: OpenedLog, cluster_id: UUID
) -> Agreement:
    """Compare a copy, its image and its newest batches, with a log that can be opened. Raises the
    errors of `first_image` and `decode_records` for the log."""
    common = _common(tail, opened, cluster_id)
    if common is None or common.next_offset < tail.start:
        return Agreement(shown=False)
    image, unlawful_end = common, 0
    try:
        for record in _later(tail, common.next_offset):
            lawful = not isinstance(record, PartitionsChanged) or _is_lawful(image, record)
            image = apply_all(image, (record,))
            if not lawful:
                unlawful_end = image.next_offset
    except (MetadataTooNew, AssertionError, LookupError, TypeError, ValueError):
        return Agreement(shown=True, agrees=False)
    agrees = encode_image(image) == encode_image(copy)
    return Agreement(shown=True, agrees=agrees, unlawful_end=unlawful_end)


def _common(tail: MetadataTail, opened: OpenedLog, cluster_id: UUID) -> ClusterImage | None:
    """Return the image of the log at the last batch that the copy has too; None if its snapshot has
    records already that the copy lacks."""
    image, snapshot = first_image(opened, cluster_id), opened.snapshot
    if snapshot is not None and not _has(tail, image, snapshot.nonce):
        return None
    for whole in wholes(opened.batches):
        after = image
        for batch in whole:
            after = apply_all(after, decode_records(batch))
        if not _has(tail, after, whole[-1].nonce):
            break
        image = after
    return image


def _has(tail: MetadataTail, image: ClusterImage, nonce: str) -> bool:
    return tail.standing(image.next_offset, nonce, image.term_id) in HELD


def _later(tail: MetadataTail, offset: MetadataOffset) -> Iterator[Record]:
    while offset < tail.end:
        for batch in tail.read(offset):
            yield from read_records(batch.records_json)
            offset = batch.end_offset


def _is_lawful(image: ClusterImage, record: PartitionsChanged) -> bool:
    stated = (record.replicas, record.adding, record.removing)
    if any(one is not UNSET for one in stated):
        return False
    wanted = set(() if record.isr is UNSET else record.isr)
    if record.leader is not UNSET and record.leader is not None:
        wanted.add(record.leader)
    for first, last in record.ranges:
        for index in range(first, last + 1):
            known = image.partitions[PartitionKey(record.topic_id, index)]
            if not wanted <= {*known.isr, *known.elr}:
                return False
    return True
