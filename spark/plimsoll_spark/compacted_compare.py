"""Compares replicas of a compacted partition record by record. Pure.

Called by `audit_range` where the replicas' batches are not the same, because each broker compacts
for itself. All replicas must agree on two things: a record that two of them hold is the same in
both; and a replica lacks a key's newest record only if it holds a newer one of this key, if the
record is a tombstone, or if it lies outside its log. Whatever else was compacted is no loss.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np

from plimsoll_spark.arrays import Bools, Ints
from plimsoll_spark.batches import Batch, is_control
from plimsoll_spark.opened_records import Record, Unopenable, opened
from plimsoll_spark.replica_compare import Finding

KEYED_AT_ONCE = 4_000_000
"""The most records of one replica in memory, at 25 bytes. More are compared in several passes, each
over some of the keys."""


@dataclass(slots=True)
class Columns:
    """Collects, column by column, the keyed records of one replica for which the key's hash modulo
    `passes` is `number`. `key`, `content`: hashes of key, and of key, value and headers;
    `unopenable`: the batches of which the records cannot be opened."""

    passes: int
    number: int
    offset: array[int] = field(default_factory=lambda: array("q"))
    key: array[int] = field(default_factory=lambda: array("q"))
    content: array[int] = field(default_factory=lambda: array("q"))
    tombstone: array[int] = field(default_factory=lambda: array("b"))
    unopenable: list[Batch] = field(default_factory=list)

    def take(self, data: memoryview, batches: Sequence[Batch]) -> None:
        """Add the records of consecutive batches, of which `data` holds the bytes. Control batches
        are left out; a batch that cannot be opened is added to `unopenable`."""
        at = 0
        for batch in batches:
            if not is_control(batch.attributes):
                try:
                    self._add(opened(data[at : at + batch.size], batch))
                except Unopenable:
                    self.unopenable.append(batch)
            at += batch.size

    def _add(self, records: Iterable[Record]) -> None:
        for one in records:
            if one.key is not None and one.key % self.passes == self.number:
                self.offset.append(one.offset)
                self.key.append(one.key)
                self.content.append(one.content)
                self.tombstone.append(one.value_bytes is None)

    def as_records(self, broker: int, start: int, end: int) -> KeyedRecords:
        """Return the records as arrays, for a replica that was read from `start` to before
        `end`."""
        offset, key, content = (
            np.frombuffer(column, np.int64) for column in (self.offset, self.key, self.content)
        )
        tombstone = np.frombuffer(self.tombstone, np.int8).astype(bool)
        return KeyedRecords(broker, start, end, offset, key, content, tombstone)


@dataclass(frozen=True, slots=True)
class KeyedRecords:
    """The keyed records that one replica holds from offset `start` to before `end`, in the order of
    offsets, as columns of equal length. `key`, `content`: hashes, as in `Columns`."""

    broker: int
    start: int
    end: int
    offset: Ints
    key: Ints
    content: Ints
    tombstone: Bools


def compare_records(partition: int, replicas: Sequence[KeyedRecords]) -> list[Finding]:
    """Compare each two replicas, and return the findings, sorted: `different` if they hold
    different records at an offset, `missing` if one lacks a key's newest record. The first of
    `replicas` is the leader's: where two hold different records, the other one is named."""
    found: set[Finding] = set()
    for number, one in enumerate(replicas):
        for other in replicas[number + 1 :]:
            found.update(_contradictions(partition, one, other))
            found.update(_lacking(partition, one, other))
            found.update(_lacking(partition, other, one))
    return sorted(found)


def _contradictions(partition: int, one: KeyedRecords, other: KeyedRecords) -> Iterable[Finding]:
    offsets, here, there = np.intersect1d(
        one.offset, other.offset, assume_unique=True, return_indices=True
    )
    for offset in offsets[one.content[here] != other.content[there]].tolist():
        yield Finding(
            partition=partition,
            first=offset,
            last=offset,
            kind="different",
            brokers=(other.broker,),
            detail=f"the record differs from that on broker {one.broker}",
        )


def _lacking(partition: int, one: KeyedRecords, other: KeyedRecords) -> Iterable[Finding]:
    """Yield a finding for each key's newest record in `one` that lies in the offsets of `other` and
    is no tombstone, if `other` holds neither this record nor a newer one of the key."""
    key, offset, tombstone = _newest(one)
    others_key, others_offset, _ = _newest(other)
    at = np.searchsorted(others_key, key)
    at_most = np.minimum(at, max(0, len(others_key) - 1))
    known = np.zeros(len(key), np.int64) - 1
    if len(others_key):
        known = np.where(others_key[at_most] == key, others_offset[at_most], -1)
    due = (offset >= other.start) & (offset < other.end) & ~tombstone
    for lacked in offset[due & (known < offset)].tolist():
        yield Finding(
            partition=partition,
            first=lacked,
            last=lacked,
            kind="missing",
            brokers=(other.broker,),
            detail=f"the newest record of its key, which broker {one.broker} holds",
        )


def _newest(one: KeyedRecords) -> tuple[Ints, Ints, Bools]:
    """Return the keys in order, with offset and tombstone flag of each one's newest record."""
    order = np.lexsort((one.offset, one.key))
    key, offset, tombstone = one.key[order], one.offset[order], one.tombstone[order]
    last = np.ones(len(key), bool)
    last[:-1] = key[1:] != key[:-1]
    return key[last], offset[last], tombstone[last]
