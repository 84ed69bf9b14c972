"""Random lives of a log with transactions, beside a model that reads all that was ever written.

`Lives` drives them: appends, flushes, checkpoints, retention, cuts and discards, kills in the midst
of any write, power cuts and flipped bits. Here the batches belong to transactions of three
producers, and after each step the last stable offset, the aborted transactions and the producers'
states are compared with those of the model.
"""

from __future__ import annotations

import random
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule
from tests.plimsoll_broker.storage.conftest import a_batch
from tests.plimsoll_broker.storage.lives import Lives

from plimsoll_broker.storage.log_config import LogConfig
from plimsoll_core.replica.transactions import last_stable_offset
from plimsoll_wire.batches import CONTROL, TRANSACTIONAL, BatchHeader, iter_headers, stamp
from plimsoll_wire.control_records import EndMarker, read_end_marker, write_end_marker

PRODUCERS = (7, 8, 9)
RECORDS = 3


class Transaction(NamedTuple):
    """One transaction: its producer, the base offsets of its batches, its marker's offset (None
    while it is open), and whether that commits."""

    producer_id: int
    batches: tuple[int, ...]
    marker: int | None
    commits: bool

    def is_undecided(self, high_watermark: int) -> bool:
        return self.marker is None or self.marker >= high_watermark


@dataclass
class Model:
    """What a whole log says, read from its first batch on."""

    transactions: list[Transaction] = field(default_factory=list)
    # By producer id: epoch, last sequence (-1: none in this epoch), coordinator epoch.
    producers: dict[int, tuple[int, int, int]] = field(default_factory=dict)

    def stable(self, high_watermark: int, log_start: int) -> int:
        undecided = [
            each.batches[0] for each in self.transactions if each.is_undecided(high_watermark)
        ]
        return min([high_watermark, *(max(first, log_start) for first in undecided)])


def model_of(written: Iterable[tuple[BatchHeader, bytes]]) -> Model:
    model = Model()
    begun: dict[int, list[int]] = {}
    for header, data in written:
        pid, epoch = header.producer_id, header.producer_epoch
        known = model.producers.get(pid, (epoch, -1, -1))
        sequence = known[1] if known[0] == epoch else -1
        if header.attributes & CONTROL:
            marker = read_end_marker(header, data)
            assert marker is not None
            model.producers[pid] = (epoch, sequence, marker.coordinator_epoch)
            if batches := begun.pop(pid, []):
                ended = Transaction(pid, tuple(batches), header.base_offset, marker.commits)
                model.transactions.append(ended)
            continue
        if header.attributes & TRANSACTIONAL:
            begun.setdefault(pid, []).append(header.base_offset)
        last = header.last_sequence
        model.producers[pid] = (epoch, sequence if last is None else last, known[2])
    model.transactions += [
        Transaction(pid, tuple(each), None, False) for pid, each in begun.items()
    ]
    return model


def shown(
    batches: Iterable[tuple[BatchHeader, bytes]], aborted: Iterable[tuple[int, int]]
) -> list[int]:
    """The base offsets of the batches that a consumer does not leave out, as Kafka's does it.
    `aborted`: producer id and first offset of each aborted transaction in the reply."""
    begins = sorted(aborted, key=lambda each: each[1])
    aborting: set[int] = set()
    found = []
    for header, data in batches:
        while begins and begins[0][1] <= header.last_offset:
            aborting.add(begins.pop(0)[0])
        if header.attributes & CONTROL:
            marker = read_end_marker(header, data)
            if marker is not None and not marker.commits:
                aborting.discard(header.producer_id)
        elif not (header.attributes & TRANSACTIONAL and header.producer_id in aborting):
            found.append(header.base_offset)
    return found


class TransactionalLives(Lives):
    """Lives of a log with transactions."""

    config = LogConfig(segment_bytes=1_000, index_interval_bytes=150)

    def a_write(self, base: int, rng: random.Random, stamp_ms: int) -> bytes:
        """The next batch of one of the producers: of a transaction, a marker, or neither."""
        model = model_of(self.written)
        pid = rng.choice(PRODUCERS)
        epoch, sequence, coordinator = model.producers.get(pid, (0, -1, 0))
        is_open = any(t.producer_id == pid and t.marker is None for t in model.transactions)
        kind = rng.choice(("batch", "batch", "marker", "marker", "unnumbered", "plain"))
        if kind == "marker" or (kind == "plain" and is_open):
            epoch += rng.random() < 0.3
            marker = EndMarker(rng.random() < 0.4, max(coordinator, 0) + (rng.random() < 0.2))
            data = write_end_marker(pid, epoch, marker, stamp_ms)
            stamp(data, 0, base, self.term)
            return bytes(data)
        return a_batch(
            base, RECORDS, epoch=self.term, size=20 + rng.randrange(30), producer_id=pid,
            producer_epoch=epoch, base_timestamp=stamp_ms, max_timestamp=stamp_ms,
            base_sequence=-1 if kind == "unnumbered" else sequence + 1,
            attributes=0 if kind == "plain" else TRANSACTIONAL,
        )  # fmt: skip

    @property
    def written(self) -> list[tuple[BatchHeader, bytes]]:
        return self.batches

    @precondition(lambda self: self.running)
    @rule(count=st.integers(1, 6), late=st.integers(0, 3), crash=st.integers(0, 30))
    def append(self, count: int, late: int, crash: int) -> None:
        before = list(self.batches)
        base = self.log.log_end_offset
        for _ in range(count):
            self.clock += 10
            data = self.a_write(base, self.rng, self.clock - 100 * late)
            header = next(iter(iter_headers(data)))
            self.batches.append((header, data))
            base = header.next_offset
        made, self.batches = self.batches[len(before) :], before
        whole = b"".join(data for _, data in made)
        done = self.doing(crash, lambda: self.log.append(whole, [header for header, _ in made]))
        self.batches += made
        if not done:
            self.after_crash(
                self.promised, self.batches[-1][0].next_offset, self.rng.random() < 0.5
            )
        else:
            self.compare()

    def remembered(self, kept: list[tuple[BatchHeader, bytes]]) -> set[int]:
        return set()  # `compare` says more

    def look(self, *, ends: tuple[int, int]) -> None:
        super().look(ends=ends)
        self.compare()

    def compare(self) -> None:
        """What the log says is what the model says of all batches that were ever in it."""
        log, start = self.log, self.log.log_start_offset
        whole = model_of(self.batches)
        kept = [each for each in self.batches if each[0].next_offset > start]
        states = log.producers
        for pid, said in model_of(kept).producers.items():
            # Where the first batches are gone, what they said may be forgotten or not.
            most = whole.producers[pid][:2]
            assert states.newest(pid) in (most, said[:2] if start else most), f"producer {pid}"
        for committed in {start, (start + log.log_end_offset) // 2, log.log_end_offset}:
            held = last_stable_offset(committed, start, states.transactions)
            exact = whole.stable(committed, start)
            most = model_of(kept).stable(committed, start)
            assert exact <= held <= most, f"stable offset {held}, not within {exact}..{most}"
            if not start:
                assert held == exact, f"stable offset {held} instead of {exact}"
            self.read_committed(whole, start, held)

    def read_committed(self, whole: Model, start: int, stable: int) -> None:
        """A reader up to the last stable offset leaves out the aborted batches and no other."""
        for first in {start, (start + stable) // 2}:
            if first >= stable:
                continue
            seen = [each for each in self.batches if first < each[0].next_offset <= stable]
            told = shown(seen, self.log.aborted_transactions(first, stable))
            aborted = {
                base for each in whole.transactions if not each.commits for base in each.batches
            }
            expected = [
                header.base_offset
                for header, _ in seen
                if not header.attributes & CONTROL and header.base_offset not in aborted
            ]
            assert told == expected, f"a reader from {first} to {stable} sees {told}"
