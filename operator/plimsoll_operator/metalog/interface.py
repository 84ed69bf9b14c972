"""The metadata log's interface and its guarantees, for any storage.

A log is a chain of batches.  Each batch holds records, follows its predecessor by sequence and by
the predecessor's nonce, and is committed by a compare-and-set that only one writer can win.  The
controller is the only caller; the shells are `directory` and `kubernetes_log`.

The life of a writer:

1. `opened = await log.open()`; replay `opened.snapshot`, then `opened.batches` in order.
2. Append the term's first record alone, in a batch of a higher controller epoch.  `AppendConflict`
   here means another controller wrote meanwhile: open again and read on (bounded by the caller).
3. Append; a batch is committed when `append` returns.  At most one append is in flight.
   `AppendConflict` now means deposed.  An append that was cancelled has an unknown outcome: the
   log refuses everything until it is opened again.
4. When `needs_snapshot()` (ask also right after step 2): `write_snapshot` of a committed image,
   append `SnapshotTaken`, and only after that commit `release`.

`SnapshotRequired` in step 2 means that earlier terms filled the log without a snapshot: do step 4
with what `open` returned, `SnapshotTaken` alone in a batch of the new epoch, then step 2 again.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

from plimsoll_core.cluster.records import SnapshotTaken


class MetadataLogError(Exception):
    """Error of a log that could not do as requested; its text is a sentence for the user."""


class AppendConflict(MetadataLogError):
    """Certain: the batch is not committed, and another writer holds the log."""


class AppendRefused(MetadataLogError):
    """Certain and final for this batch alone (too large, not permitted); others may follow."""


class SnapshotRequired(MetadataLogError):
    """Certain: nothing was sent.  Every place in the log is taken until a snapshot is released."""


class LogRegressed(MetadataLogError):
    """The log lost committed batches: its storage went back in time. No more batch may commit."""


class LogCorrupt(MetadataLogError):
    """The log holds content that no writer wrote. No more batch may commit."""


class LogOfAnother(LogCorrupt):
    """The log here belongs to another cluster, and no log is created in its place."""


class UnknownRecord(MetadataLogError):
    """The log holds records of a newer version; this version must not lead."""


class LogUnavailable(MetadataLogError):
    """The log cannot be read or written at the moment; opening may be retried."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """Records that commit together.

    Made by `codec.pack`; `checksum` covers all other fields but `written_ms`. That is the writer's
    wall clock, 0 if not recorded; it is shown to people, and no decision depends on it.

    A decision too large for one batch is a group: its batches carry the same `group`, and its
    records count only once the batch with `last_of_group` is present.
    """

    sequence: int
    base_offset: int
    controller_epoch: int
    nonce: str
    previous_nonce: str | None
    group: str | None
    last_of_group: bool
    records_json: bytes
    record_count: int
    checksum: str
    written_ms: int = field(default=0, compare=False)

    @property
    def end_offset(self) -> int:
        return self.base_offset + self.record_count


@dataclass(frozen=True, slots=True, kw_only=True)
class Tip:
    """Position of the next batch, after the batch with `nonce`."""

    next_sequence: int
    next_offset: int
    nonce: str | None
    controller_epoch: int

    def after(self, batch: Batch) -> Tip:
        assert batch.sequence == self.next_sequence, (batch.sequence, self)
        return Tip(
            next_sequence=batch.sequence + 1,
            next_offset=batch.end_offset,
            nonce=batch.nonce,
            controller_epoch=batch.controller_epoch,
        )


EMPTY_TIP = Tip(next_sequence=0, next_offset=0, nonce=None, controller_epoch=0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """The image after `end_offset` records; the last of them came in the batch with `nonce`."""

    name: str
    end_offset: int
    last_sequence: int
    nonce: str
    controller_epoch: int
    image_bytes: bytes

    @property
    def tip(self) -> Tip:
        return Tip(
            next_sequence=self.last_sequence + 1,
            next_offset=self.end_offset,
            nonce=self.nonce,
            controller_epoch=self.controller_epoch,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenedLog:
    """A whole log, verified.

    `batches` are those to apply after the snapshot, in order: unfinished and voided groups are
    not among them.  Both still have their sequence numbers, so build the next batch from `tip`.
    """

    snapshot: Snapshot | None
    batches: tuple[Batch, ...]
    tip: Tip


class MetadataLog(Protocol):
    async def open(self) -> OpenedLog:
        """Read everything and become able to append. May be called again at any time."""

    async def read(self) -> OpenedLog:
        """Read everything and change nothing; for a standby."""

    async def append(self, batch: Batch) -> None:
        """Commit the batch before returning. Unknown outcomes are resolved inside, for as long as
        it takes; cancel it to give up."""

    async def write_snapshot(
        self, image_bytes: bytes, end_offset: int, nonce: str, controller_epoch: int
    ) -> str:
        """Store the image committed at `end_offset`, the end of the batch with `nonce`. Return the
        snapshot's name for `SnapshotTaken`."""

    async def release(self, taken: SnapshotTaken) -> None:
        """Free what the committed snapshot `taken` covers. Best effort; safe to repeat."""

    async def lost(self) -> tuple[str, ...]:
        """Return the names of the log's objects that were deleted; the writer still knows their
        content. No other process can open the log until a snapshot is released."""

    async def mend(self) -> None:
        """Recreate the lost objects, after a `release`."""

    def needs_snapshot(self) -> bool:
        """Return True if the batches since the last snapshot outweigh a new one."""

    def nonce_at(self, applied_offset: int) -> str | None:
        """Return the nonce of the committed batch that holds record `applied_offset - 1`, or None
        if the log does not hold it."""

    def watch(self) -> AsyncIterator[OpenedLog | Batch]:
        """Follow without writing: an `OpenedLog` first (and again after a gap), then each batch."""

    async def close(self) -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class LogUsage:
    """The part of a log not yet covered by a snapshot, and its limit."""

    slots_used: int
    slots: int
    batch_bytes: int
    snapshot_bytes: int
    """Stored size of the last snapshot."""


@runtime_checkable
class LimitedLog(Protocol):
    """A log with a limited number of places."""

    @property
    def usage(self) -> LogUsage | None:
        """Return None if the log is not open for writing."""
