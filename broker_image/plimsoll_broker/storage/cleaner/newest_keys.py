"""The keys of the part of a log that a round of compaction cleans, and which records are the last
of theirs.

Called by the round, which goes through that part from its end to its beginning: so the first record
that is found of a key is its last one, and of a key nothing needs to be kept but that it was there.
(Kafka's SkimpyOffsetMap goes forward, and keeps an offset.)  Memory is bounded: `KEY_BYTES` and the
key itself for each key, two bits for each record.  A long key is known by a keyed hash.  Two keys
of one hash would lose a record; 128 bits, of a secret of this process, make that less likely than a
disk's undetected error, and nobody can look for such keys.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from hashlib import blake2b
from typing import NamedTuple

from plimsoll_wire.keyed_records import SHORT_KEY_BYTES

KEY_BYTES = 96
"""Of a set's place for a key, and of an object that holds one, without the key's bytes."""
CHUNK_BYTES = 512
"""Of the marks of one chunk, without its bits."""
RECORDS_MAX = 2**24
"""Of one chunk, more than its batches can hold when they are opened."""
_HASH_BYTES = 16


class BatchKeys(NamedTuple):
    """Of each record its key, None: it has none; whether one with a key has no value; whether a key
    has more than SHORT_KEY_BYTES."""

    keys: Sequence[bytes | None]
    tombstones: bool
    long: bool


class ChunkMarks:
    """One bit for each record of neighbouring batches, counted from the first one's first.

    `live`: the record is the last of its key, or has none.  `tombstones`: at the first record of a
    batch of which one may be a tombstone.
    """

    __slots__ = ("live", "tombstones")

    def __init__(self, records: int) -> None:
        self.live = bytearray(records // 8 + 1)
        self.tombstones = bytearray(records // 8 + 1)

    def live_of(self, first: int, count: int) -> int:
        """The bits of `count` records from `first` on."""
        bits = int.from_bytes(self.live[first >> 3 : (first + count + 7) >> 3], "little")
        return bits >> (first & 7) & ((1 << count) - 1)

    def keep_all(self, first: int, count: int) -> None:
        for number in range(first, first + count):
            self.live[number >> 3] |= 1 << (number & 7)

    def note_tombstones(self, first: int) -> None:
        self.tombstones[first >> 3] |= 1 << (first & 7)

    def may_delete(self, first: int) -> bool:
        return bool(self.tombstones[first >> 3] >> (first & 7) & 1)


class NewestKeys:
    """Keys and marks, in one buffer's size."""

    def __init__(self, buffer_bytes: int) -> None:
        self._room = buffer_bytes
        self._secret = os.urandom(_HASH_BYTES)
        self._keys: set[bytes | None] = set()  # no None, as `fresh` below

    def marks(self, records: int) -> ChunkMarks | None:
        """For the next chunk; None: there is no room."""
        size = CHUNK_BYTES + records // 4
        if records > RECORDS_MAX or size > self._room:
            return None
        self._room -= size
        return ChunkMarks(records)

    def note(self, marks: ChunkMarks, first: int, found: BatchKeys) -> bool:
        """Take up the keys of a batch, of whose records `first` is the number of the first one, and
        mark those that no later record supersedes.  False: there is no room for its keys."""
        keys = self._shortened(found)
        fresh = set(keys).difference(self._keys)
        if not fresh:
            return True
        has_keyless = None in fresh
        fresh.discard(None)
        size = KEY_BYTES * len(fresh) + sum(len(key) for key in fresh if key is not None)
        if size > self._room:
            return False
        self._room -= size
        self._keys |= fresh
        left, number, live = len(fresh), first + len(keys), marks.live
        for key in reversed(keys):
            number -= 1
            if key in fresh:
                fresh.remove(key)
                left -= 1
            elif key is not None:
                continue
            live[number >> 3] |= 1 << (number & 7)
            if not left and not has_keyless:
                break
        return True

    def live_in(self, found: BatchKeys) -> int:
        """A bit for each record, of a batch that lies before all that was noted, that nothing
        there supersedes."""
        keys, noted = self._shortened(found), self._keys
        if noted.isdisjoint(keys):
            return (1 << len(keys)) - 1
        bits = 0
        for number, key in enumerate(keys):
            if key not in noted:
                bits |= 1 << number
        return bits

    def _shortened(self, found: BatchKeys) -> Sequence[bytes | None]:
        if not found.long:
            return found.keys
        return [
            key if key is None or len(key) <= SHORT_KEY_BYTES else self._digest(key)
            for key in found.keys
        ]

    def _digest(self, key: bytes) -> bytes:
        return blake2b(key, digest_size=_HASH_BYTES, key=self._secret).digest()
