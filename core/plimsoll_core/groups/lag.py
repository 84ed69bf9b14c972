"""Consumer lag: a group's distance from the ends of the logs that it reads, in records and in time.

Also measures for how long a group's committed offsets have not changed, and selects the groups to
show. Called by the broker's `coordinator.group_measures`, which samples committed offsets and log
ends every few seconds. No records are read: a record's age is counted from the time when the
coordinator's clock first saw a log end after it. So every age is a lower bound.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Callable, Mapping
from heapq import heappush, heappushpop
from typing import NamedTuple

from plimsoll_core.groups.state import CommittedOffset

SAMPLES_MAX = 24
"""The most samples of one partition: recent ones as taken, older ones with growing distances."""


class EndHistory:
    """Samples of one partition's log end: each offset with the time at which it was first seen. A
    record's age is derived from them and is never overstated. The number of samples is bounded."""

    __slots__ = ("_ends", "_times_ms")

    def __init__(self) -> None:
        # Growing: ends, and when each was first seen.
        self._ends = array("q")
        self._times_ms = array("q")

    def note(self, end: int, now_ms: int) -> None:
        """Record the log end as of `now_ms`, unless it is the same as in the last sample. If the
        log end went back (an unclean election), drop earlier samples."""
        if self._ends and end <= self._ends[-1]:
            if end == self._ends[-1]:
                return
            del self._ends[:], self._times_ms[:]
        self._ends.append(end)
        self._times_ms.append(now_ms)
        if len(self._ends) > SAMPLES_MAX:
            at = self._least_missed(now_ms)
            del self._ends[at], self._times_ms[at]

    def _least_missed(self, now_ms: int) -> int:
        """Return the index of the sample that is removed next. Without it, ages are understated
        least."""
        times = self._times_ms

        def part(at: int) -> float:
            return (times[at + 1] - times[at - 1]) / max(now_ms - times[at - 1], 1)

        return min(range(1, len(times) - 1), key=part)

    @property
    def end(self) -> int | None:
        """Return the log end that was recorded last, or None if there is none."""
        return self._ends[-1] if self._ends else None

    def behind_since_ms(self, position: int) -> int | None:
        """Return the time, by the clock of `note`, since when the log is known to have a record at
        or after `position`. Return None if no sampled log end is above `position`."""
        at = bisect_right(self._ends, position)
        return self._times_ms[at] if at < len(self._ends) else None


class TopicLag(NamedTuple):
    """One group's lag on one topic, over the partitions for which it has committed offsets.

    `records`: the sum of log ends minus committed offsets. `behind_ms`: a lower bound on the age of
    its oldest unread record; 0 if it has read everything. `position`: the sum of its committed
    offsets, which shows progress. `stuck_ms`: a lower bound on the time for which the partition
    that is longest without progress has had none.
    """

    records: int
    group_id: str
    topic: str
    behind_ms: int
    position: int
    stuck_ms: int = 0


class GroupPartition(NamedTuple):
    """A partition for which the group has committed an offset."""

    group_id: str
    topic: str
    partition: int


class StandingPartitions:
    """Remembers, for each partition in which a group is behind, since when its committed offset has
    not changed, by the coordinator's clock. At most `most` partitions are tracked: those that come
    first in a pass over all groups."""

    def __init__(self, most: int) -> None:
        self._most = most
        # Committed offset and time since when, of the last pass and of this one.
        self._last: dict[GroupPartition, tuple[int, int]] = {}
        self._this: dict[GroupPartition, tuple[int, int]] = {}

    def since_ms(self, key: GroupPartition, offset: int, committed_ms: int) -> int | None:
        """Record that the group is behind in the partition `key`, and return the time since when
        its committed offset has been `offset`: `committed_ms` if it was another in the last pass. A
        repeated commit of the same offset does not count. Return None, and record nothing, if too
        many partitions are tracked."""
        if len(self._this) >= self._most:
            return None
        seen = self._last.get(key)
        if seen is None or seen[0] != offset:
            seen = (offset, committed_ms)
        self._this[key] = seen
        return seen[1]

    def looked(self) -> None:
        """End a pass over all groups: forget the partitions for which `since_ms` was not called,
        since their groups are no longer behind."""
        self._last, self._this = self._this, {}


History = Callable[[int, CommittedOffset], EndHistory | None]
"""The type of a function that returns the known history of a partition's log end, by index and
committed offset; None if it is unknown."""
Stood = Callable[[int, CommittedOffset], int | None]
"""The type of a function that returns the time since when a lagging partition has had its committed
offset; None if it is unknown."""


def topic_lag(
    group_id: str,
    topic: str,
    committed: Mapping[int, CommittedOffset],
    history: History,
    stood: Stood,
    now_ms: int,
) -> TopicLag | None:
    """Return the group's lag on one topic, over the partitions with a known log end. Return None if
    there is none.

    `committed`: offsets by partition index. `history`: returns a partition's `EndHistory` or None.
    `stood`: returns since when its committed offset has not changed, or None.
    """
    records = behind_ms = stuck_ms = position = known = 0
    for index, offset in committed.items():
        ends = history(index, offset)
        if ends is None or ends.end is None:
            continue
        known += 1
        position += offset.offset
        records += max(ends.end - offset.offset, 0)
        since_ms = ends.behind_since_ms(offset.offset)
        if since_ms is not None:
            behind_ms = max(behind_ms, now_ms - since_ms)
            stood_ms = stood(index, offset)
            if stood_ms is not None:
                stuck_ms = max(stuck_ms, now_ms - max(since_ms, stood_ms))
    if not known:
        return None
    return TopicLag(records, group_id, topic, behind_ms, position, stuck_ms)


class FurthestBehind:
    """Selects the `most` largest lags, by number of records, for the metrics; ties are ordered by
    name. `left_out`: the number of lags that were added and not selected."""

    __slots__ = ("_heap", "_most", "left_out")

    def __init__(self, most: int) -> None:
        self._most = most
        # A heap of those that are shown, the smallest first.
        self._heap: list[TopicLag] = []
        self.left_out = 0

    def add(self, lag: TopicLag) -> None:
        if len(self._heap) < self._most:
            heappush(self._heap, lag)
            return
        self.left_out += 1
        if self._heap:
            heappushpop(self._heap, lag)

    def shown(self) -> list[TopicLag]:
        """Return the selected lags, sorted by group and topic."""
        return sorted(self._heap, key=_name)


def _name(lag: TopicLag) -> tuple[str, str]:
    return lag.group_id, lag.topic
