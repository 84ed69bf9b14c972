"""Finds where a damaged segment begins to differ from what was written, and missing files.

Called by recovery, which truncates there or takes the log offline.
"""

from __future__ import annotations

import logging
from bisect import bisect_right

from plimsoll_broker.storage.disk import StorageError, StorageFault
from plimsoll_broker.storage.log_values import Known, LogContents, LogPlace
from plimsoll_broker.storage.segment import Segment
from plimsoll_broker.storage.trusted_extent import Extent, reindex
from plimsoll_wire.batches import BadBatch, BatchError, BatchHeader

logger = logging.getLogger("plimsoll.storage")


class Damaged(Exception):
    """A segment is corrupt after `extent`."""

    def __init__(self, segment: Segment, extent: Extent, why: object) -> None:
        super().__init__(f"{segment.path.name}: {why}")
        self.segment = segment
        self.extent = extent
        self.mended = False


def damage(segment: Segment, error: BatchError) -> Damaged:
    """Read the whole segment to find its valid extent. `mended`: only an index was wrong, and has
    been rebuilt."""
    extent = reindex(segment)
    found = Damaged(segment, extent, extent.error or error)
    found.mended = extent.error is None
    return found


def damaged(segments: list[Segment], segment: Segment, extent: Extent) -> Damaged:
    """Return the damage at a falling leader epoch: the batch there is bad, or the one before it if
    its epoch has no other batch (a flipped bit makes an epoch of its own)."""
    assert extent.error is not None, "of a segment that is wrong"
    if extent.error.reason is BadBatch.EPOCH:
        before = batch_at(segments, extent.next_offset - 1)
        earlier = None if before is None else batch_at(segments, before[2].base_offset - 1)
        if before is not None and (
            earlier is None or earlier[2].leader_epoch != before[2].leader_epoch
        ):
            owner, position, header = before
            return Damaged(owner, Extent(position, header.base_offset), extent.error)
    return Damaged(segment, extent, extent.error)


def batch_at(segments: list[Segment], offset: int) -> tuple[Segment, int, BatchHeader] | None:
    """Return the batch that holds `offset`, with its segment and position, or None."""
    at = bisect_right(segments, offset, key=lambda segment: segment.base_offset) - 1
    if at < 0:
        return None
    try:
        found = segments[at].find(offset)
    except BatchError as error:
        raise damage(segments[at], error) from error
    return None if found is None else (segments[at], *found)


def check_ends(place: LogPlace, contents: LogContents, known: Known) -> None:
    """Raise StorageError if records that a clean stop left are missing, since the cluster may count
    on them. After any other end it counts on none. A log that has lost its beginning is recognised
    by its note, also after later clean stops."""
    if known.clean and (why := _missing(contents, known.saved_start, known.recovery_point)):
        raise StorageError(StorageFault.CORRUPT, place.directory, why)
    if contents.beginning_lost:
        lost = "%s begins at %d, and began at %s: it has lost its beginning"
        base = contents.segments[0].base_offset
        logger.error(lost, place.directory.name, base, known.noted_start)


def _missing(contents: LogContents, saved_start: int | None, recovery_point: int | None) -> str:
    """Return a message about records that a clean stop left on the disk and that are missing, or
    "". A file that is shorter by whole batches, or a missing first or last segment, contradicts no
    other file."""
    end, base = contents.log_end_offset, contents.segments[0].base_offset
    if recovery_point is not None and end < recovery_point:
        return f"it ends at {end}, and was on the disk up to {recovery_point}"
    if saved_start is not None and base > saved_start:
        return f"its first segment begins at {base}, and it began at {saved_start}"
    return ""
