"""Joins the findings of all ranges into the counts of a run. Pure.

Called by `checks` with the ranges in the order (partition, offset). If a record is a second copy,
or out of order, depends on the records before it in that order, which may be in other ranges. A
range of which the findings may change by that is checked once more, with the records before it:
`recheck`. No healthy log needs that.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping

import msgspec
import numpy as np

from plimsoll_spark.arrays import Bools, Ints
from plimsoll_spark.ledger import LedgerRows
from plimsoll_spark.range_check import Earlier, Found, Gap, RangeFindings, Span, Strays
from plimsoll_spark.records import key_number, key_of
from plimsoll_spark.seen import Seen
from plimsoll_spark.values import Example

EXAMPLES_OF_A_KIND = 5
STRAYS_MAX = 5_000_000
"""Bound on the acked records that were not at their offsets and are looked for elsewhere. Any more
count as lost."""
COPIES_MAX = 5_000_000
"""Bound on the second copies of which the writer is looked for. Any more count as the log's."""
Recheck = Callable[[Span, Earlier], RangeFindings]
MayBeCleaned = Callable[[int, Ints, Ints], Bools]
"""Says of records of a partition, by the numbers of their keys and their offsets, if the cleaner
may have removed them."""


class Fold:
    """The counts of one run. Call `add` for each range, then `settle`, then read the counts."""

    def __init__(self, topic: str, recheck: Recheck, keys: int) -> None:
        """`recheck`: checks a range again, with the records before it; `keys`: the number of keys,
        by which examples name the key of a record."""
        self._topic = topic
        self._keys = keys
        self._recheck = recheck
        self._seen = Seen()
        # Of the present partition: the highest sequence of each stream, and the last gap.
        self._partition = -1
        self._highest: dict[int, int] = {}
        self._gaps: dict[int, list[Gap]] = {}
        self._strays: list[tuple[int, Strays]] = []
        self._held = 0
        self._copies: dict[int, list[bytes]] = {}
        self._examples: dict[str, list[Example]] = {}
        self.read = self.foreign = self.duplicated = self.out_of_order = 0
        self.lost = self.misplaced = self.mismatched = self.expired = self.gaps = 0
        self.rewritten = self.markers = 0
        self.cleaned = self.cleaned_gaps = 0
        """Acked records and gaps that the cleaner of a compacted topic may have made."""
        self._beyond = 0
        self.unreadable: list[Example] = []

    def add(self, found: RangeFindings) -> None:
        """Add the findings of the next range, in the order (partition, offset). If records of
        earlier ranges may change them, check the range again first."""
        span = found.span
        if span.partition != self._partition:
            self._partition, self._highest = span.partition, {}
        if self._crosses(found):
            earlier = Earlier(seen=self._seen.bits(), highest=self._highest)
            found = self._recheck(span, earlier)
        self.read += found.read
        self.foreign += found.foreign
        self.markers += found.markers
        self.duplicated += found.duplicated
        if found.copies and self.duplicated <= COPIES_MAX:
            self._copies.setdefault(span.partition, []).append(found.copies)
        self.out_of_order += found.out_of_order
        self._note("duplicated", span.partition, found.duplicates)
        self._note("outOfOrder", span.partition, found.disordered)
        if found.unreadable is not None:
            self.unreadable.append(self._example("unreadable", span.partition, found.unreadable))
        for stream in found.streams:
            self._highest[stream.number] = max(self._highest.get(stream.number, -1), stream.highest)
        self._add_gaps(span.partition, found.gaps)
        self._hold(span.partition, found.strays)
        self._seen.add(found.seen)

    def settle(
        self,
        starts: Mapping[int, int],
        unplaced: Iterable[LedgerRows],
        may_be_cleaned: MayBeCleaned | None = None,
    ) -> None:
        """Count the faults that can be judged only when every range is known: acked records that
        were not at their offsets, and gaps.

        `starts`: by partition, the log start offset after the log was read; offsets below it have
        expired. `unplaced`: the ledger's records without an acked offset. If the broker acked a
        record without an offset, it counts as lost unless it is anywhere in the log.
        `may_be_cleaned`: of a compacted topic; what the cleaner may have removed is counted as
        cleaned, and so is each missing record or gap that may be the cleaner's.
        """
        for partition, strays in self._strays:
            self._judge(partition, strays, starts[partition], may_be_cleaned)
        if may_be_cleaned is None:
            self.lost += self._beyond
        else:
            self.cleaned += self._beyond
        for rows in unplaced:
            acked = np.flatnonzero(rows.acked)
            kept = self._seen.has(rows.producer[acked], rows.sequence[acked])
            if may_be_cleaned is not None:
                self.cleaned += int((~kept).sum())
                continue
            self.lost += int((~kept).sum())
            for row in acked[~kept][:EXAMPLES_OF_A_KIND].tolist():
                lost = Found(offset=0, producer=rows.producer[row], sequence=rows.sequence[row])
                self._note("lost", int(rows.partition[row]), (lost,))
        for partition, gaps in sorted(self._gaps.items()):
            left = [
                max(gap.first, starts[partition]) for gap in gaps if gap.end > starts[partition]
            ]
            if may_be_cleaned is not None:
                self.cleaned_gaps += len(left)
                continue
            self.gaps += len(left)
            self._note("gap", partition, left)

    @property
    def copies(self) -> dict[int, Ints]:
        """Return, by partition, the offsets of the second copies of records."""
        return {p: np.frombuffer(b"".join(parts), np.int64) for p, parts in self._copies.items()}

    def take_rewritten(self, rewritten: Mapping[int, Bools]) -> None:
        """Count these of `copies` as rewritten by their producers, not as duplicated by the log.
        `rewritten`: for each copy, True if it is one."""
        copies = self.copies
        theirs = {p: set(copies[p][rows].tolist()) for p, rows in rewritten.items()}
        count = sum(int(rows.sum()) for rows in rewritten.values())
        self.rewritten += count
        self.duplicated -= count
        noted = self._examples.pop("duplicated", [])
        for kind in ("duplicated", "rewritten"):
            is_theirs = kind == "rewritten"
            self._examples[kind] = [
                msgspec.structs.replace(one, kind=kind)
                for one in noted
                if (one.offset in theirs.get(one.partition, ())) == is_theirs
            ]
        if self.duplicated and not self._examples["duplicated"]:
            for partition, rows in rewritten.items():
                self._note("duplicated", partition, copies[partition][~rows].tolist())

    def records_of_others(self, producers: Collection[int]) -> int:
        """Return the number of distinct records of this run in the log that were written by
        producers other than `producers`."""
        return self._seen.count_without(producers)

    @property
    def examples(self) -> tuple[Example, ...]:
        """Return at most `EXAMPLES_OF_A_KIND` examples of each kind of fault."""
        return tuple(example for kind in self._examples.values() for example in kind)

    def _crosses(self, found: RangeFindings) -> bool:
        """Return True if the records before the range may change its findings: it holds a copy of
        one, or a lower sequence of the same stream."""
        return self._seen.overlaps(found.seen) or any(
            stream.lowest < self._highest.get(stream.number, -1) for stream in found.streams
        )

    def _hold(self, partition: int, strays: Strays) -> None:
        """Keep acked records that were not at their offsets until every range is known. Beyond
        `STRAYS_MAX`, only count them."""
        if not len(strays):
            return
        self._held += len(strays)
        if self._held <= STRAYS_MAX:
            self._strays.append((partition, strays))
        else:
            self._beyond += len(strays)

    def _judge(
        self, partition: int, strays: Strays, start: int, may_be_cleaned: MayBeCleaned | None
    ) -> None:
        producer, sequence, offset = (
            np.frombuffer(column, np.int64)
            for column in (strays.producer, strays.sequence, strays.offset)
        )
        elsewhere = self._seen.has(producer, sequence)
        expired = ~elsewhere & (offset < start)
        occupied = np.frombuffer(strays.occupied, np.bool_) & ~elsewhere & ~expired
        lost = ~(elsewhere | expired | occupied)
        if may_be_cleaned is not None and lost.any():
            keys = np.array(
                [
                    key_number(by, number, self._keys)
                    for by, number in zip(
                        producer[lost].tolist(), sequence[lost].tolist(), strict=True
                    )
                ],
                np.int64,
            )
            cleaned = may_be_cleaned(partition, keys, offset[lost])
            self.cleaned += int(cleaned.sum())
            lost[lost] = ~cleaned
        self.expired += int(expired.sum())
        self.misplaced += int(elsewhere.sum())
        self.mismatched += int(occupied.sum())
        self.lost += int(lost.sum())
        for kind, rows in (("misplaced", elsewhere), ("mismatched", occupied), ("lost", lost)):
            some = np.flatnonzero(rows)[:EXAMPLES_OF_A_KIND]
            columns = (offset[some].tolist(), producer[some].tolist(), sequence[some].tolist())
            found = [
                Found(offset=at, producer=by, sequence=number)
                for at, by, number in zip(*columns, strict=True)
            ]
            self._note(kind, partition, found)

    def _add_gaps(self, partition: int, gaps: Iterable[Gap]) -> None:
        """Add the gaps of the next range. A gap that begins where the last one ended continues it,
        and is not counted again."""
        known = self._gaps.setdefault(partition, [])
        for gap in gaps:
            if known and known[-1].end == gap.first:
                known[-1] = Gap(first=known[-1].first, end=gap.end)
            else:
                known.append(gap)

    def _note(self, kind: str, partition: int, places: Iterable[int | Found]) -> None:
        """Keep examples of one kind. A place without a record is an offset."""
        known = self._examples.setdefault(kind, [])
        for place in places:
            if len(known) == EXAMPLES_OF_A_KIND:
                return
            known.append(self._example(kind, partition, place))

    def _example(self, kind: str, partition: int, place: int | Found) -> Example:
        if isinstance(place, int):
            return Example(topic=self._topic, partition=partition, offset=place, kind=kind)
        producer, sequence = int(place.producer), int(place.sequence)
        return Example(
            topic=self._topic,
            partition=partition,
            offset=place.offset,
            kind=kind,
            key=key_of(producer, sequence, self._keys),
            producer=producer,
            sequence=sequence,
        )
