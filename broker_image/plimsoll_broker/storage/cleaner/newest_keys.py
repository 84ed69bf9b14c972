"""NewestKeys: the keys of the part of a log that a round cleans; finds the last record of each key.

Called by the round, which visits that part from its end to its beginning. So the first record found
of a key is its last one, and only the presence of a key is remembered. (Kafka's SkimpyOffsetMap
goes forward and stores an offset.) Memory is bounded: `KEY_BYTES` and the key itself for each key,
two bits for each record. A long key is stored as a keyed hash. Two keys with one hash would lose a
record; with 128 bits and a secret of this process that is less likely than an undetected disk
error, and such keys cannot be searched for.

`chunks` reads the batches of one sealed segment, from its file alone. It is called by a round of
compaction, which may run in another process: it uses no index and changes nothing. If a segment is
cut or removed meanwhile, the round's result is not used.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Callable, Iterator, Sequence
from hashlib import blake2b
from pathlib import Path
from typing import NamedTuple

from plimsoll_broker.storage.disk import Disk, DiskFile
from plimsoll_broker.storage.segment import file_name
from plimsoll_wire.batches import (
    HEADER_SIZE,
    LENGTH_END,
    MAGIC,
    BadBatch,
    BatchError,
    BatchHeader,
    check_crc,
    iter_headers,
    peek_header,
)
from plimsoll_wire.compression import opened
from plimsoll_wire.keyed_records import SHORT_KEY_BYTES, KeyedRecord, iter_keyed, plain_keys
from plimsoll_wire.records import BadRecords

KEY_BYTES = 96
"""The memory, in bytes, of a key in the set and of its object, without the key's own bytes."""
CHUNK_BYTES = 512
"""The memory, in bytes, of one chunk's marks, without the bits."""
RECORDS_MAX = 2**24
"""The most records in one chunk. Valid batches cannot hold as many."""
_HASH_BYTES = 16


class BatchKeys(NamedTuple):
    """The keys of one batch. `keys`: the key of each record, None if the record has none.
    `tombstones`: True if any record has a key and no value. `long`: True if any key has more than
    SHORT_KEY_BYTES."""

    keys: Sequence[bytes | None]
    tombstones: bool
    long: bool


class ChunkMarks:
    """The results of the first pass for one chunk of batches, as two bit sets over its records.

    `live`: the record is the last one of its key, or has no key. `tombstones`: set at the first
    record of each batch that may have a tombstone.
    """

    __slots__ = ("live", "tombstones")

    def __init__(self, records: int) -> None:
        self.live = bytearray(records // 8 + 1)
        self.tombstones = bytearray(records // 8 + 1)

    def live_of(self, first: int, count: int) -> int:
        """Return the `live` bits of `count` records from number `first` on. Bit 0 of the result
        belongs to record `first`."""
        bits = int.from_bytes(self.live[first >> 3 : (first + count + 7) >> 3], "little")
        return bits >> (first & 7) & ((1 << count) - 1)

    def keep_all(self, first: int, count: int) -> None:
        """Mark `count` records from number `first` on as live."""
        for number in range(first, first + count):
            self.live[number >> 3] |= 1 << (number & 7)

    def note_tombstones(self, first: int) -> None:
        """Set the `tombstones` bit of the batch with this first record."""
        self.tombstones[first >> 3] |= 1 << (first & 7)

    def may_delete(self, first: int) -> bool:
        """Return True if the batch that begins with this record may have a tombstone."""
        return bool(self.tombstones[first >> 3] >> (first & 7) & 1)


class NewestKeys:
    """The set of keys found so far in a round of compaction, within a memory budget of
    `buffer_bytes`. The marks of chunks count against the same budget."""

    def __init__(self, buffer_bytes: int) -> None:
        self._room = buffer_bytes
        self._secret = os.urandom(_HASH_BYTES)
        self._keys: set[bytes | None] = set()  # no None, as `fresh` below

    def marks(self, records: int) -> ChunkMarks | None:
        """Take memory of the budget for a chunk of this many records, and return its empty marks.
        Return None if the budget does not suffice or the chunk has more than RECORDS_MAX."""
        size = CHUNK_BYTES + records // 4
        if records > RECORDS_MAX or size > self._room:
            return None
        self._room -= size
        return ChunkMarks(records)

    def note(self, marks: ChunkMarks, first: int, found: BatchKeys) -> bool:
        """Add the keys of a batch, visited from the log's end to its beginning, and mark as live
        its records that no later record supersedes. `first`: the number of its first record in the
        chunk. Return False, without a change, if the budget does not suffice."""
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
        """Return one bit for each record of a batch before the dirty part, bit 0 for the first
        record. The bit is 1 if no key of the dirty part supersedes the record."""
        keys, noted = self._shortened(found), self._keys
        if noted.isdisjoint(keys):
            return (1 << len(keys)) - 1
        bits = 0
        for number, key in enumerate(keys):
            if key not in noted:
                bits |= 1 << number
        return bits

    def _shortened(self, found: BatchKeys) -> Sequence[bytes | None]:
        """Return the keys, each long one replaced by its keyed hash."""
        if not found.long:
            return found.keys
        return [
            key if key is None or len(key) <= SHORT_KEY_BYTES else self._digest(key)
            for key in found.keys
        ]

    def _digest(self, key: bytes) -> bytes:
        return blake2b(key, digest_size=_HASH_BYTES, key=self._secret).digest()


READ_BYTES = 2**20
OPENED_BYTES_MAX = 64 * 2**20
"""The most bytes of one decompressed batch. A client's batch has at most half as many."""

_FIELDS = struct.Struct(">qiib6xi34x")
"""The fields of a batch header: base offset, length, leader epoch, magic and last offset delta."""


class SegmentRange(NamedTuple):
    """The base offset of a segment, and that of the next segment."""

    base_offset: int
    end_offset: int


class _Place(NamedTuple):
    """A position in a log, after the batches read so far. `leader_epoch`: that of the last batch,
    or -1 if there is none."""

    next_offset: int
    leader_epoch: int


class Chunk(NamedTuple):
    """A chunk of a segment's file: some whole batches that follow each other from `position` on."""

    position: int
    data: bytes

    def headers(self) -> list[BatchHeader]:
        return list(iter_headers(self.data))


def open_segment(disk: Disk, directory: Path, base_offset: int) -> DiskFile:
    """Open the log file of a segment. Raise StorageError if it does not exist."""
    return disk.open(directory / file_name(base_offset, ".log"), make=False)


def chunks(file: DiskFile, extent: SegmentRange, used: Callable[[int], None]) -> Iterator[Chunk]:
    """Yield all batches of a segment in chunks of about a mebibyte. Check their CRCs, offsets and
    leader epochs; raise BatchError at the first bad one. `used` is called with the size of each
    read in bytes."""
    position, size = 0, file.size()
    place = _Place(extent.base_offset, -1)
    while position < size:
        data = file.pread(READ_BYTES, position)
        length = peek_header(data).length
        if position + length > size:
            raise BatchError(BadBatch.TORN, position)
        if length > len(data):
            data = file.pread(length, position)
        used(len(data))
        end, place = _checked(data, place, extent.end_offset, position)
        if not end:
            raise BatchError(BadBatch.TORN, position)
        yield Chunk(position, data[:end])
        position += end
    if place.next_offset != extent.end_offset:
        raise BatchError(BadBatch.TORN, position)


def _checked(data: bytes, place: _Place, end_offset: int, position: int) -> tuple[int, _Place]:
    """Check the whole batches at the beginning of `data`, which must follow `place`. Return their
    length in bytes (0 if more bytes are needed for one) and the place after them. Raise BatchError
    if one is invalid or its offsets reach `end_offset`. `position`: where `data` begins in the
    file."""
    next_offset, leader_epoch = place
    at, size = 0, len(data)
    view, unpack = memoryview(data), _FIELDS.unpack_from
    while at + HEADER_SIZE <= size:
        base, length, epoch, magic, last_delta = unpack(data, at)
        length += LENGTH_END
        if at + length > size:
            break
        if length < HEADER_SIZE or magic != MAGIC:
            peek_header(data, at)  # raises the reason
        if not next_offset <= base <= base + last_delta < end_offset:
            raise BatchError(BadBatch.PLACE, position + at)
        if epoch < leader_epoch:
            raise BatchError(BadBatch.EPOCH, position + at)
        if not check_crc(view, at, length):
            raise BatchError(BadBatch.CRC, position + at)
        next_offset, leader_epoch = base + last_delta + 1, epoch
        at += length
    return at, _Place(next_offset, leader_epoch)


def read_again(file: DiskFile, position: int, size: int, used: Callable[[int], None]) -> Chunk:
    """Read again a chunk of `size` bytes that `chunks` has verified. It is shorter if the file has
    been truncated meanwhile. `used`: called with the bytes read."""
    data = file.pread(size, position)
    used(len(data))
    return Chunk(position, data)


def opened_records(header: BatchHeader, batch: bytes) -> bytes | None:
    """Return the batch's records, decompressed. Return None if it has none, is a control batch or
    cannot be decompressed: such a batch supersedes nothing and is kept as it is."""
    if header.is_control or not header.count:
        return None
    try:
        return opened(header.codec, batch[HEADER_SIZE:], OPENED_BYTES_MAX)
    except BadRecords:
        return None


def keyed(header: BatchHeader, records: bytes) -> list[KeyedRecord] | None:
    """Return the key and the place in `records` of each record. Return None if the records cannot
    be parsed."""
    try:
        return list(iter_keyed(records, header.count))
    except BadRecords:
        return None


def batch_keys(header: BatchHeader, records: bytes) -> BatchKeys | None:
    """Return the keys of a batch. Return None if the records cannot be parsed."""
    plain = plain_keys(records, header.count)
    if plain is not None:
        return BatchKeys(*plain)
    found = keyed(header, records)
    if found is None:
        return None
    keys = [each.key for each in found]
    tombstones = any(each.tombstone and each.key is not None for each in found)
    long = any(key is not None and len(key) > SHORT_KEY_BYTES for key in keys)
    return BatchKeys(keys, tombstones, long)
