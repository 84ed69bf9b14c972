"""The last offset of each key in the part of a log that a round of compaction has read.

Called by the round.  One buffer of bounded size, 24 bytes a key: a keyed hash of 16 bytes and the
offset.  Two keys of one hash would lose a record; 128 bits, of a secret of this process, make that
less likely than a disk's undetected error, and nobody can look for such keys.  Source: Kafka's
SkimpyOffsetMap (which has an unkeyed MD5).
"""

from __future__ import annotations

import os
import struct
from hashlib import blake2b

_HASH_BYTES = 16
ENTRY_BYTES = 24
_OFFSET = struct.Struct(">q")
_START = struct.Struct(">Q")
LOAD_MAX = 0.75
"""Above it a search takes many steps."""


class OffsetMap:
    """An open-addressed table; an entry of zeros is free."""

    __slots__ = ("_places", "_room", "_secret", "_table", "count")

    def __init__(self, buffer_bytes: int) -> None:
        self._places = max(buffer_bytes // ENTRY_BYTES, 4)
        self._table = bytearray(self._places * ENTRY_BYTES)
        self._room = int(self._places * LOAD_MAX)
        self._secret = os.urandom(_HASH_BYTES)
        self.count = 0

    @property
    def room(self) -> int:
        """How many more keys it is sure to take."""
        return self._room - self.count

    def put(self, key: bytes, offset: int) -> None:
        """`offset` is the key's last one so far."""
        assert self.room > 0, "the caller stops before it is full"
        place, digest = self._find(key)
        table = self._table
        at = place * ENTRY_BYTES
        if not _OFFSET.unpack_from(table, at + _HASH_BYTES)[0]:
            self.count += 1
        table[at : at + _HASH_BYTES] = digest
        _OFFSET.pack_into(table, at + _HASH_BYTES, offset + 1)  # never zero

    def get(self, key: bytes) -> int | None:
        place, _ = self._find(key)
        offset: int = _OFFSET.unpack_from(self._table, place * ENTRY_BYTES + _HASH_BYTES)[0]
        return offset - 1 if offset else None

    def _find(self, key: bytes) -> tuple[int, bytes]:
        """Where the key is, or where it would be put."""
        digest = blake2b(key, digest_size=_HASH_BYTES, key=self._secret).digest()
        table, places = self._table, self._places
        place = _START.unpack_from(digest)[0] % places
        while True:
            at = place * ENTRY_BYTES
            found = table[at : at + _HASH_BYTES]
            if found == digest or not _OFFSET.unpack_from(table, at + _HASH_BYTES)[0]:
                return place, digest
            place = (place + 1) % places
