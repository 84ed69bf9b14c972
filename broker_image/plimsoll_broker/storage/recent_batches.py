"""RecentBatches: the newest batches of each log led here, in memory as they were written.

Each `Log` has a `RecentBatches`; all logs of a broker share one `RecentMemory`, which bounds them
together. Followers and consumers at a log's end get the very bytes that were appended, without a
read or a copy. It never decides what may be read. It holds a gapless end of its log: any
truncation, replacement or failure clears it.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from itertools import islice

from plimsoll_broker.storage.disk import Buffer
from plimsoll_wire.batches import Batches, BatchHeader

MEMORY_BYTES = 8 * 2**20
"""The default for a broker."""
LOG_BYTES = 4 * 2**20
"""Bytes of one log: followers of a busy one lag by a few fetches."""
LOG_BATCHES = 64
KEPT_BYTES = 256
"""The overhead of a batch besides its bytes."""
_BESIDE_MAX = 4 * 1024
"""If a request has more bytes besides a batch, the batch is not kept in the request's buffer."""
_COPIED_MAX = 16 * 1024
"""Such a batch is copied up to this size; a larger one is not kept."""


class Kept:
    """One batch. `segment`: the base offset of its segment. `charge`: the bytes counted for it."""

    __slots__ = ("base_offset", "charge", "data", "next_offset", "segment")

    def __init__(self, header: BatchHeader, data: Buffer, segment: int, charge: int) -> None:
        self.base_offset = header.base_offset
        self.next_offset = header.base_offset + header.last_offset_delta + 1
        self.data = data
        self.segment = segment
        self.charge = charge


class RecentMemory:
    """The sum of a broker; the oldest batch is dropped first."""

    __slots__ = ("_kept", "limit", "used")

    def __init__(self, limit: int = MEMORY_BYTES) -> None:
        self.limit = limit
        self.used = 0
        self._kept: OrderedDict[Kept, RecentBatches] = OrderedDict()

    def take(self, kept: Kept, of: RecentBatches) -> None:
        self._kept[kept] = of
        self.used += kept.charge
        while self.used > self.limit:
            next(iter(self._kept.values())).forget_first()

    def give_back(self, kept: Kept) -> None:
        del self._kept[kept]
        self.used -= kept.charge


class RecentBatches:
    """The batches of one log. `used`: bytes counted for it."""

    __slots__ = ("_batches", "_memory", "used")

    def __init__(self, memory: RecentMemory) -> None:
        self._memory = memory
        self._batches: deque[Kept] = deque()
        self.used = 0

    def __len__(self) -> int:
        return len(self._batches)

    def keep(self, data: Buffer, header: BatchHeader, segment: int) -> None:
        """Keep the batch that was just appended to this segment; `data` must not change any
        more."""
        batches = self._batches
        if batches and batches[-1].next_offset != header.base_offset:
            self.forget()
        whole = size = len(data)
        if isinstance(data, memoryview):
            whole = len(memoryview(data.obj))
            if whole - size > _BESIDE_MAX:
                data, whole = bytes(data[:_COPIED_MAX]), size
                if size > _COPIED_MAX:
                    self.forget()
                    return
        kept = Kept(header, data, segment, whole + KEPT_BYTES)
        batches.append(kept)
        self.used = used = self.used + kept.charge
        while used > LOG_BYTES or len(batches) > LOG_BATCHES:
            oldest = batches.popleft()
            self.used = used = used - oldest.charge
            if oldest is kept:
                return
            self._memory.give_back(oldest)
        self._memory.take(kept, self)

    def forget_first(self) -> None:
        oldest = self._batches.popleft()
        self.used -= oldest.charge
        self._memory.give_back(oldest)

    def forget(self) -> None:
        """Clear: the batches may no longer be the end of the log."""
        while self._batches:
            self.forget_first()

    def bytes_between(self, start: int, end: int) -> int | None:
        """Return the bytes of batches from `start` to `end`, or None if they are not all here."""
        size = 0
        for kept in reversed(self._batches):
            if kept.next_offset <= end:
                size += len(kept.data)
            if kept.base_offset <= start:
                return size if kept.base_offset == start else None
        return None

    def read(self, offset: int, max_bytes: int, up_to_offset: int) -> Buffer | Batches | None:
        """Return what `Log.read` would, if a batch begins at `offset`: batches of one segment, so
        that a follower's segments are no larger than its leader's. None: not here."""
        batches = self._batches
        at = len(batches)
        for first in reversed(batches):  # nearly always one of the last
            at -= 1
            if first.base_offset <= offset:
                break
        else:
            return None
        if first.base_offset != offset:
            return None
        if first.next_offset > up_to_offset:
            return b""
        pieces = [first.data]
        size = len(first.data)
        for kept in islice(batches, at + 1, None):
            size += len(kept.data)
            if kept.next_offset > up_to_offset or size > max_bytes or kept.segment != first.segment:
                break
            pieces.append(kept.data)
        return Batches(pieces) if len(pieces) > 1 else first.data
