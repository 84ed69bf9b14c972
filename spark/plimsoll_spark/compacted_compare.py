"""Compares replicas of a compacted partition record by record. Pure.

Called by `audit_range` where the replicas' batches are not the same, because each broker compacts
for itself. All replicas must agree on two things: a record that two of them hold is the same in
both; and a replica lacks a key's newest record only if it holds a newer one of this key, if the
record is a tombstone, or if it lies outside its log. Whatever else was compacted is no loss. The
newer record may lie behind the offsets that were read, since cleaners go on meanwhile: such records
are suspects until `audit_range` has looked for it. Records of aborted transactions count for
nothing: a cleaner removes them as soon as it has seen the marker.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from plimsoll_spark.arrays import Bools, Ints
from plimsoll_spark.batches import Batch, is_abort, is_control, is_transactional
from plimsoll_spark.opened_records import Record, Unopenable, opened
from plimsoll_spark.replica_compare import Finding

KEYED_AT_ONCE = 4_000_000
"""The most records of one replica in memory, at 26 bytes. More are compared in several passes, each
over some of the keys."""


@dataclass(slots=True)
class CompactedColumns:
    """Collects, column by column, the keyed records of one replica for which the key's hash modulo
    `passes` is `number`, and the hash is in `only`, unless that is None. `key`, `content`: hashes
    of key, and of key, value and headers; `unopenable`: the batches of which the records cannot be
    opened; `aborted`: True for a record of a transaction with a marker that says so."""

    passes: int
    number: int
    only: frozenset[int] | None = None
    offset: array[int] = field(default_factory=lambda: array("q"))
    key: array[int] = field(default_factory=lambda: array("q"))
    content: array[int] = field(default_factory=lambda: array("q"))
    tombstone: array[int] = field(default_factory=lambda: array("b"))
    aborted: array[int] = field(default_factory=lambda: array("b"))
    undecided: dict[int, list[range]] = field(default_factory=dict)
    """Of each producer with an open transaction: its records, by their indices."""
    unopenable: list[Batch] = field(default_factory=list)

    def take(self, data: memoryview, batches: Sequence[Batch], _: frozenset[int]) -> None:
        """Add the records of consecutive batches, of which `data` holds the bytes. A batch that
        cannot be opened is added to `unopenable`. The marker in a control batch tells whether the
        producer's records before it were aborted."""
        at = 0
        for batch in batches:
            content, begin = data[at : at + batch.size], len(self.offset)
            if is_control(batch.attributes):
                self._decide(batch, is_abort(content, batch))
            else:
                try:
                    self._add(opened(content, batch))
                except Unopenable:
                    self.unopenable.append(batch)
            if is_transactional(batch.attributes) and len(self.offset) > begin:
                own = range(begin, len(self.offset))
                self.undecided.setdefault(batch.producer_id, []).append(own)
            at += batch.size

    def _decide(self, marker: Batch, aborted: bool) -> None:
        for some in self.undecided.pop(marker.producer_id, ()):
            for row in some if aborted else ():
                self.aborted[row] = 1

    def _add(self, records: Iterable[Record]) -> None:
        for one in records:
            if one.key is None or one.key % self.passes != self.number:
                continue
            if self.only is None or one.key in self.only:
                self.offset.append(one.offset)
                self.key.append(one.key)
                self.content.append(one.content)
                self.tombstone.append(one.value_bytes is None)
                self.aborted.append(0)

    def as_records(self, broker: int, start: int, end: int) -> KeyedRecords:
        """Return the records as arrays, for a replica that was read from `start` to before
        `end`."""
        offset, key, content = (
            np.frombuffer(column, np.int64) for column in (self.offset, self.key, self.content)
        )
        tombstone = np.frombuffer(self.tombstone, np.int8).astype(bool)
        kept = np.frombuffer(self.aborted, np.int8) == 0
        columns = (offset[kept], key[kept], content[kept], tombstone[kept])
        return KeyedRecords(broker, start, end, *columns)


@dataclass(frozen=True, slots=True)
class KeyedRecords:
    """The keyed records that one replica holds from offset `start` to before `end`, in the order of
    offsets, as columns of equal length. `key`, `content`: hashes, as in `CompactedColumns`."""

    broker: int
    start: int
    end: int
    offset: Ints
    key: Ints
    content: Ints
    tombstone: Bools


class Suspect(NamedTuple):
    """A key's newest record on broker `holder`, of which broker `lacker` holds neither this nor a
    newer one. `key`: its hash."""

    holder: int
    lacker: int
    offset: int
    key: int


def contradictions(partition: int, replicas: Sequence[KeyedRecords]) -> list[Finding]:
    """Compare each two replicas, and return a finding `different` for each offset at which they
    hold different records, sorted. The first of `replicas` is the leader's: the other one is
    named."""
    found: set[Finding] = set()
    for number, one in enumerate(replicas):
        for other in replicas[number + 1 :]:
            found.update(_contradictions(partition, one, other))
    return sorted(found)


def suspects(replicas: Sequence[KeyedRecords]) -> set[Suspect]:
    """Return the records that one replica seems to have lost: each key's newest record on another
    one that lies in the offsets of the first and is no tombstone, if the first holds neither this
    nor a newer record of the key. Records behind the offsets that were read may explain it."""
    return {
        suspect
        for one in replicas
        for other in replicas
        if one is not other
        for suspect in _lacking(one, other)
    }


def missing(partition: int, lost: Iterable[Suspect]) -> list[Finding]:
    """Return a finding for each record that a replica has lost, sorted."""
    return sorted(
        Finding(
            partition=partition,
            first=one.offset,
            last=one.offset,
            kind="missing",
            brokers=(one.lacker,),
            detail=f"the replica lacks the newest record of a key, which broker {one.holder} has",
            valid=(one.holder,),
        )
        for one in lost
    )


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


def _lacking(one: KeyedRecords, other: KeyedRecords) -> Iterable[Suspect]:
    key, offset, tombstone = _newest(one)
    others_key, others_offset, _ = _newest(other)
    at = np.searchsorted(others_key, key)
    at_most = np.minimum(at, max(0, len(others_key) - 1))
    known = np.zeros(len(key), np.int64) - 1
    if len(others_key):
        known = np.where(others_key[at_most] == key, others_offset[at_most], -1)
    due = (offset >= other.start) & (offset < other.end) & ~tombstone & (known < offset)
    for lacked, of in zip(offset[due].tolist(), key[due].tolist(), strict=True):
        yield Suspect(one.broker, other.broker, lacked, of)


def _newest(one: KeyedRecords) -> tuple[Ints, Ints, Bools]:
    """Return the keys in order, with offset and tombstone flag of each one's newest record."""
    order = np.lexsort((one.offset, one.key))
    key, offset, tombstone = one.key[order], one.offset[order], one.tombstone[order]
    last = np.ones(len(key), bool)
    last[:-1] = key[1:] != key[:-1]
    return key[last], offset[last], tombstone[last]
