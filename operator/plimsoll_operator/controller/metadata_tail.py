"""The newest committed batches of the metadata log, kept in memory for the brokers' metadata
streams.

`commit_queue` adds each batch after its commit; `controller_term` answers streams from here while
active. The tail is bounded in bytes: a broker further behind gets a snapshot of the image first. It
also tells if a broker's position contradicts this log, which went back in time or is another log.
It compares the nonces of batches that are kept, and controller terms below them.
"""

from __future__ import annotations

import asyncio
import zlib
from collections import deque
from enum import Enum
from typing import Protocol

from plimsoll_core.cluster.controller_terms import Ancestry, ancestry
from plimsoll_core.cluster.image_encoding import encode_image
from plimsoll_core.cluster.model import ClusterImage, ControllerTerm
from plimsoll_core.errors import Reason
from plimsoll_core.ids import MetadataOffset
from plimsoll_core.messages.metadata_stream import FetchMetadata, MetadataBatchCopy, MetadataUpdate
from plimsoll_core.messages.requests import Refused
from plimsoll_operator.controller.refusals import refused
from plimsoll_process.waits import set_within

TAIL_BYTES_MAX = 8 * 1024 * 1024
UPDATE_BYTES_MAX = 4 * 1024 * 1024


class Standing(Enum):
    """Relation of a broker's position (offset, nonce of the last batch) to this log. AHEAD and
    DIFFERENT contradict the log."""

    WITHIN = "a part of the log"
    TOO_OLD = "older than the records that the controller keeps in memory"
    FORGOTTEN = "from a controller epoch that the log no longer knows"
    AHEAD = "newer than the end of the log"
    DIFFERENT = "different from the log"


_BY_TERM = {
    Ancestry.WITHIN: Standing.TOO_OLD,
    Ancestry.DIFFERENT: Standing.DIFFERENT,
    Ancestry.FORGOTTEN: Standing.FORGOTTEN,
}


class MetadataTail:
    """The newest committed batches, in order without gaps. They cover the offsets from `start` up
    to `end`, exclusive. `nonce`: that of the batch before `start`, None if there is none. `terms`:
    the controller terms of the whole log."""

    def __init__(
        self,
        *,
        start: MetadataOffset,
        nonce: str | None,
        terms: tuple[ControllerTerm, ...] = (),
    ) -> None:
        self.start = start
        self.terms = terms
        self.end = start
        self._start_nonce = nonce
        self._batches: deque[MetadataBatchCopy] = deque()
        self._bytes = 0
        self._grown = asyncio.Event()

    @property
    def start_nonce(self) -> str | None:
        return self._start_nonce

    @property
    def end_nonce(self) -> str | None:
        return self._batches[-1].nonce if self._batches else self._start_nonce

    @property
    def positions(self) -> frozenset[tuple[int, str]]:
        """Return the ends of the batches that are kept, and of the one before them, each with its
        nonce."""
        ends = {(one.end_offset, one.nonce) for one in self._batches}
        if self._start_nonce is not None:
            ends.add((self.start, self._start_nonce))
        return frozenset(ends)

    def append(self, batch: MetadataBatchCopy) -> None:
        assert batch.base_offset == self.end, "the tail has no gaps"
        self._batches.append(batch)
        self._bytes += len(batch.records_json)
        self.end = batch.end_offset
        while self._bytes > TAIL_BYTES_MAX and len(self._batches) > 1:
            oldest = self._batches.popleft()
            self._bytes -= len(oldest.records_json)
            self.start = oldest.end_offset
            self._start_nonce = oldest.nonce
        grown, self._grown = self._grown, asyncio.Event()
        grown.set()

    def standing(
        self, offset: MetadataOffset, nonce: str | None, term_id: str | None = None
    ) -> Standing:
        """Compare a broker's position in the metadata log with this log. The broker has applied
        `offset` records; the last of them came from the batch with this `nonce`, in the controller
        term `term_id`. With `nonce` None, every offset from `start` to `end` counts as within."""
        if offset > self.end:
            return Standing.AHEAD
        if offset < self.start:
            return _BY_TERM[ancestry(self.terms, offset, term_id)]
        if nonce is None or self._nonce_at(offset) == nonce:
            return Standing.WITHIN
        return Standing.DIFFERENT

    def read(self, offset: MetadataOffset) -> tuple[MetadataBatchCopy, ...]:
        """Return the batches that begin at `offset` or later, in order: as many as have
        `UPDATE_BYTES_MAX` bytes together, but at least one. Return () if `offset` is the end.
        `offset` must not be outside `start` and `end`."""
        assert self.start <= offset <= self.end
        found: deque[MetadataBatchCopy] = deque()
        for batch in reversed(self._batches):
            if batch.base_offset < offset:
                break
            found.appendleft(batch)
        size = 0
        chosen: list[MetadataBatchCopy] = []
        for batch in found:
            size += len(batch.records_json)
            if chosen and size > UPDATE_BYTES_MAX:
                break
            chosen.append(batch)
        return tuple(chosen)

    async def wait_beyond(self, offset: MetadataOffset, timeout_ms: int) -> None:
        """Wait until the log has a record at `offset`, at most `timeout_ms` milliseconds; return in
        either case."""
        if self.end > offset:
            return
        await set_within(self._grown, timeout_ms / 1000)

    def _nonce_at(self, offset: MetadataOffset) -> str | None:
        if offset == self.start:
            return self._start_nonce
        for batch in reversed(self._batches):
            end = batch.end_offset
            if end == offset:
                return batch.nonce
            if end < offset:
                break
        return None


WAIT_MS_MAX = 10_000


class Committed(Protocol):
    """The part of a controller that a metadata stream reads."""

    @property
    def image(self) -> ClusterImage: ...

    @property
    def tail(self) -> MetadataTail: ...


async def update_for(fetch: FetchMetadata, log: Committed) -> MetadataUpdate | Refused:
    tail = log.tail
    standing = tail.standing(fetch.offset, fetch.nonce, fetch.term_id)
    if standing in (Standing.AHEAD, Standing.DIFFERENT):
        return refused(
            Reason.MetadataRegressed,
            f"Broker {fetch.broker_id} has metadata up to offset {fetch.offset} that is not in "
            f"the metadata log, which ends at {tail.end}. The controller finds out which of the "
            "two is right, and sends the broker no metadata until then.",
        )
    if standing is Standing.FORGOTTEN:
        return refused(
            Reason.MetadataRegressed,
            f"Broker {fetch.broker_id} has metadata up to offset {fetch.offset} from a controller "
            "epoch that the metadata log no longer knows, so the controller cannot check it. If "
            "etcd was restored from a backup, leave the broker as it is, because its copy may be "
            "the newer one, and see docs/recovery.md. Otherwise stop the broker and delete the "
            "directory log/__cluster_metadata from its volume: the controller sends the metadata "
            "again.",
        )
    if standing is Standing.TOO_OLD:
        return await _snapshot_update(log.image, tail)
    await tail.wait_beyond(fetch.offset, min(fetch.wait_ms_max, WAIT_MS_MAX))
    if fetch.offset < tail.start:
        return await _snapshot_update(log.image, tail)
    return MetadataUpdate(batches=tail.read(fetch.offset), end_offset=tail.end)


async def _snapshot_update(image: ClusterImage, tail: MetadataTail) -> MetadataUpdate:
    """Return an update with the compressed image, for a broker that needs batches which are no
    longer kept. The stream continues after it."""
    end, nonce = tail.end, tail.end_nonce
    assert end == image.next_offset
    compressed = await asyncio.to_thread(_compressed, image)
    return MetadataUpdate(
        snapshot=compressed, snapshot_end=end, snapshot_nonce=nonce, end_offset=end
    )


def _compressed(image: ClusterImage) -> bytes:
    return zlib.compress(encode_image(image), 3)
