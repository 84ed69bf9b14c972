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
    """Base of a metadata log's errors. Its text is a sentence for the user."""


NOT_OPEN = (
    "a write to the metadata log failed, or another operator writes to it: the log must be "
    "reopened, and the controller does so before it writes more"
)
"""The message of `AppendConflict` if the log must be opened again first."""


class AppendConflict(MetadataLogError):
    """Raised if the batch is certainly not committed, because another writer has written to the
    log, or because the log must be opened again first."""


class AppendRefused(MetadataLogError):
    """Raised if this batch is certainly not committed and never can be (too large, not permitted).
    Other batches may be appended."""


class SnapshotRequired(MetadataLogError):
    """Raised without sending anything if the log has no free slot for the batch: each holds a batch
    that no released snapshot covers, or is reserved for a new term or a `SnapshotTaken`."""


class LogRegressed(MetadataLogError):
    """Raised if the log lacks batches that were committed, because its storage went back in time.
    No batch may be committed any more."""


class LogCorrupt(MetadataLogError):
    """Raised if the log holds content that no writer wrote. No batch may be committed any more."""


class LogOfAnother(LogCorrupt):
    """Raised if the log stored here belongs to another cluster. No log is created in its place."""


class UnknownRecord(MetadataLogError):
    """Raised if the log holds records of a newer release. This release must not lead."""


class LogUnavailable(MetadataLogError):
    """Raised if the log cannot be read or written at the moment. Opening it may be retried."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """Records that are committed together.

    `sequence` numbers the batches, `base_offset` is the metadata offset of the first record.
    `nonce` identifies the batch, `previous_nonce` its predecessor. `codec.pack` makes batches;
    `checksum` covers all other fields but `written_ms`. That is the writer's wall clock, 0 if not
    recorded; it is shown to people, and no decision depends on it.

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
    """The end of a log: sequence and offset of the next batch, and nonce and controller epoch of
    the last one. For an empty log `nonce` is None and the numbers are 0."""

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
    """A stored image of the cluster after `end_offset` records, that is, of all offsets below it.
    The last of these records is in the batch with `nonce` and sequence `last_sequence`.
    `image_bytes` is not compressed."""

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
    """Content of a whole log, verified.

    `batches` are those to apply after the snapshot (after an empty image if `snapshot` is None), in
    order. Unfinished and voided groups are left out, but have used sequence numbers, so build the
    next batch from `tip`.
    """

    snapshot: Snapshot | None
    batches: tuple[Batch, ...]
    tip: Tip
    restored: bool = False
    """True if the snapshot is a history that `MetadataLog.restore` put in the place of another."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RestoredHistory:
    """A history to put in the place of a log that lost records: the image after `end_offset`
    records, the last of them in the batch with `nonce`. `controller_epoch`: above it every later
    term begins; it is at least that of the image."""

    image_bytes: bytes
    end_offset: int
    nonce: str
    controller_epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotEnd:
    """The position at the end of a stored snapshot: after `end_offset` records, the last of them in
    the batch with `nonce`."""

    end_offset: int
    nonce: str


class RestorableLog(Protocol):
    """The part of a metadata log that its restoration from brokers' copies uses."""

    async def remains(self) -> tuple[Batch, ...]:
        """Return all batches that are still stored, by sequence, of a log that cannot be opened.
        They need not follow each other. Raises `LogCorrupt` if one cannot be read, and
        `LogUnavailable`."""

    async def newest_snapshot(self) -> SnapshotEnd | None:
        """Return the end of the newest snapshot that is stored, of a log that cannot be opened.
        Return None if there is none. A part of it may be missing. Raises the errors of
        `remains`."""

    async def restore(self, history: RestoredHistory) -> None:
        """Replace the content of the log by `history`, whatever state it is in. The log must then
        be opened. One compare-and-set is the commit: before it the log is what it was, or cannot be
        opened; after it, a writer of the replaced log gets `AppendConflict`. Safe to repeat. Raises
        `LogUnavailable` if another writer was faster or the storage refuses, and `LogCorrupt`."""


class MetadataLog(RestorableLog, Protocol):
    async def open(self) -> OpenedLog:
        """Read the whole log, and allow appends after what was read. May be called again at any
        time. Raise `LogUnavailable` if it cannot be read now, `LogRegressed` or `LogCorrupt` if it
        must not be used."""

    async def read(self) -> OpenedLog:
        """Read the whole log and change nothing; for a standby. Raises the errors of `open`."""

    async def append(self, batch: Batch) -> None:
        """Commit the batch before returning. A write with an unknown outcome is repeated until the
        outcome is certain, for as long as that takes; cancel it to give up. Raises
        `AppendConflict`, `AppendRefused`, `SnapshotRequired`, `LogRegressed` or `LogCorrupt`."""

    async def write_snapshot(
        self, image_bytes: bytes, end_offset: int, nonce: str, controller_epoch: int
    ) -> str:
        """Store the committed image after `end_offset` records, the end of the batch with `nonce`.
        Return the snapshot's name, which `SnapshotTaken` states. Raise `LogUnavailable` if it
        cannot be stored."""

    async def release(self, taken: SnapshotTaken) -> None:
        """Free the places of the batches that the snapshot named by the committed record `taken`
        covers, and delete older snapshots. Safe to repeat after a failure. Raise `LogCorrupt` if
        the snapshot is incomplete, `AppendConflict` if the log must be opened first."""

    async def lost(self) -> tuple[str, ...]:
        """Return the names of the log's objects that another client deleted or, for a snapshot,
        damaged; usually none. The writer still knows their content. No other process can open the
        log until another snapshot is released."""

    async def mend(self) -> None:
        """Recreate the batches' objects among those that `lost` returns, without their records.
        Call it after a `release`, since only the released snapshot keeps these records."""

    def needs_snapshot(self) -> bool:
        """Return True if another snapshot is to be written: the batches since the last one exceed 4
        MiB and twice its size, or use more than half of the slots of a limited log."""

    def nonce_at(self, applied_offset: int) -> str | None:
        """Return the nonce of the committed batch that holds the record at offset `applied_offset -
        1`. Return None if the log no longer holds that batch, or ends before the offset."""

    def watch(self) -> AsyncIterator[OpenedLog | Batch]:
        """Yield what other writers commit, without writing: first the whole log (`OpenedLog`), then
        each new batch, and the whole log again after batches were missed. Does not end by
        itself."""

    async def close(self) -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class LogUsage:
    """How full a log with a limited number of slots is. `slots_used`: number of batches that no
    released snapshot covers; `slots`: number of all slots; `batch_bytes`: size in bytes of the
    batches since the last released snapshot."""

    slots_used: int
    slots: int
    batch_bytes: int
    snapshot_bytes: int
    """Stored size of the last snapshot in bytes."""


@runtime_checkable
class LimitedLog(Protocol):
    """A metadata log with a limited number of places for batches."""

    @property
    def usage(self) -> LogUsage | None:
        """Return how full the log is, or None if it is not open for writing."""
