"""SegmentRoom: the memory for the segments of all logs of a broker, shared fairly by their owners.

Each log's first segments are part of the memory of its partition. Those beyond are counted here,
since topic configs and timestamps, which clients determine, decide how many a log has. A log with
an owner that has used its share starts its next segment only when the last one has LARGE_BYTES: the
disk then bounds their number. Segments found at a start are counted, never refused.
"""

from __future__ import annotations

from plimsoll_core.quotas.fair_pool import FairPool

OWN_SEGMENTS = 4
"""The number of segments of a log for which its partition's memory has room."""
SEGMENT_BYTES = 3_072
"""The memory in bytes of a segment that is not used."""
LARGE_BYTES = 2**30
"""The size in bytes from which a segment is full by its topic's configs even without room: the
default of segment.bytes."""
_BYTES_ASSUMED = 2**30 // 32


class SegmentRoom:
    """Counts the segments beyond OWN_SEGMENTS of each log in `pool`, by owner."""

    def __init__(self) -> None:
        self.pool = FairPool(_BYTES_ASSUMED // SEGMENT_BYTES)

    def bound(self, memory: int) -> None:
        """Limit the memory of counted segments to `memory` bytes."""
        self.pool.capacity = memory // SEGMENT_BYTES


class SegmentCount:
    """The segments of one log that are counted in a broker's `SegmentRoom`."""

    __slots__ = ("_counted", "_owner", "_pool")

    def __init__(self, room: SegmentRoom) -> None:
        self._pool = room.pool
        self._owner = ""
        self._counted = 0

    def set(self, owner: str, segments: int) -> None:
        """Count a log of `segments` segments for this owner from now on."""
        more = max(segments - OWN_SEGMENTS, 0)
        if more == self._counted and owner == self._owner:
            return
        self._pool.give_back(self._owner, self._counted)
        self._pool.take(owner, more)
        self._owner, self._counted = owner, more

    def has_room(self, segments: int) -> bool:
        """Return True if a log with `segments` segments may have another one. Otherwise count a
        refusal."""
        if segments < OWN_SEGMENTS or self._pool.admits(self._owner, 1):
            return True
        self._pool.refused += 1
        return False
