"""The judge of a continuous run, against a model of a log with random faults, readings that end
anywhere, late acknowledgements, and restarts between any two steps."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass, field

import msgspec
import numpy as np
import pytest

from plimsoll_spark import recent_records, rolling_judge
from plimsoll_spark.ledger import NONE, LedgerRows
from plimsoll_spark.range_check import Gap, LogRows, Span
from plimsoll_spark.rolling_judge import News, PackedJudge, Reading, RollingJudge
from plimsoll_spark.topics import OffsetRange

TICK_MS = 5_000
PARTITIONS = 2
LEADER = 2
MARKER = (-9, -9)
FAULTS = ("lost", "mismatched", "misplaced", "duplicated", "out_of_order", "gaps", "expired")


@dataclass
class Model:
    """Two partitions with a producer each, the acknowledgements that the ledger does not have yet,
    and a judge that is stored and restored at random."""

    random: random.Random
    logs: list[list[tuple[int, int] | None]] = field(
        default_factory=lambda: [[] for _ in range(PARTITIONS)]
    )
    """By partition and offset: producer and sequence; (-1, -1) of another writer; None: nothing;
    `MARKER`: the end of another writer's transaction."""
    starts: list[int] = field(default_factory=lambda: [0] * PARTITIONS)
    hidden: list[int] = field(default_factory=lambda: [0] * PARTITIONS)
    """How many records at the end are above the high watermark."""
    away: set[int] = field(default_factory=set)
    bad: dict[int, Gap] = field(default_factory=dict)
    compacted: bool = False
    now_ms: int = 1_000
    sequences: Counter[int] = field(default_factory=Counter)
    acks: list[tuple[int, int, int, int]] = field(default_factory=list)
    found: Counter[str] = field(default_factory=Counter)
    unjudged: Counter[str] = field(default_factory=Counter)
    places: list[tuple[str, int, int]] = field(default_factory=list)
    unreadable: list[tuple[int, int, int | None, tuple[int, ...]]] = field(default_factory=list)
    restarts: bool = True

    def __post_init__(self) -> None:
        self.judge = RollingJudge("t", 7, dict.fromkeys(range(PARTITIONS), 0))

    def append(self, partition: int, count: int, *, acked: bool = True) -> None:
        for _ in range(count):
            sequence = self.sequences[partition]
            self.sequences[partition] += 1
            if acked:
                self.acks.append((partition, len(self.logs[partition]), partition, sequence))
            self.logs[partition].append((partition, sequence))

    def step(self, *, ledger: bool = True, read: int | None = None) -> None:
        """`ledger`: the acknowledgements reach it; `read`: no more than so many records of each
        partition are read."""
        self.now_ms += TICK_MS
        if self.restarts and self.random.random() < 0.3:
            content = msgspec.msgpack.encode(self.judge.packed())
            self.judge = RollingJudge("t", 7, {})
            self.judge.restore(msgspec.msgpack.decode(content, type=PackedJudge))
        news = News(
            readings=[
                self._reading(partition, first, read)
                for partition, first in self.judge.wanted().items()
                if partition not in self.away and first <= self._end(partition)
            ],
            logs={
                number: OffsetRange(
                    log_start_offset=self.starts[number], log_end_offset=self._end(number)
                )
                for number in range(PARTITIONS)
                if number not in self.away
            },
            acks=_rows(self.acks if ledger else []),
            compacted=self.compacted,
        )
        if ledger:
            self.acks = []
        step = self.judge.step(self.now_ms, news)
        self.found += step.counts
        self.unjudged += step.unjudged
        self.places += [(one.kind, one.partition, one.offset) for one in step.examples]
        self.unreadable += [
            (one.partition, one.offset, one.last_offset, one.brokers) for one in step.unreadable
        ]

    def settle(self) -> None:
        for _ in range(40):
            self.step()

    def faults(self) -> dict[str, int]:
        return {name: self.found[name] for name in FAULTS if self.found[name]}

    def _end(self, partition: int) -> int:
        return len(self.logs[partition]) - self.hidden[partition]

    def _reading(self, partition: int, first: int, most: int | None) -> Reading:
        end = self._end(partition) if most is None else min(self._end(partition), first + most)
        bad = self.bad.get(partition, Gap(first=0, end=0))
        found = [
            (offset, *record)
            for offset, record in enumerate(self.logs[partition])
            if max(first, self.starts[partition]) <= offset < end
            and record not in (None, MARKER)
            and not bad.first <= offset < bad.end
        ]
        columns = np.array(found, np.int64).reshape(-1, 3)
        log = LogRows(
            offset=columns[:, 0],
            producer=columns[:, 1],
            sequence=columns[:, 2],
            key=np.zeros(len(found), np.int64),
            ours=columns[:, 1] >= 0,
        )
        inside = (bad,) if bad.end > bad.first and bad.end <= end and bad.end > first else ()
        span = Span(partition=partition, first=first, end=end)
        markers = [at for at in range(first, end) if self.logs[partition][at] == MARKER]
        return Reading(
            span=span,
            log=log,
            bad=inside,
            leader=LEADER if inside else None,
            markers=np.array(markers, np.int64),
        )


def _rows(acks: list[tuple[int, int, int, int]]) -> LedgerRows:
    columns = np.array(acks, np.int64).reshape(-1, 4)
    zeros = np.zeros(len(acks))
    return LedgerRows(
        partition=columns[:, 0],
        offset=columns[:, 1],
        producer=columns[:, 2],
        sequence=columns[:, 3],
        acked=np.ones(len(acks), np.bool_),
        send_ms=zeros,
        settled_ms=zeros,
    )


def healthy(model: Model, steps: int, *, markers: bool = False) -> None:
    """Everything that a sound log may show: lags, failovers, other writers, retention of old
    records, records without an answer."""
    roll = model.random
    for _ in range(steps):
        for partition in range(PARTITIONS):
            model.append(partition, roll.randrange(12))
            if roll.random() < 0.2:
                model.append(partition, 1, acked=False)
            if roll.random() < 0.2:
                model.logs[partition].append((-1, -1))
            if markers and roll.random() < 0.3:
                model.logs[partition].append(MARKER)
            model.hidden[partition] = min(roll.choice([0, 0, 3]), len(model.logs[partition]))
        model.away = {roll.randrange(PARTITIONS)} if roll.random() < 0.2 else set()
        model.step(ledger=roll.random() < 0.7, read=roll.choice([None, None, 5]))
    model.hidden, model.away = [0] * PARTITIONS, set()


@pytest.mark.parametrize("seed", range(10))
def test_sound_log_shows_no_fault(seed: int) -> None:
    model = Model(random.Random(seed))
    healthy(model, 40, markers=True)
    model.settle()
    assert model.faults() == {}
    assert not +model.unjudged
    assert model.judge.waiting == 0
    assert model.found["markers"] == sum(log.count(MARKER) for log in model.logs)
    assert model.found["acked"] == model.found["sent"]
    assert model.found["read"] == sum(model.sequences.values())


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("refilled", [False, True])
def test_lost_end_of_a_log_is_found(seed: int, refilled: bool) -> None:
    """Records that were judged before, and others that were not."""
    model = Model(random.Random(seed))
    healthy(model, 10)
    if model.random.random() < 0.7:
        model.step()
        model.step()
    model.append(0, 6)
    if model.random.random() < 0.5:
        model.step()
        model.step()
    end = len(model.logs[0]) - 4
    del model.logs[0][end:]
    if refilled:
        model.append(0, 9)
    healthy(model, 5)
    model.settle()
    lost = model.found["lost"] + model.found["mismatched"]
    assert lost == 4, model.faults()
    assert set(model.faults()) <= {"lost", "mismatched"}
    assert min(place for _, _, place in model.places) == end
    assert not +model.unjudged


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("fault", ["lost", "mismatched", "misplaced", "duplicated", "out_of_order"])
def test_single_fault_is_counted_exactly(seed: int, fault: str) -> None:
    """The fault happens before the record is read."""
    model = Model(random.Random(seed))
    healthy(model, 10)
    model.settle()
    at = len(model.logs[1]) + 2
    model.append(1, 8)
    log = model.logs[1]
    expected = {fault: 1}
    if fault == "lost":
        log[at] = None
        expected["gaps"] = 1
    elif fault == "mismatched":
        log[at] = (-1, -1)
    elif fault == "misplaced":
        log.append(log[at])
        log[at] = (-1, -1)
        expected["out_of_order"] = 1
    elif fault == "duplicated":
        log.append(log[at])
    else:
        log[at], log[at + 1] = log[at + 1], log[at]
        expected["misplaced"] = 2
    healthy(model, 10)
    model.settle()
    assert model.faults() == expected
    assert not +model.unjudged


def test_copy_below_the_floor_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recent_records, "BITS_MAX", 64)
    monkeypatch.setattr(rolling_judge, "RECENT_MAX", 100)
    model = Model(random.Random(1))
    for _ in range(100):
        model.append(0, 10)
        model.step()
    unsent = model.sequences[0]
    model.sequences[0] += 1
    for _ in range(20):
        model.append(0, 10)
        model.step()
    model.logs[1] += [(0, 3), (0, unsent)]
    model.settle()
    assert model.faults() == {"duplicated": 1}
    assert ("duplicated", 1, 0) in model.places


def test_false_ack_in_full_memory_is_no_copy(monkeypatch: pytest.MonkeyPatch) -> None:
    """The recent records are read again, and the oldest of them are forgotten at the same time."""
    monkeypatch.setattr(rolling_judge, "RECENT_MAX", 100)
    model = Model(random.Random(1))
    for _ in range(20):
        model.append(0, 10)
        model.step()
    model.append(0, 10)
    model.acks.append((0, len(model.logs[0]) - 1, 0, 2**40))
    model.settle()
    assert model.faults() == {"mismatched": 1}


def test_retention_is_no_loss() -> None:
    model = Model(random.Random(2))
    healthy(model, 10)
    model.settle()
    model.append(0, 10)
    model.starts[0] = len(model.logs[0]) - 4
    model.settle()
    assert model.faults() == {"expired": 6}


def test_compaction_is_told_and_no_loss() -> None:
    model = Model(random.Random(3), compacted=True)
    model.append(0, 10)
    model.step()
    model.logs[0][2] = model.logs[0][9] = None
    model.append(0, 10)
    model.logs[0][12] = None
    model.settle()
    assert model.faults() == {}
    assert model.unjudged[rolling_judge.CLEANED] == 3


def test_unreadable_batch_is_named_once_with_leader() -> None:
    model = Model(random.Random(4))
    model.append(0, 10)
    model.bad[0] = Gap(first=4, end=7)
    model.settle()
    assert model.unreadable == [(0, 4, 6, (LEADER,))]
    assert model.faults() == {"lost": 3}


def test_silent_partition_is_waited_for_then_told() -> None:
    model = Model(random.Random(5))
    model.append(0, 10)
    model.away = {0}
    for _ in range(rolling_judge.PENDING_MS // TICK_MS - 1):
        model.step()
    assert model.judge.waiting == 10
    for _ in range(3):
        model.step()
    assert (model.judge.waiting, model.unjudged[rolling_judge.AWAY]) == (0, 10)
    assert model.faults() == {}


def test_lagging_watermark_is_no_loss() -> None:
    model = Model(random.Random(6))
    model.append(0, 10)
    model.step()
    model.hidden[0] = 6
    for _ in range(rolling_judge.SETTLE_MS // TICK_MS):
        model.step()
    model.hidden[0] = 0
    model.settle()
    assert model.faults() == {}


def test_ack_without_offset_is_looked_for_everywhere() -> None:
    model = Model(random.Random(7))
    model.append(0, 3)
    model.acks = [(0, NONE, 0, 1), (1, NONE, 1, 5)]
    model.settle()
    assert model.faults() == {"lost": 1}
    assert model.places == [("lost", 1, 0)]


def test_memory_stays_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rolling_judge, "RECENT_MAX", 2_000)
    monkeypatch.setattr(recent_records, "BITS_MAX", 1_000)
    model = Model(random.Random(8), restarts=False)
    sizes = []
    for _ in range(40):
        model.append(0, 1_000)
        model.step()
        sizes.append(len(msgspec.msgpack.encode(model.judge.packed())))
    assert max(sizes[20:]) <= 1.1 * max(sizes[:20])
    assert model.faults() == {}
