"""AbortedSearch: finds the aborted transactions that overlap a part of a log.

Called by `Log` for readers of committed transactions, which leave out these producers' records. A
transaction is in the index of the segment that has its marker, which may be far behind its records:
the search goes on until an entry shows that no earlier transaction was open at its marker. Source:
Kafka's `LogSegments.collectAbortedTxns`.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass

from plimsoll_broker.storage.segment import SearchUnfinished, Segment

ENTRIES_AT_ONCE = 10_000
"""The most index entries that one call looks at: some ten milliseconds."""
_SEARCHES_MAX = 16
"""The most unfinished searches of one log: each holds what it has found."""
_IDLE_CALLS = 4 * _SEARCHES_MAX
"""The number of calls for other searches after which a search counts as given up by its reader."""


@dataclass(slots=True)
class _Search:
    """An unfinished search: its end, the segment and the number of the entry with which it
    continues, and what was found so far. `call`: the number of the call that last continued it."""

    end: int
    segment: Segment
    entry: int
    found: list[tuple[int, int]]
    call: int = 0


class AbortedSearch:
    """Searches the indexes of one log's segments. It remembers `_SEARCHES_MAX` unfinished ones by
    their first offset. Those that their readers continue go on; further ones begin again with each
    call until one of them ends."""

    def __init__(self, segments: Sequence[Segment]) -> None:
        self._segments = segments
        # In the order in which they were continued.
        self._unfinished: dict[int, _Search] = {}
        self._calls = 0

    def end_of(self, offset: int, end: int) -> int:
        """Return the end of the unfinished search from `offset`, or `end` if there is none."""
        search = self._unfinished.get(offset)
        return end if search is None else min(search.end, end)

    def forget(self) -> None:
        """Have all searches begin again, since the log was cut."""
        self._unfinished.clear()

    def find(self, offset: int, end: int) -> list[tuple[int, int]]:
        """Return producer id and first offset of each aborted transaction with its marker at or
        above `offset` and its first record below `end`. Raise SearchUnfinished if more calls are
        needed."""
        segments = self._segments
        self._calls += 1
        search = self._unfinished.pop(offset, None)
        if search is None or search.end != end or search.segment not in segments:
            at = max(bisect_right(segments, offset, key=lambda each: each.base_offset) - 1, 0)
            index = segments[at].aborted
            entry = 0 if index is None else index.count_below(offset)
            search = _Search(end, segments[at], entry, [])
        left, found = ENTRIES_AT_ONCE, search.found
        for segment in segments[segments.index(search.segment) :]:
            index = segment.aborted
            if index is None:
                continue
            first = search.entry if segment is search.segment else 0
            last = min(first + left, len(index))
            for producer_id, first_offset, _, stable_offset in index.between(first, last):
                if first_offset < end:
                    found.append((producer_id, first_offset))
                if stable_offset >= end:
                    return found
            left -= last - first
            if left <= 0:
                self._remember(offset, _Search(end, segment, last, found))
        return found

    def _remember(self, offset: int, search: _Search) -> None:
        """Keep the search for its next call if there is room, and raise SearchUnfinished."""
        search.call, known = self._calls, self._unfinished
        oldest = next(iter(known), offset)
        if len(known) >= _SEARCHES_MAX and known[oldest].call < self._calls - _IDLE_CALLS:
            del known[oldest]
        if len(known) < _SEARCHES_MAX:
            known[offset] = search
        raise SearchUnfinished(search.entry)
