"""NewestKeys: the keys of the part of a log that a round cleans, and which records are the last of
their key.

Called by the round, which visits that part from its end to its beginning. So the first record found
of a key is its last one, and only the presence of a key is remembered. (Kafka's SkimpyOffsetMap
goes forward and stores an offset.) Memory is bounded: `KEY_BYTES` and the key itself for each key,
two bits for each record. A long key is stored as a keyed hash. Two keys with one hash would lose a
record; with 128 bits and a secret of this process that is less likely than an undetected disk
error, and such keys cannot be searched for.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from hashlib import blake2b
from typing import NamedTuple

from plimsoll_wire.keyed_records import SHORT_KEY_BYTES

KEY_BYTES = 96
"""The memory of a key in the set and of its object, without the key's bytes."""
CHUNK_BYTES = 512
"""The memory of one chunk's marks, without the bits."""
RECORDS_MAX = 2**24
"""Records of one chunk, more than its decompressed batches can hold."""
_HASH_BYTES = 16


class BatchKeys(NamedTuple):
    """The key of each record (None: it has none); True if a record with a key has no value; True if
    a key has more than SHORT_KEY_BYTES."""

    keys: Sequence[bytes | None]
    tombstones: bool
    long: bool


class ChunkMarks:
    """One bit for each record of a chunk's batches.

    `live`: the record is the last of its key, or has none. `tombstones`: set at the first record of
    a batch that may have a tombstone.
    """

    __slots__ = ("live", "tombstones")

    def __init__(self, records: int) -> None:
        self.live = bytearray(records // 8 + 1)
        self.tombstones = bytearray(records // 8 + 1)

    def live_of(self, first: int, count: int) -> int:
        """Return the bits of `count` records, starting at `first`."""
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
    """Keys and marks within one memory budget."""

    def __init__(self, buffer_bytes: int) -> None:
        self._room = buffer_bytes
        self._secret = os.urandom(_HASH_BYTES)
        self._keys: set[bytes | None] = set()  # no None, as `fresh` below

    def marks(self, records: int) -> ChunkMarks | None:
        """Return marks for the next chunk, or None if there is no memory."""
        size = CHUNK_BYTES + records // 4
        if records > RECORDS_MAX or size > self._room:
            return None
        self._room -= size
        return ChunkMarks(records)

    def note(self, marks: ChunkMarks, first: int, found: BatchKeys) -> bool:
        """Add the keys of a batch, whose first record has the number `first`, and mark its records
        that no later one supersedes. Return False if there is no memory for the keys."""
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
        """Return a bit for each record of an earlier batch: 1 if no noted record supersedes it."""
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
