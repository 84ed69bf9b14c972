"""What came to the partitions of a parked fetch since it looked at them: whether to look again.

Called by the polls.  To look is to read, up to the largest reply: a poll that wants sixteen
megabytes would read all that is there whenever one record comes, and a client may have any number
of polls.  So what comes is counted by where it lies in the logs, and read once that may be enough.
It never answers anything.
Source: `DelayedFetch` of Kafka, which counts in the same way.
"""

from __future__ import annotations

from collections.abc import Iterable

from plimsoll_broker.replication.hosted_partition import Hosted
from plimsoll_broker.storage.disk import StorageError
from plimsoll_wire.fetch import FetchPartition

_ANY = 2**62
"""More bytes than any limit: where nothing was told yet, a first batch of any size counts."""


class Growth:
    """`by_end`: a follower's, who is told what is not committed yet."""

    __slots__ = ("_by_end", "_came", "_ends", "_missing", "_moved", "_room", "_unknown")

    def __init__(self, *, by_end: bool) -> None:
        self._by_end = by_end
        # Up to where each partition was looked at or counted.
        self._ends: dict[Hosted, int] = {}
        self._moved: dict[Hosted, None] = {}
        # What of each still counts, within its limits; a first batch counts whatever that is.
        self._room: dict[Hosted, int] = {}
        self._came = self._missing = 0
        # Whether what a look would find does not follow from what came.
        self._unknown = False

    def looked_at(self, hosted: Hosted) -> None:
        """In this turn; `there` says what of it counts."""
        self._room.pop(hosted, None)
        self._moved.pop(hosted, None)
        self._ends[hosted] = self._end(hosted)

    def found(self, size: int, missing: int) -> None:
        """All were looked at, and more is needed.  0 bytes `missing`: it is not known how many."""
        self._unknown = size == 0 and missing <= 1  # whatever comes is enough, as for most readers
        self._missing = missing
        self._came = 0

    def there(self, hosted: Hosted, asked: FetchPartition, told: int) -> int:
        """What lies from its offset on, told or not, in whatever segment: as much as counts."""
        end, size, most = self._end(hosted), told, asked.max_bytes
        if told < most and asked.offset < end:
            size = max(told, min(self._between(hosted, asked.offset, end), most))
        room = max(most - size, 0) if size else _ANY
        self._room[hosted] = self._room.get(hosted, 0) + room
        return size

    def there_is(self, looked: Iterable[tuple[Hosted, FetchPartition, int]]) -> int:
        """In all that was looked at in this turn, with how many bytes were told of each."""
        found = list(looked)
        for hosted, _, _ in found:
            self.looked_at(hosted)
        return sum(self.there(*one) for one in found)

    def moved(self, hosted: Hosted) -> None:
        """Something of it is new."""
        self._moved[hosted] = None

    @property
    def is_enough(self) -> bool:
        """Also when nothing has moved, and whoever waited was woken for something else."""
        return self._unknown or self._came >= self._missing

    def take_moved(self) -> Iterable[Hosted]:
        """Each is to be counted."""
        moved, self._moved = self._moved, {}
        return moved

    def count(self, hosted: Hosted, times: int) -> None:
        """What came to it, which is told so many times: a client may name a partition twice."""
        before, end = self._ends.get(hosted), self._end(hosted)
        self._ends[hosted] = end
        if before is None or end < before:
            self._unknown = True
        elif end > before:
            came = times * self._between(hosted, before, end)
            if (room := self._room.get(hosted)) is not None:
                came = min(came, room)
                self._room[hosted] = room - came
            self._came += came

    def _between(self, hosted: Hosted, first: int, end: int) -> int:
        """Bytes of its log between two offsets; 0 where it cannot be read."""
        try:
            return hosted.log.reader.bytes_between(first, end)
        except StorageError:
            self._unknown = True  # whoever reads it says so
            return 0

    def _end(self, hosted: Hosted) -> int:
        return hosted.log.log_end_offset if self._by_end else hosted.replica.high_watermark
