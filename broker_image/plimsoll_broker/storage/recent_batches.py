"""The newest batches of each log that this broker leads, in memory as they were written.

Each `Log` has a `RecentBatches`; all logs of a broker share one `RecentMemory`, which bounds
what they keep together.  Followers and consumers at a log's end are given the very bytes that were
appended: no file is read and nothing is copied.  It never decides what may be read.  What it keeps
is a gapless end of its log: whatever cuts, replaces or fails the log has it forget everything.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from itertools import islice

from plimsoll_broker.storage.disk import Buffer
from plimsoll_wire.batches import Batches, BatchHeader

MEMORY_BYTES = 8 * 2**20
"""Of a broker, unless it is told otherwise."""
LOG_BYTES = 4 * 2**20
"""Of one log: followers of a busy one are as far behind as a few fetches bring."""
LOG_BATCHES = 64
KEPT_BYTES = 256
"""What keeping a batch costs beside its bytes."""
_BESIDE_MAX = 4 * 1024
"""Bytes of a request beside a batch of it, from which the batch is not kept where it is."""
_COPIED_MAX = 16 * 1024
"""Of such a batch: a larger one is not kept at all."""


class Kept:
    """One batch.  `segment`: where the one begins in which it lies; `charge`: the bytes that are
    counted for it."""

    __slots__ = ("base_offset", "charge", "data", "next_offset", "segment")

    def __init__(self, header: BatchHeader, data: Buffer, segment: int, charge: int) -> None:
        self.base_offset = header.base_offset
        self.next_offset = header.base_offset + header.last_offset_delta + 1
        self.data = data
        self.segment = segment
        self.charge = charge


class RecentMemory:
    """A broker's sum; what was kept first goes first."""

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
    """Of one log.  `used`: bytes that are counted for it."""

    __slots__ = ("_batches", "_memory", "used")

    def __init__(self, memory: RecentMemory) -> None:
        self._memory = memory
        self._batches: deque[Kept] = deque()
        self.used = 0

    def __len__(self) -> int:
        return len(self._batches)

    def keep(self, data: Buffer, header: BatchHeader, segment: int) -> None:
        """The batch that was just appended to the segment that begins there; nobody writes into
        `data` any more."""
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
        """What is kept may not be what the log ends with."""
        while self._batches:
            self.forget_first()

    def bytes_between(self, start: int, end: int) -> int | None:
        """Of batches: one begins at `start`, one ends at `end`; None: they are not all here."""
        size = 0
        for kept in reversed(self._batches):
            if kept.next_offset <= end:
                size += len(kept.data)
            if kept.base_offset <= start:
                return size if kept.base_offset == start else None
        return None

    def read(self, offset: int, max_bytes: int, up_to_offset: int) -> Buffer | Batches | None:
        """What `Log.read` gives, where a batch begins at `offset`: batches of one segment, so that
        a follower's segments are no larger than its leader's; None: it is not here."""
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
