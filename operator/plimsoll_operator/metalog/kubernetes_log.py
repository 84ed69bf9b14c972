"""The metadata log on the Kubernetes API: a ring of batches, and snapshots.

Combines three parts: `ring` commits batches, `log_integrity` decides which stored batches form the
log, and `kube_snapshots` stores the image of batches that the ring no longer holds. This module
decides which slots may be reused: those of batches that a snapshot with a committed `SnapshotTaken`
covers. Called by the controller. The log is safe without any lock, Lease or clock.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from uuid import UUID

from plimsoll_core.cluster.records import SnapshotTaken
from plimsoll_operator.kube.kube_api import Transport
from plimsoll_operator.metalog import codec, kube_objects, log_integrity
from plimsoll_operator.metalog.interface import (
    NOT_OPEN,
    AppendConflict,
    AppendRefused,
    Batch,
    LogCorrupt,
    LogRegressed,
    LogUnavailable,
    LogUsage,
    MetadataLogError,
    OpenedLog,
    RestoredHistory,
    SnapshotEnd,
    SnapshotRequired,
    UnknownRecord,
)
from plimsoll_operator.metalog.kube_objects import Api, ObjectReader, Place, TransportApi
from plimsoll_operator.metalog.kube_snapshots import Index, SnapshotDraft, SnapshotStore
from plimsoll_operator.metalog.ring import SLOTS_AT_FIRST, Ring

logger = logging.getLogger("plimsoll.metalog")

READS_MAX = 20
KEEP_BYTES_MAX = 16 * 1024
"""Size in bytes above which a slot is emptied as soon as a snapshot covers its batch. Smaller slots
keep their content until they are reused."""

SLOTS_AT_ONCE_LATER = 4
MAKES_MAX = 30
"""Number of consecutive failures, with pauses between them, after which this process stops creating
slots ahead of use. Reaching it takes about half a minute."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RingOptions:
    """Options of the ring. `slots`: the number of slots, which is part of a log's format and never
    changes; the others may differ from one process to the next. `attempt_timeout_ms`: timeout of
    one small write; `backoff_ms`: first pause before a request is repeated; `poll_ms`: interval in
    which `watch` reads."""

    slots: int = 1024
    attempt_timeout_ms: int = 2000
    backoff_ms: int = 50
    poll_ms: int = 500


DEFAULTS = RingOptions()


class RingLog:
    """`metalog.interface.MetadataLog` in a ring of MetadataBatch objects, reached through any
    `Api`. Logs with the same `bulk` share a bound on requests that are not urgent; without one,
    the log has its own."""

    def __init__(
        self,
        api: Api,
        place: Place,
        options: RingOptions = DEFAULTS,
        bulk: asyncio.Semaphore | None = None,
    ) -> None:
        self._api = api
        self._options = options
        self._reader = ObjectReader(
            api=api,
            place=place,
            backoff_ms=options.backoff_ms,
            bulk=bulk or asyncio.Semaphore(kube_objects.AT_ONCE),
        )
        self._snapshots = SnapshotStore(self._reader)
        self._ring = Ring(self._reader, options.slots)
        self._follower: log_integrity.LogFollower | None = None
        self._unresolved = False
        self._turn = asyncio.Lock()
        self._making: asyncio.Task[None] | None = None
        self._covered_sequence = -1
        self._covered_by: str | None = None
        self._history = log_integrity.History()
        self._weight = codec.Weight()

    # --- reading --------------------------------------------------------------------------------

    async def open(self) -> OpenedLog:
        self._follower = None
        async with self._turn:
            await self._stop_making()
            opened, follower, view = await self._read(self._ring)
            await self._make(self._ring, opened.tip.next_sequence)
            self._cover(view.covered)
            self._history.rebuild(opened.snapshot, opened.batches)
            self._weight = codec.Weight(
                batch_bytes=sum(len(batch.records_json) for batch in opened.batches),
                snapshot_bytes=view.snapshot_bytes,
            )
            self._unresolved = False
            self._follower = follower
            return opened

    async def _make(self, ring: Ring, next_sequence: int) -> None:
        """Create missing slots for the batches from `next_sequence` on: if few are ready, the first
        `SLOTS_AT_FIRST` before returning; the rest in a task that this starts. Raise `LogRegressed`
        if the slot of `next_sequence` was deleted."""
        missing = ring.missing(next_sequence)
        at_once = SLOTS_AT_FIRST if ring.runs_short(next_sequence) else 0
        await self._reader.in_parallel(missing[:at_once], ring.make)
        if later := missing[at_once:]:
            self._making = asyncio.create_task(_make_all(self._reader, ring, later))

    def _make_ahead(self, next_sequence: int) -> None:
        """If few slots are ready after `next_sequence`, start a task that creates more, so that an
        append rarely has to create its own slot. Do nothing while such a task runs."""
        if self._making is not None and not self._making.done():
            return
        if later := self._ring.runs_short(next_sequence):
            self._making = asyncio.create_task(_make_all(self._reader, self._ring, later))

    async def _stop_making(self) -> None:
        if self._making is not None:
            self._making.cancel()
            await asyncio.wait([self._making])
            if not self._making.cancelled():
                self._making.result()
            self._making = None

    async def read(self) -> OpenedLog:
        opened, _, _ = await self._read(Ring(self._reader, self._options.slots))
        return opened

    async def _read(self, ring: Ring) -> _Read:
        """Return the log as stored, a follower at its end, and the snapshot that covers its oldest
        slots. Of a ring that this process knows, read only what was added, if that will do: many
        take-overs in a row then cost a slow API server little.

        Snapshots are read before batches. A snapshot that is released in between leaves a gap, and
        the read is repeated. In the other order a newer snapshot could hide batches not yet read.
        Raise `LogRegressed` if the gap does not come from a concurrent write, `LogUnavailable`
        after `READS_MAX` reads.
        """
        if (added := await self._read_added(ring)) is not None:
            return added
        why: Exception | None = None
        seen = -1
        for attempt in range(READS_MAX):
            if attempt:
                await kube_objects.pause(self._options.backoff_ms, attempt)
            try:
                indexes = await self._snapshots.indexes()
                return await self._opened(indexes, await ring.load())
            except kube_objects.Expired as error:
                why = error
            except log_integrity.Gap as error:
                why = error
                if ring.newest_version == seen:
                    # No write happened between two failed reads: it is no race.
                    raise LogRegressed(
                        "the metadata log is incomplete, and no controller can use it until it "
                        f"is restored: {error}"
                    ) from error
                seen = ring.newest_version
        raise LogUnavailable(
            "the operator could not read the metadata log, because the log changed during each "
            f"of {READS_MAX} attempts; it tries again: {why}"
        )

    async def _read_added(self, ring: Ring) -> _Read | None:
        """Return the log as `_read` does, after reading only what other writers added. Return None
        if the whole ring must be read, which alone can tell that the log is damaged."""
        if not ring.known:
            return None
        indexes = await self._snapshots.indexes()
        try:
            found = await ring.read_on()
            if found is None:
                return None
            read = await self._opened(indexes, found)
        except (log_integrity.Gap, LogRegressed, LogCorrupt, UnknownRecord):
            return None
        return None if ring.runs_short(read[0].tip.next_sequence) else read

    async def _opened(
        self, indexes: Sequence[Index], found: Mapping[int, Batch | log_integrity.Emptied]
    ) -> _Read:
        index, (opened, follower) = await self._assemble(indexes, found)
        covered = await self._covered(found, opened, index, indexes)
        size = index.spec.stored_size if index else 0
        return opened, follower, _View(covered=covered, snapshot_bytes=size)

    async def _assemble(
        self, indexes: Sequence[Index], found: Mapping[int, Batch | log_integrity.Emptied]
    ) -> tuple[Index | None, tuple[OpenedLog, log_integrity.LogFollower]]:
        for index in indexes:
            snapshot = await self._snapshots.load(index)
            if snapshot is None:
                continue
            try:
                return index, log_integrity.assemble([snapshot], found)
            except log_integrity.Gap:
                continue
        return None, log_integrity.assemble([], found)

    async def _covered(
        self,
        found: Mapping[int, Batch | log_integrity.Emptied],
        opened: OpenedLog,
        first: Index | None,
        indexes: Sequence[Index],
    ) -> Index | None:
        """Return the index of the newest snapshot that a committed `SnapshotTaken` names, or None
        if there is none. That record is always in the ring: its slot is reused only under a newer
        snapshot. A restored history is covered by its own snapshot, the index `first`: what is
        below it belongs to another history. Raise `Gap` if the snapshot does not exist."""
        below = opened.snapshot.last_sequence if opened.restored and opened.snapshot else -1
        for sequence in sorted(found, reverse=True):
            batch = found[sequence]
            if sequence <= below:
                return first
            if sequence >= opened.tip.next_sequence or not isinstance(batch, Batch):
                continue
            for taken in reversed(codec.snapshots_taken(batch)):
                known = (one for one in indexes if one.name == taken.name)
                index = next(known, None) or await self._snapshots.index(taken.name)
                if index is None:
                    raise log_integrity.Gap(
                        f"MetadataSnapshot {taken.name} does not exist, although the metadata "
                        "log needs it for its older records"
                    )
                return index
        return None

    async def watch(self) -> AsyncIterator[OpenedLog | Batch]:
        while True:
            ring = Ring(self._reader, self._options.slots)
            try:
                opened, follower, _ = await self._read(ring)
            except LogUnavailable:
                await asyncio.sleep(self._options.poll_ms / 1000)
                continue
            yield opened
            async for batch in self._follow(ring, follower):
                yield batch

    async def _follow(
        self, ring: Ring, follower: log_integrity.LogFollower
    ) -> AsyncIterator[Batch]:
        """Yield each batch that is committed after the end of `follower`; look every `poll_ms`,
        also while the API server is unreachable. Return once the next batch's slot was overwritten
        by a later one or deleted, so that the whole log must be read again."""
        while True:
            try:
                content = await self._peek(ring, follower.tip.next_sequence)
                if isinstance(content, Batch):
                    for batch in follower.offer(content):
                        yield batch
                    continue
            except log_integrity.Gap:
                return
            except LogUnavailable:
                content = None
            await asyncio.sleep(self._options.poll_ms / 1000)

    async def _peek(self, ring: Ring, sequence: int) -> Batch | None:
        try:
            content = await ring.peek(sequence)
        except LogCorrupt:
            # Before the first append, or deleted by hand: a full read tells which.
            raise log_integrity.Gap(
                f"the API server returned no MetadataBatch object with batch {sequence} of the "
                "metadata log, so the operator reads the whole log again"
            ) from None
        if content is None or content.sequence < sequence:
            return None
        if content.sequence > sequence or not isinstance(content, Batch):
            raise log_integrity.Gap(
                f"batch {sequence} of the metadata log was overwritten before the operator read "
                "it, so the operator reads the whole log again"
            )
        return content

    def nonce_at(self, applied_offset: int) -> str | None:
        return self._history.nonce_at(applied_offset)

    # --- writing --------------------------------------------------------------------------------

    async def append(self, batch: Batch) -> None:
        async with self._turn:
            follower = self._held()
            assert follower.tip.next_sequence == batch.sequence, (follower.tip, batch.sequence)
            self._require_slot(batch, follower)
            # A cancelled append may still happen: nothing else is sent until the log is read again.
            self._unresolved = True
            try:
                size = await self._ring.put(batch, self._options.backoff_ms)
            except AppendRefused:
                self._unresolved = False
                raise
            except (LogCorrupt, LogRegressed):
                self._ring = Ring(self._reader, self._options.slots)
                raise
            self._unresolved = False
            for committed in follower.offer(batch):
                self._history.add(committed)
            self._weight.batch_bytes += size
            self._make_ahead(follower.tip.next_sequence)

    def _held(self) -> log_integrity.LogFollower:
        if self._follower is None or self._unresolved:
            raise AppendConflict(NOT_OPEN)
        return self._follower

    def _require_slot(self, batch: Batch, follower: log_integrity.LogFollower) -> None:
        """Raise `SnapshotRequired` if no slot is free for the batch. The last eighth of the ring is
        reserved for new terms, and the very last slot for `SnapshotTaken`, so that terms that never
        reach a snapshot cannot fill the ring."""
        free = self._covered_sequence + self._options.slots + 1 - batch.sequence
        needed = self._options.slots // 8 + 1
        if codec.snapshots_taken(batch):
            needed = 1
        elif batch.controller_epoch > follower.tip.controller_epoch:
            needed = 2
        if free < needed:
            raise SnapshotRequired(
                f"all {self._options.slots} MetadataBatch objects of the metadata log are in use, "
                "because no snapshot covers their batches; the controller writes a snapshot first"
            )

    @property
    def usage(self) -> LogUsage | None:
        if self._follower is None:
            return None
        return LogUsage(
            slots_used=self._follower.tip.next_sequence - 1 - self._covered_sequence,
            slots=self._options.slots,
            batch_bytes=self._weight.batch_bytes,
            snapshot_bytes=self._weight.snapshot_bytes,
        )

    def needs_snapshot(self) -> bool:
        if self._follower is None:
            return False
        used = self._follower.tip.next_sequence - 1 - self._covered_sequence
        return used > self._options.slots // 2 or self._weight.due()

    async def write_snapshot(
        self, image_bytes: bytes, end_offset: int, nonce: str, controller_epoch: int
    ) -> str:
        draft = SnapshotDraft(
            end_offset=end_offset,
            last_sequence=self._history.sequence_of(end_offset, nonce),
            nonce=nonce,
            controller_epoch=controller_epoch,
        )
        name, _ = await self._snapshots.write(image_bytes, draft)
        return name

    async def release(self, taken: SnapshotTaken) -> None:
        self._held()
        index = await self._snapshots.index(taken.name)
        if index is None or await self._snapshots.load(index) is None:
            raise LogCorrupt(
                f"the operator wrote MetadataSnapshot {taken.name}, but the API server returns "
                "only a part of it, so the operator keeps the batches that the snapshot covers"
            )
        if index.spec.last_sequence >= self._covered_sequence:
            self._cover(index)
        self._weight = codec.Weight(snapshot_bytes=index.spec.stored_size)
        self._history.forget_below(taken.end_offset)
        await self._snapshots.delete_older(index)
        for number in self._ring.large(self._covered_sequence, KEEP_BYTES_MAX):
            async with self._turn:
                self._held()
                await self._ring.empty(number, self._covered_sequence)

    def _cover(self, index: Index | None) -> None:
        """Record that the snapshot `index` covers the batches up to its last sequence, so that
        their slots may be reused. If `index` is None, no batch is covered."""
        self._covered_sequence = -1 if index is None else index.spec.last_sequence
        self._covered_by = None if index is None else index.name

    async def remains(self) -> tuple[Batch, ...]:
        found = await Ring(self._reader, self._options.slots).load()
        stored = (found[sequence] for sequence in sorted(found))
        return tuple(batch for batch in stored if isinstance(batch, Batch))

    async def newest_snapshot(self) -> SnapshotEnd | None:
        for index in await self._snapshots.indexes():
            return SnapshotEnd(end_offset=index.spec.end_offset, nonce=index.spec.nonce)
        return None

    async def restore(self, history: RestoredHistory) -> None:
        """Write a snapshot of `history` under a sequence that nothing has, and then that sequence
        with the history's end into its slot. A snapshot without this marker is of no log: the ring
        cannot be opened then, and the restore is begun again."""
        self._follower = None
        async with self._turn:
            await self._stop_making()
            self._ring = ring = Ring(self._reader, self._options.slots)
            found = await ring.load()
            indexes = await self._snapshots.indexes()
            used = [*found, *(index.spec.last_sequence for index in indexes)]
            marker = log_integrity.Emptied(
                sequence=max(used, default=-1) + 1,
                end_offset=history.end_offset,
                nonce=history.nonce,
            )
            draft = SnapshotDraft(
                end_offset=history.end_offset,
                last_sequence=marker.sequence,
                nonce=history.nonce,
                controller_epoch=history.controller_epoch,
            )
            await self._snapshots.write(history.image_bytes, draft)
            await ring.mark(marker, self._options.backoff_ms)

    async def lost(self) -> tuple[str, ...]:
        self._held()
        names = tuple(self._ring.name(number) for number in await self._ring.lost())
        if self._covered_by is not None:
            index = await self._snapshots.index(self._covered_by)
            if index is None or await self._snapshots.load(index) is None:
                names += (self._covered_by,)
        return names

    async def mend(self) -> None:
        for number in await self._ring.lost():
            async with self._turn:
                self._held()
                await self._ring.make_again(number)

    async def close(self) -> None:
        self._follower = None
        await self._stop_making()
        await self._api.close()


class KubernetesLog(RingLog):
    """A `RingLog` over a transport to the API server. `close` closes the transport too."""

    def __init__(
        self,
        transport: Transport,
        namespace: str,
        cluster_name: str,
        cluster_id: UUID,
        *,
        options: RingOptions = DEFAULTS,
        bulk: asyncio.Semaphore | None = None,
    ) -> None:
        place = Place(namespace=namespace, cluster_name=cluster_name, cluster_id=cluster_id)
        api = TransportApi(transport, options.attempt_timeout_ms)
        super().__init__(api, place, options, bulk)


async def _make_all(reader: ObjectReader, ring: Ring, numbers: Sequence[int]) -> None:
    """Create slots in order, since a hole would look like a deleted slot. A failure is retried with
    pauses, up to `MAKES_MAX` times in a row. After that, each append creates the slot that it
    needs."""
    left, in_vain = list(numbers), 0
    while left:
        first = left[0]
        try:
            if in_vain:  # alone: make none behind it while it is refused
                await ring.make(first)
            await reader.in_parallel(left[1:] if in_vain else left, ring.make, SLOTS_AT_ONCE_LATER)
            return
        except MetadataLogError as error:
            left = ring.unmade(left)
            in_vain = in_vain + 1 if left[:1] == [first] else 1
            if in_vain == MAKES_MAX:
                logger.warning(
                    "the operator gave up creating %d MetadataBatch objects ahead of their use, "
                    "so each append to the metadata log creates its own, which takes longer; "
                    "check quotas and webhooks: %s",
                    *(len(left), error),
                )
                return
            if in_vain == 1:
                logger.warning(
                    "the operator cannot create %d MetadataBatch objects ahead of their use and "
                    "tries again; the metadata log works without them: %s",
                    *(len(left), error),
                )
        await kube_objects.pause(reader.backoff_ms, in_vain)


@dataclass(frozen=True, slots=True, kw_only=True)
class _View:
    """Part of the result of reading the ring: the snapshot that covers its oldest batches, and the
    stored size of the snapshot that the log starts from."""

    covered: Index | None
    snapshot_bytes: int


_Read = tuple[OpenedLog, log_integrity.LogFollower, _View]
