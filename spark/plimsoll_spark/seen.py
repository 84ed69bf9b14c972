"""Sets of records, as one bit for each sequence of each producer. Pure.

Ten million records of one producer take 1.2 MB. Used by `range_check` and `fold` to find second
copies of a record in ranges, or partitions, that are checked separately.
"""

from __future__ import annotations

import zlib
from collections.abc import Collection, Iterable

import msgspec
import numpy as np

from plimsoll_spark.arrays import Bits, Bools, Ints


class SeenBits(msgspec.Struct, frozen=True, kw_only=True):
    """The records of one producer in a set, in a form that can be sent between processes. `bits`:
    zlib of one bit for each sequence from `first`, a multiple of eight, on."""

    producer: int
    first: int
    bits: bytes


class Seen:
    """A set of records, each identified by producer and sequence."""

    def __init__(self) -> None:
        # Per producer: one bit for each sequence from 0 on.
        self._bits: dict[int, Bits] = {}

    @classmethod
    def of(cls, producer: Ints, sequence: Ints) -> Seen:
        """Return the set of the records with these producers and sequences, two columns of equal
        length."""
        seen = cls()
        for name in np.unique(producer).tolist():
            mine = sequence[producer == name]
            bits = np.zeros(int(mine.max()) // 8 * 8 + 8, np.uint8)
            bits[mine] = 1
            seen._bits[name] = np.packbits(bits)
        return seen

    @classmethod
    def from_bits(cls, parts: Iterable[SeenBits]) -> Seen:
        """Return the set that `bits` encoded."""
        seen = cls()
        seen.add(parts)
        return seen

    def bits(self) -> tuple[SeenBits, ...]:
        """Return the set encoded, one `SeenBits` for each producer that has records in it."""
        found = []
        for producer, bits in sorted(self._bits.items()):
            filled = np.flatnonzero(bits)
            if len(filled):
                first = int(filled[0])
                packed = zlib.compress(bits[first : int(filled[-1]) + 1].tobytes(), 1)
                found.append(SeenBits(producer=producer, first=8 * first, bits=packed))
        return tuple(found)

    def has(self, producer: Ints, sequence: Ints) -> Bools:
        """Return, for each record of the two columns, True if it is in the set."""
        found = np.zeros(len(producer), np.bool_)
        for name, bits in self._bits.items():
            rows = np.flatnonzero((producer == name) & (sequence < 8 * len(bits)))
            places = sequence[rows]
            found[rows] = (bits[places >> 3] >> (7 - (places & 7))) & 1 == 1
        return found

    def overlaps(self, parts: Iterable[SeenBits]) -> bool:
        """Return True if at least one record of `parts` is in the set."""
        for part in parts:
            bits, start, other = self._aligned(part)
            if bool((bits[start : start + len(other)] & other).any()):
                return True
        return False

    def count_without(self, producers: Collection[int]) -> int:
        """Return the number of records in the set that are of none of these producers."""
        others = [bits for number, bits in self._bits.items() if number not in producers]
        return sum(int(np.bitwise_count(bits).sum()) for bits in others)

    def add(self, parts: Iterable[SeenBits]) -> None:
        """Add the records of `parts`."""
        for part in parts:
            bits, start, other = self._aligned(part)
            bits[start : start + len(other)] |= other

    def _aligned(self, part: SeenBits) -> tuple[Bits, int, Bits]:
        """Extend this producer's bits so that they hold `part`, and return three values: these
        bits; the index of their byte at which `part` begins; the decompressed bytes of `part`."""
        other = np.frombuffer(zlib.decompress(part.bits), np.uint8)
        start = part.first // 8
        bits = self._bits.get(part.producer, np.zeros(0, np.uint8))
        if len(bits) < start + len(other):
            # Half as much again, so that adding many parts copies each byte a few times only.
            bits = np.concatenate(
                (bits, np.zeros(3 * (start + len(other)) // 2 - len(bits), np.uint8))
            )
            self._bits[part.producer] = bits
        return bits, start, other
