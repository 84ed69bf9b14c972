"""What a rolling check remembers of a log, in bounded memory: the newest records of each partition,
and which records of each producer it has seen. Pure.

Called by `rolling_judge`. `RecentLog` holds identities by offset, so that an acknowledgement that
comes later finds its record, and a log that changed below the judged end is noticed. `SeenRecently`
is exact for all records ever: below its floor it holds only those that were *not* seen.
"""

from __future__ import annotations

import zlib
from collections.abc import Collection, Iterator

import msgspec
import numpy as np

from plimsoll_spark.arrays import Bools, Ints

BITS_MAX = 2**20
"""The most sequences of a producer for which one bit each is held."""
UNSEEN_MAX = 100_000
"""The most sequences of a producer below its floor that were not seen and are remembered."""


class PackedLog(msgspec.Struct, frozen=True, kw_only=True):
    """`RecentLog` in a form that can be stored: zlib of the differences of adjacent values."""

    count: int
    offset: bytes
    producer: bytes
    sequence: bytes
    claimed: bytes


class RecentLog:
    """The newest records of one partition that were read, as columns sorted by offset. A record of
    another writer has producer -1. `claimed`: True for a record of which the acknowledgement is
    known."""

    def __init__(self) -> None:
        self.offset: Ints = np.zeros(0, np.int64)
        self.producer: Ints = np.zeros(0, np.int64)
        self.sequence: Ints = np.zeros(0, np.int64)
        self.claimed: Bools = np.zeros(0, np.bool_)

    def __len__(self) -> int:
        return len(self.offset)

    @property
    def first(self) -> int | None:
        """Return the lowest offset; None without records."""
        return int(self.offset[0]) if len(self) else None

    def add(self, offset: Ints, producer: Ints, sequence: Ints) -> None:
        """Add records. Their offsets are sorted, and none is in the log yet."""
        at = np.searchsorted(self.offset, offset)
        self.offset = np.insert(self.offset, at, offset)
        self.producer = np.insert(self.producer, at, producer)
        self.sequence = np.insert(self.sequence, at, sequence)
        self.claimed = np.insert(self.claimed, at, False)

    def keep(self, rows: Bools) -> None:
        """Remove all records but those for which `rows` is True."""
        self.offset, self.producer = self.offset[rows], self.producer[rows]
        self.sequence, self.claimed = self.sequence[rows], self.claimed[rows]

    def trim(self, most: int) -> int:
        """Remove the oldest records beyond `most`. Return how many of them are of this run and were
        never acknowledged, as far as is known."""
        over = len(self) - most
        if over <= 0:
            return 0
        unclaimed = int((~self.claimed[:over] & (self.producer[:over] != -1)).sum())
        self.keep(np.arange(len(self)) >= over)
        return unclaimed

    def at(self, offset: Ints) -> Ints:
        """Return, for each offset, the index of its record; -1 if there is none."""
        place = np.searchsorted(self.offset, offset)
        place = np.minimum(place, max(0, len(self) - 1))
        if not len(self):
            return np.full(len(offset), -1)
        return np.where(self.offset[place] == offset, place, -1)

    def highest(self) -> dict[int, int]:
        """Return, by producer, the highest sequence among these records."""
        found: dict[int, int] = {}
        for name in np.unique(self.producer[self.producer >= 0]).tolist():
            found[name] = int(self.sequence[self.producer == name].max())
        return found

    def packed(self) -> PackedLog:
        """Return the records in a form that can be stored."""
        return PackedLog(
            count=len(self),
            offset=_packed(self.offset),
            producer=_packed(self.producer),
            sequence=_packed(self.sequence),
            claimed=zlib.compress(np.packbits(self.claimed).tobytes(), 1),
        )

    @classmethod
    def of(cls, packed: PackedLog) -> RecentLog:
        """Return the records that were stored."""
        log, bits = cls(), np.frombuffer(zlib.decompress(packed.claimed), np.uint8)
        log.offset, log.producer, log.sequence = (
            _unpacked(one) for one in (packed.offset, packed.producer, packed.sequence)
        )
        log.claimed = np.unpackbits(bits)[: packed.count].astype(np.bool_)
        return log


def _packed(values: Ints) -> bytes:
    return zlib.compress(np.diff(values, prepend=0).tobytes(), 1)


def _unpacked(content: bytes) -> Ints:
    return np.cumsum(np.frombuffer(zlib.decompress(content), np.int64))


class PackedSeen(msgspec.Struct, frozen=True, kw_only=True):
    """The seen records of one producer: below `floor` all but `unseen`, and from it on those with a
    bit set (zlib of one bit a sequence). Below `known_from` nothing is known."""

    producer: int
    floor: int
    known_from: int
    unseen: tuple[int, ...]
    bits: bytes


class _OfProducer:
    def __init__(self) -> None:
        self.floor = 0
        self.known_from = 0
        self.unseen: set[int] = set()
        self.bits: Bools = np.zeros(0, np.bool_)

    def take(self, sequence: Ints) -> Bools:
        """Add the sequences, in their order. Return, for each, True if it was there already."""
        found = np.zeros(len(sequence), np.bool_)
        below = np.flatnonzero(sequence < self.floor)
        for row in below.tolist():
            number = int(sequence[row])
            found[row] = number not in self.unseen and number >= self.known_from
            self.unseen.discard(number)
        above = np.flatnonzero(sequence >= self.floor)
        if len(above):
            place = sequence[above] - self.floor
            self._extend(int(place.max()) + 1)
            first = np.zeros(len(above), np.bool_)
            first[np.unique(place, return_index=True)[1]] = True
            found[above] = self.bits[place] | ~first
            self.bits[place] = True
            self._raise_floor()
        return found

    def has(self, sequence: Ints) -> Bools:
        found = np.zeros(len(sequence), np.bool_)
        below = sequence < self.floor
        found[below] = [
            int(one) not in self.unseen and one >= self.known_from for one in sequence[below]
        ]
        place = sequence - self.floor
        there = ~below & (place < len(self.bits))
        found[there] = self.bits[place[there]]
        return found

    def forget(self, sequence: Ints) -> None:
        self.unseen |= set(sequence[sequence < self.floor].tolist())
        place = sequence - self.floor
        self.bits[place[(place >= 0) & (place < len(self.bits))]] = False

    def _extend(self, size: int) -> None:
        if size > len(self.bits):
            more = np.zeros(size + min(size, BITS_MAX // 4) - len(self.bits), np.bool_)
            self.bits = np.concatenate((self.bits, more))

    def _raise_floor(self) -> None:
        used = np.flatnonzero(self.bits)
        over = int(used[-1]) + 1 - BITS_MAX if len(used) else 0
        if over > 0:
            self.shrink(over + BITS_MAX // 2)

    def retire(self) -> None:
        used = np.flatnonzero(self.bits)
        self.shrink(int(used[-1]) + 1 if len(used) else 0)
        self.bits = np.zeros(0, np.bool_)

    def shrink(self, over: int) -> None:
        """Raise the floor by `over` sequences."""
        missing = np.flatnonzero(~self.bits[:over]) + self.floor
        if len(missing) > UNSEEN_MAX:
            self.known_from = int(missing[-UNSEEN_MAX])
            missing = missing[-UNSEEN_MAX:]
        self.unseen |= set(missing.tolist())
        self.floor += over
        self.bits = self.bits[over:]
        for number in sorted(self.unseen)[: max(0, len(self.unseen) - UNSEEN_MAX)]:
            self.unseen.discard(number)
            self.known_from = max(self.known_from, number + 1)


class SeenRecently:
    """Which records of the run were read, by producer."""

    def __init__(self) -> None:
        self._producers: dict[int, _OfProducer] = {}

    def take(self, producer: Ints, sequence: Ints) -> Bools:
        """Add records, in their order. Return, for each, True if it was there already: it is a
        copy. If that is not known any more, it counts as no copy."""
        found = np.zeros(len(producer), np.bool_)
        for rows, one in self._by_producer(producer):
            found[rows] = one.take(sequence[rows])
        return found

    def has(self, producer: Ints, sequence: Ints) -> Bools:
        """Return, for each record, True if it was read."""
        found = np.zeros(len(producer), np.bool_)
        for name in np.unique(producer).tolist():
            if name in self._producers:
                rows = producer == name
                found[rows] = self._producers[name].has(sequence[rows])
        return found

    def forget(self, producer: Ints, sequence: Ints) -> None:
        """Remove records that are not in the log any more."""
        for rows, one in self._by_producer(producer):
            one.forget(sequence[rows])

    def retire(self, alive: Collection[int]) -> None:
        """Give back the memory of all producers but `alive`, which send no more. Nothing is
        forgotten."""
        for name, one in self._producers.items():
            if name not in alive:
                one.retire()

    def _by_producer(self, producer: Ints) -> Iterator[tuple[Bools, _OfProducer]]:
        for name in np.unique(producer).tolist():
            yield producer == name, self._producers.setdefault(name, _OfProducer())

    def packed(self) -> tuple[PackedSeen, ...]:
        """Return the set in a form that can be stored."""
        return tuple(
            PackedSeen(
                producer=name,
                floor=one.floor,
                known_from=one.known_from,
                unseen=tuple(sorted(one.unseen)),
                bits=zlib.compress(np.packbits(one.bits).tobytes(), 1),
            )
            for name, one in sorted(self._producers.items())
        )

    @classmethod
    def of(cls, parts: tuple[PackedSeen, ...]) -> SeenRecently:
        """Return the set that was stored."""
        seen = cls()
        for part in parts:
            one = seen._producers.setdefault(part.producer, _OfProducer())
            one.floor, one.known_from, one.unseen = part.floor, part.known_from, set(part.unseen)
            bits = np.frombuffer(zlib.decompress(part.bits), np.uint8)
            one.bits = np.unpackbits(bits).astype(np.bool_)
        return seen
