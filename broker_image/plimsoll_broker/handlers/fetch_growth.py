"""Growth: bytes that arrived for a parked fetch since its last look, to decide whether to look
again.

Called by the polls. A look reads up to the largest reply: a poll that waits for 16 MB would read
everything for each new record, and a client may have any number of polls. So new bytes are counted
by their place in the logs, and read once there may be enough. It never answers a request. Source:
Kafka's `DelayedFetch`, which counts in the same way.
"""

from __future__ import annotations

from collections.abc import Iterable

from plimsoll_broker.replication.hosted_partition import Hosted
from plimsoll_broker.storage.disk import StorageError
from plimsoll_wire.fetch import FetchPartition

_ANY = 2**62
"""More than any limit: if nothing was read yet, a first batch of any size counts."""


class Growth:
    """`by_end`: for a follower, which also reads uncommitted records."""

    __slots__ = ("_by_end", "_came", "_ends", "_missing", "_moved", "_room", "_unknown")

    def __init__(self, *, by_end: bool) -> None:
        self._by_end = by_end
        # The offset up to which each partition was looked at or counted.
        self._ends: dict[Hosted, int] = {}
        self._moved: dict[Hosted, None] = {}
        # Bytes of each partition that still count, within its limit; a first batch always counts.
        self._room: dict[Hosted, int] = {}
        self._came = self._missing = 0
        # True if the result of a look cannot be derived from the count.
        self._unknown = False

    def looked_at(self, hosted: Hosted) -> None:
        """The partition is looked at in this turn; `there` gives what counts."""
        self._room.pop(hosted, None)
        self._moved.pop(hosted, None)
        self._ends[hosted] = self._end(hosted)

    def found(self, size: int, missing: int) -> None:
        """All partitions were looked at, and more is needed. `missing` 0: it is not known how many
        bytes."""
        self._unknown = size == 0 and missing <= 1  # any new byte is enough, as for most readers
        self._missing = missing
        self._came = 0

    def there(self, hosted: Hosted, asked: FetchPartition, told: int) -> int:
        """Return the bytes from the fetch offset on that count, read or not, in whatever
        segment."""
        end, size, most = self._end(hosted), told, asked.max_bytes
        if told < most and asked.offset < end:
            size = max(told, min(self._between(hosted, asked.offset, end), most))
        room = max(most - size, 0) if size else _ANY
        self._room[hosted] = self._room.get(hosted, 0) + room
        return size

    def there_is(self, looked: Iterable[tuple[Hosted, FetchPartition, int]]) -> int:
        """Return the sum over all partitions looked at in this turn, each with the bytes read."""
        found = list(looked)
        for hosted, _, _ in found:
            self.looked_at(hosted)
        return sum(self.there(*one) for one in found)

    def moved(self, hosted: Hosted) -> None:
        """The partition has something new."""
        self._moved[hosted] = None

    @property
    def is_enough(self) -> bool:
        """True if a look is worthwhile, also if nothing moved and the poll was woken for another
        reason."""
        return self._unknown or self._came >= self._missing

    def take_moved(self) -> Iterable[Hosted]:
        """Remove and return the partitions to count."""
        moved, self._moved = self._moved, {}
        return moved

    def count(self, hosted: Hosted, times: int) -> None:
        """Count the partition's new bytes, `times` over: a client may name it twice."""
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
        """Return the bytes between two offsets; 0 if the log cannot be read."""
        try:
            return hosted.log.reader.bytes_between(first, end)
        except StorageError:
            self._unknown = True  # the look reports the error
            return 0

    def _end(self, hosted: Hosted) -> int:
        return hosted.log.log_end_offset if self._by_end else hosted.replica.high_watermark
