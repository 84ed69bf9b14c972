"""PendingOffsets: the offsets that transactions would commit in one group.

Part of a group's durable state, written by `groups.state` alone. An offset is pending from its
record to the end marker of its producer's transaction. A later record of the same partition ends
that too, whichever transaction it is of, since a cleaner keeps the last record of a key alone.
Source: KIP-98, KIP-447; docs/protocol.md §4.14.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from plimsoll_core.groups.records import OffsetCommitted


class PendingOffset(NamedTuple):
    """An offset in an open transaction. `place`: the offset of its record in the log."""

    place: int
    record: OffsetCommitted


class PendingOffsets:
    """The pending offsets of one group."""

    __slots__ = ("_by_partition", "_by_producer")

    def __init__(self) -> None:
        # By topic and partition, and producer id.
        self._by_partition: dict[tuple[str, int], dict[int, PendingOffset]] = {}
        # By producer id: the topics and partitions with an entry above.
        self._by_producer: dict[int, dict[tuple[str, int], None]] = {}

    def __bool__(self) -> bool:
        return bool(self._by_producer)

    def __len__(self) -> int:
        return sum(map(len, self._by_producer.values()))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, PendingOffsets):
            return NotImplemented
        return self._by_partition == other._by_partition

    __hash__ = None  # type: ignore[assignment]  # it changes

    def __repr__(self) -> str:
        return repr(self._by_partition)

    def has(self, topic: str, partition: int) -> bool:
        """Return True if a transaction would commit an offset of this partition."""
        return (topic, partition) in self._by_partition

    def partitions(self) -> frozenset[tuple[str, int]]:
        """Return the topics and partitions that have a pending offset."""
        return frozenset(self._by_partition)

    def of(self, producer_id: int, topic: str, partition: int) -> PendingOffset | None:
        """Return the offset that the producer's transaction would commit of this partition; None if
        it would commit none."""
        return self._by_partition.get((topic, partition), {}).get(producer_id)

    def producers(self) -> Iterator[tuple[int, int]]:
        """Yield each producer id with the number of its pending offsets."""
        for producer_id, held in self._by_producer.items():
            yield producer_id, len(held)

    def add(self, producer_id: int, pending: PendingOffset) -> PendingOffset | None:
        """Add an offset, and return the one that it replaces."""
        at = (pending.record.topic, pending.record.partition)
        held = self._by_partition.setdefault(at, {})
        before = held.get(producer_id)
        held[producer_id] = pending
        self._by_producer.setdefault(producer_id, {})[at] = None
        return before

    def take(self, producer_id: int) -> list[PendingOffset]:
        """Remove and return the producer's offsets, in the order in which their partitions were
        first added."""
        taken = []
        for at in self._by_producer.pop(producer_id, {}):
            held = self._by_partition[at]
            taken.append(held.pop(producer_id))
            if not held:
                del self._by_partition[at]
        return taken

    def supersede(self, topic: str, partition: int, place: int) -> list[tuple[int, PendingOffset]]:
        """Remove and return, with their producer ids, the offsets of a partition with a record
        before `place`, the offset of a record that replaces them."""
        at = (topic, partition)
        held = self._by_partition.get(at)
        if held is None:
            return []
        gone = [(pid, one) for pid, one in held.items() if one.place < place]
        for producer_id, _ in gone:
            del held[producer_id]
            places = self._by_producer[producer_id]
            del places[at]
            if not places:
                del self._by_producer[producer_id]
        if not held:
            del self._by_partition[at]
        return gone
