"""Judges a log while it is written: in each step it joins what was newly read of the log with what
was newly acknowledged. Pure.

Called by `continuous` once for each micro-batch; `verdict` judges the counts of a window of steps.
A record that was acknowledged is settled as soon as its offset was read. Memory is bounded: the
newest `RECENT_MAX` records, `PENDING_MAX` acknowledgements that wait for their offset to become
readable, and one bit for each recent sequence of a producer. An acknowledgement that cannot be
settled within these bounds is counted in `unjudged`, and neither passes nor fails.

The last record that was read is read again in each step. If another one, or none, is in its place,
the log has changed below the judged end: the partition's recent records are all read again, and
those that were acknowledged and are gone are lost.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

import msgspec
import numpy as np

from plimsoll_spark.arrays import Bools, Ints
from plimsoll_spark.ledger import FAILED, NONE, UNKNOWN, LedgerRows
from plimsoll_spark.range_check import Gap, LogRows, Span, behind, gaps_in
from plimsoll_spark.recent_records import PackedLog, PackedSeen, RecentLog, SeenRecently
from plimsoll_spark.records import key_of
from plimsoll_spark.topics import Ranges
from plimsoll_spark.values import Example

RECENT_MAX = 500_000
PENDING_MAX = 500_000
SETTLE_MS = 30_000
"""For so long the end of a log with a leader may stay below an acknowledged offset: a new
leader shows its high watermark only after its followers have confirmed it."""
PENDING_MS = 600_000
"""For so long an acknowledgement is kept if its partition cannot be read."""
UNPLACED_MS = 120_000
"""After so long an acknowledgement without an offset is lost if its record was not read."""
BAD_MAX = 100
"""The most unreadable ranges of a partition that are remembered."""
PRODUCERS_KEPT = 64
EXAMPLES_OF_A_KIND = 5
WRONG_KEY = -2
"""Stands for the producer of a record of this run that has another key than it was given."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """What was read of one partition. `span`: the offsets that were read, to their end; `bad`: the
    offsets in it that hold no valid batch, and `leader`: the broker that served them, None if
    unknown; `markers`: the offsets that hold markers of other clients' transactions, sorted."""

    span: Span
    log: LogRows
    bad: tuple[Gap, ...] = ()
    leader: int | None = None
    markers: Ints = field(default_factory=lambda: np.zeros(0, np.int64))


@dataclass(frozen=True, slots=True, kw_only=True)
class News:
    """What one step takes. `logs`: the logs after the reading, without the partitions that did not
    answer; `acks`: rows of the ledger that are new; `others`: numbers of new records by other
    outcome; `compacted`: True if the topic is compacted, so that a missing record proves
    nothing."""

    readings: Sequence[Reading]
    logs: Ranges
    acks: LedgerRows
    others: Mapping[str, int] = field(default_factory=dict)
    compacted: bool = False


@dataclass(slots=True)
class Step:
    """The result of one step. `examples`: places of faults; `unjudged`: numbers of acknowledged
    records that will never be judged, by cause; `unreadable`: places of batches that no consumer
    can read; `copies`: by partition, the offsets of second copies."""

    counts: Counter[str] = field(default_factory=Counter)
    examples: list[Example] = field(default_factory=list)
    unjudged: Counter[str] = field(default_factory=Counter)
    unreadable: list[Example] = field(default_factory=list)
    copies: dict[int, Ints] = field(default_factory=dict)

    def take_rewritten(self, rewritten: Mapping[int, Bools] | None) -> None:
        """Count these of `copies` as written by their producers (`copies.rewritten`), not as
        duplicated by the log. `rewritten`: for each copy, True if it is one; None: that could not
        be looked up, so no copy is judged."""
        if rewritten is None:
            self.unjudged[COPIES] += self.counts.pop("duplicated", 0)
            self.examples = [one for one in self.examples if one.kind != "duplicated"]
            return
        theirs = {p: set(self.copies[p][rows].tolist()) for p, rows in rewritten.items()}
        count = sum(len(offsets) for offsets in theirs.values())
        self.counts["rewritten"] += count
        self.counts["duplicated"] -= count
        self.examples = [
            msgspec.structs.replace(one, kind="rewritten")
            if one.kind == "duplicated" and one.offset in theirs.get(one.partition, ())
            else one
            for one in self.examples
        ]


class _PackedPartition(msgspec.Struct, frozen=True, kw_only=True):
    position: int
    known_from: int
    recent: PackedLog
    highest: dict[int, int]
    short_since_ms: int
    rewind_until: int
    bad: tuple[Gap, ...]


class PackedJudge(msgspec.Struct, frozen=True, kw_only=True):
    """A judge in a form that can be stored."""

    partitions: dict[int, _PackedPartition]
    seen: tuple[PackedSeen, ...]
    pending: dict[str, bytes]
    """Acknowledgements that wait, as columns: bytes of 64-bit integers."""


class _Columns(Protocol):
    """Identities of records, as columns."""

    @property
    def offset(self) -> Ints: ...
    @property
    def producer(self) -> Ints: ...
    @property
    def sequence(self) -> Ints: ...


class _Rows(NamedTuple):
    offset: Ints
    producer: Ints
    sequence: Ints


@dataclass(slots=True)
class _Partition:
    """`position`: everything below it was read; `known_from`: all records from here on that were
    read are in `recent`; `rewind_until`: recent records up to here are being read again, 0 if
    none."""

    position: int
    known_from: int
    recent: RecentLog = field(default_factory=RecentLog)
    highest: dict[int, int] = field(default_factory=dict)
    short_since_ms: int = 0
    rewind_until: int = 0
    bad: tuple[Gap, ...] = ()

    def rewind(self, start: int, until: int) -> None:
        self.rewind_until = until
        self.position = max(self.known_from, start)


_COLUMNS = ("partition", "offset", "producer", "sequence", "since", "beyond", "again")
"""Of the acknowledgements that wait. `since`: when each came; `beyond`: since when the end of its
log was seen to be below it, 0 if it was not; `again`: 1 if its offset is read again, since another
record, or none, was found there."""
TOO_OLD = "they are older than the records that the driver remembers"
CLEANED = "the topic is compacted"
CLEANED_GAPS = "they are gaps in the offsets of a compacted topic"
AWAY = "their partition could not be read for too long"
TOO_MANY = "too many acknowledgements waited for their partitions to be readable"
COPIES = "a producer may have written them twice, which could not be checked"
END_GONE = "the end of a log that held them was lost, and the driver does not remember them"
DOUBTS = {
    TOO_OLD: "NoLoss",
    CLEANED: "NoLoss",
    END_GONE: "NoLoss",
    CLEANED_GAPS: "NoGap",
    COPIES: "NoDuplicate",
}
"""The check that alone cannot be judged for each of these causes. Any other cause means that
records were not read, which no check can do without."""


class RollingJudge:
    """The state of one continuous run. Call `step` for each micro-batch."""

    def __init__(self, topic: str, keys: int, ends: Mapping[int, int]) -> None:
        """`keys`: the number of keys; `ends`: by partition, the offset from which on the log is
        judged."""
        self._topic = topic
        self._keys = keys
        self._partitions = {number: _Partition(end, end) for number, end in ends.items()}
        self._seen = SeenRecently()
        self._pending: dict[str, Ints] = {name: np.zeros(0, np.int64) for name in _COLUMNS}

    def wanted(self) -> dict[int, int]:
        """Return, by partition, the first offset to read in the next step: the last one that was
        read, or an earlier one if the log has changed below it."""
        found = {}
        for number, one in self._partitions.items():
            tail = len(one.recent) > 0 and int(one.recent.offset[-1]) == one.position - 1
            found[number] = one.position - 1 if tail else one.position
        return found

    def add_partitions(self, numbers: Iterable[int]) -> None:
        """Begin to judge partitions that were added to the topic, from their first offset on."""
        for number in numbers:
            self._partitions.setdefault(number, _Partition(0, 0))

    def retire(self, alive: Collection[int]) -> None:
        """Give back the memory of producers that send no more, all but `alive`."""
        self._seen.retire(alive)
        least = min(alive, default=0) - PRODUCERS_KEPT
        for part in self._partitions.values():
            part.highest = {name: seq for name, seq in part.highest.items() if name >= least}

    @property
    def waiting(self) -> int:
        """Return the number of acknowledgements that are not settled yet."""
        return len(self._pending["offset"])

    def behind(self, logs: Ranges) -> int:
        """Return the number of offsets in these logs that were not read yet."""
        return sum(
            max(0, logs[number].log_end_offset - max(part.position, logs[number].log_start_offset))
            for number, part in self._partitions.items()
            if number in logs
        )

    def remembered_from(self, partition: int) -> int:
        """Return the offset from which on the partition's records are remembered."""
        return self._partitions[partition].known_from

    @property
    def is_in_doubt(self) -> bool:
        """Return True if a log was seen to have changed below what was read."""
        return bool(self._pending["again"].any()) or any(
            one.rewind_until or one.short_since_ms for one in self._partitions.values()
        )

    def step(self, now_ms: int, news: News) -> Step:
        """Take what was read and acknowledged since the last step, and return what it proves."""
        step = Step()
        self._hold(now_ms, news.acks, step)
        self.add_partitions(reading.span.partition for reading in news.readings)
        for reading in sorted(news.readings, key=lambda one: one.span.partition):
            if reading.span.partition in news.logs:
                self._read(step, news, reading)
        self._look_at_ends(now_ms, step, news)
        self._settle(now_ms, step, news)
        most = RECENT_MAX // max(1, len(self._partitions))
        for part in self._partitions.values():
            if len(part.recent) > most:
                step.counts["unreported"] += part.recent.trim(most)
                part.known_from = max(part.known_from, part.recent.first or 0)
                # A record that was just forgotten would be read again as a copy.
                part.position = max(part.position, part.known_from)
        for outcome in (FAILED, UNKNOWN):
            step.counts[outcome] += news.others.get(outcome, 0)
        step.counts["sent"] = sum(step.counts[one] for one in ("acked", FAILED, UNKNOWN))
        return step

    # --- what was read --------------------------------------------------------------------------

    def _read(self, step: Step, news: News, reading: Reading) -> None:
        """Compare a reading with the records that were read before, and take the new ones."""
        span, rows = reading.span, reading.log
        part, start = self._partitions[span.partition], news.logs[span.partition].log_start_offset
        known = part.recent
        who = np.where(rows.ours, np.where(rows.key >= 0, rows.producer, WRONG_KEY), -1)
        place = known.at(rows.offset)
        same = place >= 0
        same[same] = (known.producer[place[same]] == who[same]) & (
            known.sequence[place[same]] == rows.sequence[same]
        )
        gone = (known.offset >= max(span.first, start)) & (known.offset < span.end)
        gone[place[same]] = False
        end = part.rewind_until or part.position  # what lies below was read before
        if gone.any():
            begin = max(part.known_from, start)
            if span.first > begin and part.rewind_until == 0 and not news.compacted:
                part.rewind(start, max(part.position, span.end))
                return
            end = min(end, int(known.offset[gone][0]))
            self._remove(step, span.partition, gone, compacted=news.compacted)
        for bad in reading.bad:
            if bad.end > end:
                found = self._example("unreadable", span.partition, bad.first)
                brokers = () if reading.leader is None else (reading.leader,)
                step.unreadable.append(
                    msgspec.structs.replace(
                        found, last_offset=bad.end - 1, brokers=brokers, leader=reading.leader
                    )
                )
                part.bad = (*part.bad, bad)[-BAD_MAX:]
        fresh = ~same & (rows.offset >= max(span.first, start))
        self._take(step, span.partition, rows, fresh, who)
        self._note_gaps(step, reading, max(end, start), compacted=news.compacted)
        part.position = max(span.end, start) if part.rewind_until else max(part.position, span.end)
        if part.position >= part.rewind_until:
            part.rewind_until = 0

    def _remove(self, step: Step, partition: int, gone: Bools, *, compacted: bool = False) -> None:
        """Remove records that are not in the log any more. Those that were acknowledged are lost,
        unless the cleaner may have removed them."""
        part, known = self._partitions[partition], self._partitions[partition].recent
        lost = gone & known.claimed
        if compacted:
            step.unjudged[CLEANED] += int(lost.sum())
        else:
            step.counts["lost"] += int(lost.sum())
            self._note(step, "lost", partition, known, np.flatnonzero(lost))
        ours = gone & (known.producer >= 0)
        self._seen.forget(known.producer[ours], known.sequence[ours])
        names = set(known.producer[ours].tolist())
        known.keep(~gone)
        left = known.highest()
        for name in names:
            part.highest[name] = left.get(name, -1)

    def _take(self, step: Step, partition: int, rows: LogRows, fresh: Bools, who: Ints) -> None:
        part = self._partitions[partition]
        part.recent.add(rows.offset[fresh], who[fresh], rows.sequence[fresh])
        mine = np.flatnonzero(fresh & rows.ours)
        producer, sequence = rows.producer[mine], rows.sequence[mine]
        step.counts["read"] += len(mine)
        step.counts["foreign"] += int(fresh.sum()) - len(mine)
        copies = self._seen.take(producer, sequence)
        if copies.any():
            step.copies[partition] = rows.offset[mine[copies]]
        firsts = np.flatnonzero(~copies)
        late = firsts[behind(producer[firsts], sequence[firsts], part.highest)]
        for name in np.unique(producer).tolist():
            top = int(sequence[producer == name].max())
            part.highest[name] = max(part.highest.get(name, -1), top)
        for kind, found in (("duplicated", np.flatnonzero(copies)), ("outOfOrder", late)):
            step.counts["out_of_order" if kind == "outOfOrder" else kind] += len(found)
            self._note(step, kind, partition, rows, mine[found])

    def _note_gaps(self, step: Step, reading: Reading, begin: int, *, compacted: bool) -> None:
        span, first = reading.span, max(begin, reading.span.first)
        step.counts["markers"] += int((reading.markers >= first).sum())
        offsets = np.union1d(reading.log.offset, reading.markers)
        for bad in (*reading.bad, Gap(first=span.end, end=span.end)):
            if bad.first > first:
                piece = Span(partition=span.partition, first=first, end=bad.first)
                inside = offsets[(offsets >= first) & (offsets < bad.first)]
                for gap in gaps_in(piece, inside):
                    if compacted:
                        step.unjudged[CLEANED_GAPS] += 1
                        continue
                    step.counts["gaps"] += 1
                    step.examples.append(self._example("gap", span.partition, gap.first))
            first = max(first, bad.end)

    def _look_at_ends(self, now_ms: int, step: Step, news: News) -> None:
        """Find logs with an end that moved back below what was read. After `SETTLE_MS`, the records
        beyond it are gone."""
        for number, log in sorted(news.logs.items()):
            part, end = self._partitions.get(number), log.log_end_offset
            if part is None or end >= part.position:
                if part is not None:
                    part.short_since_ms = 0
                continue
            part.short_since_ms = part.short_since_ms or now_ms
            if now_ms - part.short_since_ms >= SETTLE_MS:
                step.unjudged[END_GONE] += max(0, part.known_from - max(end, log.log_start_offset))
                self._remove(step, number, part.recent.offset >= end)
                part.known_from = min(part.known_from, end)
                part.rewind(log.log_start_offset, end)
                part.short_since_ms = 0

    # --- what was acknowledged ------------------------------------------------------------------

    def _hold(self, now_ms: int, rows: LedgerRows, step: Step) -> None:
        acked = rows.acked
        count = int(acked.sum())
        more = {
            "partition": rows.partition[acked].astype(np.int64),
            "offset": rows.offset[acked].astype(np.int64),
            "producer": rows.producer[acked].astype(np.int64),
            "sequence": rows.sequence[acked].astype(np.int64),
            "since": np.full(count, now_ms),
            "beyond": np.zeros(count, np.int64),
            "again": np.zeros(count, np.int64),
        }
        if (over := self.waiting + count - PENDING_MAX) > 0:
            step.unjudged[TOO_MANY] += over
            step.counts["acked"] += over
        for name in _COLUMNS:
            self._pending[name] = np.concatenate((self._pending[name], more[name]))[-PENDING_MAX:]
        self.add_partitions(set(more["partition"][more["partition"] >= 0].tolist()))

    def _settle(self, now_ms: int, step: Step, news: News) -> None:
        """Settle every acknowledgement that can be settled now."""
        left = np.ones(self.waiting, np.bool_)
        for number in np.unique(self._pending["partition"]).tolist():
            rows = np.flatnonzero(
                (self._pending["partition"] == number) & (self._pending["offset"] != NONE)
            )
            if number in self._partitions:
                left[rows] = self._settle_partition(now_ms, step, news, rows)
        self._settle_unplaced(now_ms, step, news, left)
        old = left & (now_ms - self._pending["since"] >= PENDING_MS)
        step.unjudged[AWAY] += int(old.sum())
        left &= ~old
        step.counts["acked"] += int((~left).sum())
        self._pending = {name: column[left] for name, column in self._pending.items()}

    def _settle_partition(self, now_ms: int, step: Step, news: News, rows: Ints) -> Bools:
        """Settle the acknowledgements `rows` of one partition. Return, for each, True if it still
        waits."""
        if not len(rows):
            return np.zeros(0, np.bool_)
        waiting = {name: column[rows] for name, column in self._pending.items()}
        number, offset = int(waiting["partition"][0]), waiting["offset"]
        part, log = self._partitions[number], news.logs.get(number)
        place = part.recent.at(offset)
        there = place >= 0
        kept = there.copy()
        kept[there] = (part.recent.producer[place[there]] == waiting["producer"][there]) & (
            part.recent.sequence[place[there]] == waiting["sequence"][there]
        )
        part.recent.claimed[place[kept]] = True
        was_read = (offset < part.position) & (part.rewind_until == 0)
        fates = np.zeros(len(rows), np.bool_)
        self._pending["beyond"][rows] = 0
        if log is not None:
            beyond = ~kept & ~was_read & (offset >= log.log_end_offset)
            since = np.where(waiting["beyond"] > 0, waiting["beyond"], now_ms)
            self._pending["beyond"][rows[beyond]] = since[beyond]
            missed = ~kept & was_read
            doubtful = missed & (waiting["again"] == 0) & (offset >= part.known_from)
            if doubtful.any():
                # The log may have changed after it was read; the new record is then acked, too.
                self._pending["again"][rows[doubtful]] = 1
                part.rewind(log.log_start_offset, part.position)
                missed[:] = False
            fates = missed | (beyond & (now_ms - since >= SETTLE_MS))
            self._judge(step, news, number, {k: column[fates] for k, column in waiting.items()})
        return ~kept & ~fates

    def _judge(self, step: Step, news: News, number: int, rows: Mapping[str, Ints]) -> None:
        """Decide the fate of acknowledgements of one partition of which the offsets were read, or
        will never be, and which do not hold the record."""
        part, start = self._partitions[number], news.logs[number].log_start_offset
        offset, elsewhere = rows["offset"], self._seen.has(rows["producer"], rows["sequence"])
        expired = offset < start
        old = ~expired & (offset < part.known_from)
        other = part.recent.at(offset) >= 0
        hole = ~(expired | old | other)
        cleaned = hole & news.compacted
        step.counts["expired"] += int(expired.sum())
        step.unjudged[TOO_OLD] += int(old.sum())
        step.unjudged[CLEANED] += int(cleaned.sum())
        judged = ~(expired | old | cleaned)
        fates = (
            ("misplaced", judged & elsewhere),
            ("mismatched", judged & ~elsewhere & other),
            ("lost", judged & ~elsewhere & ~other),
        )
        for kind, found in fates:
            step.counts[kind] += int(found.sum())
            self._note(step, kind, number, _Rows(**{k: rows[k] for k in _Rows._fields}),
                       np.flatnonzero(found))  # fmt: skip

    def _settle_unplaced(self, now_ms: int, step: Step, news: News, left: Bools) -> None:
        """Settle the acknowledgements without an offset: their records may be anywhere."""
        rows = np.flatnonzero((self._pending["offset"] == NONE) | (self._pending["partition"] < 0))
        if not len(rows):
            return
        producer, sequence = self._pending["producer"][rows], self._pending["sequence"][rows]
        kept = self._seen.has(producer, sequence)
        left[rows[kept]] = False
        read = all(
            number in news.logs and part.position >= news.logs[number].log_end_offset
            for number, part in self._partitions.items()
        )
        lost = ~kept & (now_ms - self._pending["since"][rows] >= UNPLACED_MS) & read
        step.counts["lost"] += int(lost.sum())
        left[rows[lost]] = False
        for row in rows[lost][:EXAMPLES_OF_A_KIND].tolist():
            place = _Rows(*(self._pending[name][[row]] for name in _Rows._fields))
            place = place._replace(offset=np.zeros(1, np.int64))
            number = max(0, int(self._pending["partition"][row]))
            self._note(step, "lost", number, place, np.zeros(1, np.int64))

    # --- examples -------------------------------------------------------------------------------

    def _note(self, step: Step, kind: str, partition: int, columns: _Columns, rows: Ints) -> None:
        """Keep the first examples of one kind."""
        for row in rows[:EXAMPLES_OF_A_KIND].tolist():
            producer, sequence = int(columns.producer[row]), int(columns.sequence[row])
            place = self._example(kind, partition, int(columns.offset[row]))
            if producer >= 0:
                key = key_of(producer, sequence, self._keys)
                place = msgspec.structs.replace(
                    place, key=key, producer=producer, sequence=sequence
                )
            step.examples.append(place)

    def _example(self, kind: str, partition: int, offset: int) -> Example:
        return Example(topic=self._topic, partition=partition, offset=offset, kind=kind)

    # --- storing --------------------------------------------------------------------------------

    def packed(self) -> PackedJudge:
        """Return the judge in a form that can be stored."""
        return PackedJudge(
            partitions={
                number: _PackedPartition(
                    position=one.position,
                    known_from=one.known_from,
                    recent=one.recent.packed(),
                    highest=one.highest,
                    short_since_ms=one.short_since_ms,
                    rewind_until=one.rewind_until,
                    bad=one.bad,
                )
                for number, one in self._partitions.items()
            },
            seen=self._seen.packed(),
            pending={name: column.tobytes() for name, column in self._pending.items()},
        )

    def restore(self, packed: PackedJudge) -> None:
        """Continue where another judge of the same run stood."""
        self._partitions = {
            number: _Partition(
                position=one.position,
                known_from=one.known_from,
                recent=RecentLog.of(one.recent),
                highest=one.highest,
                short_since_ms=one.short_since_ms,
                rewind_until=one.rewind_until,
                bad=one.bad,
            )
            for number, one in packed.partitions.items()
        }
        self._seen = SeenRecently.of(packed.seen)
        self._pending = {
            name: np.frombuffer(column, np.int64).copy() for name, column in packed.pending.items()
        }
