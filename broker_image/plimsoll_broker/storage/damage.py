"""Finds where the content of a damaged segment begins to differ from what was written, and that
files are missing.

Called by recovery, which cuts there or takes the log out of service.
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
    """What is in a segment is not what was written: up to `extent` it is."""

    def __init__(self, segment: Segment, extent: Extent, why: object) -> None:
        super().__init__(f"{segment.path.name}: {why}")
        self.segment = segment
        self.extent = extent
        self.mended = False


def damage(segment: Segment, error: BatchError) -> Damaged:
    """Where the segment stops being what was written; all of it is read for that.  `mended`: it is
    all there, only an index was wrong, which was made again."""
    extent = reindex(segment)
    found = Damaged(segment, extent, extent.error or error)
    found.mended = extent.error is None
    return found


def damaged(segments: list[Segment], segment: Segment, extent: Extent) -> Damaged:
    """Where a term falls, the batch there is wrong, or the one before it, if its term has no other
    (a flipped bit makes a term of its own)."""
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
    """The batch that holds `offset`, and where it is."""
    at = bisect_right(segments, offset, key=lambda segment: segment.base_offset) - 1
    if at < 0:
        return None
    try:
        found = segments[at].find(offset)
    except BatchError as error:
        raise damage(segments[at], error) from error
    return None if found is None else (segments[at], *found)


def check_ends(place: LogPlace, contents: LogContents, known: Known) -> None:
    """Raises StorageError where anything is missing that a clean stop left: the cluster may count
    on it.  After any other end it counts on nothing; a log that has lost its beginning is known by
    its note (without one nobody knows), also after clean stops that come later."""
    if known.clean and (why := _missing(contents, known.saved_start, known.recovery_point)):
        raise StorageError(StorageFault.CORRUPT, place.directory, why)
    if contents.beginning_lost:
        lost = "%s begins at %d, and began at %s: it has lost its beginning"
        base = contents.segments[0].base_offset
        logger.error(lost, place.directory.name, base, known.noted_start)


def _missing(contents: LogContents, saved_start: int | None, recovery_point: int | None) -> str:
    """What a clean stop left on the disk and is not there any more: a file that is shorter by whole
    batches contradicts no other one, nor does a first or last segment that is gone."""
    end, base = contents.log_end_offset, contents.segments[0].base_offset
    if recovery_point is not None and end < recovery_point:
        return f"it ends at {end}, and was on the disk up to {recovery_point}"
    if saved_start is not None and base > saved_start:
        return f"its first segment begins at {base}, and it began at {saved_start}"
    return ""
