"""Group commit of the controller: queues decisions, appends their records to the metadata log, and
answers once they are committed.

`controller_term` queues decisions, which are made on the speculative image (the committed image
with all queued records applied). An answer, refusals and heartbeat flags included, is sent only
when the last record queued at its decision is committed. `Committer` appends what is queued through
the `Journal`, one append in flight and never re-ordered, and runs for the length of a term. On a
certain failure the speculative part is dropped as a whole, and every waiting request is answered
NotController; any other failure ends the term. This module decides nothing. Source:
ARCHITECTURE.md, "The metadata log lives on the Kubernetes API".
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import groupby
from uuid import UUID

from plimsoll_core.cluster.image import append, apply_all
from plimsoll_core.cluster.image_encoding import decode_image
from plimsoll_core.cluster.model import ClusterImage
from plimsoll_core.cluster.record_versions import MetadataTooNew
from plimsoll_core.cluster.records import ControllerChanged, Record
from plimsoll_core.errors import Reason
from plimsoll_core.ids import ControllerEpoch, MetadataOffset
from plimsoll_core.messages.metadata_stream import MetadataBatchCopy
from plimsoll_core.messages.requests import Answer, Done, Refused
from plimsoll_operator.controller.controller_stats import Commit, ControllerStats
from plimsoll_operator.controller.decision_clock import Clock
from plimsoll_operator.controller.metadata_tail import MetadataTail
from plimsoll_operator.controller.refusals import refused
from plimsoll_operator.metalog.codec import (
    BATCH_BYTES_MAX,
    decode_records,
    encode_records,
    pack,
    record_too_large,
)
from plimsoll_operator.metalog.interface import (
    EMPTY_TIP,
    AppendRefused,
    Batch,
    LogCorrupt,
    LogRegressed,
    MetadataLog,
    MetadataLogError,
    OpenedLog,
    Snapshot,
    SnapshotRequired,
    Tip,
    UnknownRecord,
)

logger = logging.getLogger("plimsoll.controller")

DECISION_BYTES_MAX = 128 * BATCH_BYTES_MAX
"""Maximum size of one decision's records as JSON, in bytes. A larger decision could fill the ring
of the metadata log before a snapshot frees it, so it is refused before it is queued."""
WAITERS_MAX = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Unit:
    """Records of one decision, which become visible together. `size` is that of their JSON in
    bytes.

    `image` is the image directly after these records: speculative at first, and the committed image
    once they are committed.
    """

    records: tuple[Record, ...]
    size: int
    image: ClusterImage


@dataclass(slots=True)
class _Waiter:
    needs: MetadataOffset
    unit: Unit | None
    answer: Answer
    future: asyncio.Future[Answer]


class CommitQueue:
    """Queue of decisions that are not committed yet, and of the answers that wait for them. Used by
    the controller's event loop only."""

    def __init__(self, committed: ClusterImage) -> None:
        self.committed = committed
        self.speculative = committed
        self._queued: deque[Unit] = deque()
        self._in_flight: list[Unit] = []
        self._waiters: deque[_Waiter] = deque()
        self.bytes_queued = 0
        """Bytes of all decisions that were ever queued."""
        self.wakeup = asyncio.Event()

    @property
    def waiting(self) -> int:
        return len(self._waiters)

    @property
    def queued(self) -> int:
        return len(self._queued) + len(self._in_flight)

    def add(
        self, records: Sequence[Record], answer: Answer, image: ClusterImage | None = None
    ) -> asyncio.Future[Answer]:
        """Apply `records` to the speculative image and queue them as one decision. The future
        returns `answer` once everything queued up to now is committed: at once if all is. It
        returns a refusal if the records are too large or `WAITERS_MAX` answers already wait
        (nothing is queued then), or if the queue is dropped. `image` is the speculative image with
        `records` applied; if None, it is computed."""
        future: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        unit = None
        if len(self._waiters) >= WAITERS_MAX:
            future.set_result(
                refused(
                    Reason.NotController,
                    "The request was not carried out, because the controller is overloaded; retry.",
                )
            )
            return future
        if records:
            after = image or _appended(self.speculative, records)
            assert after.next_offset == self.speculative.next_offset + len(records)
            unit = Unit(records=tuple(records), size=len(encode_records(records)), image=after)
            if too_large := _too_large(unit):
                future.set_result(too_large)
                return future
            self.speculative = after
            self._queued.append(unit)
            self.bytes_queued += unit.size
            self.wakeup.set()
        needs = self.speculative.next_offset
        if needs == self.committed.next_offset:
            future.set_result(answer)
        else:
            self._waiters.append(_Waiter(needs=needs, unit=unit, answer=answer, future=future))
        return future

    def take(self, *, units_max: int | None = None) -> list[Unit]:
        """Move the decisions of the next append from the queue into flight, where they stay until
        `commit` or `drop`, and return them: whole ones that fit one batch together, at most
        `units_max` (None: any number), or a single one that is larger than a batch. Return [] if
        nothing is queued."""
        assert not self._in_flight, "one append is in flight at a time"
        size = 0
        while self._queued and (units_max is None or len(self._in_flight) < units_max):
            unit = self._queued[0]
            if self._in_flight and size + unit.size > BATCH_BYTES_MAX:
                break
            size += unit.size
            self._in_flight.append(self._queued.popleft())
        if not self._queued:
            self.wakeup.clear()
        return list(self._in_flight)

    def commit(self) -> tuple[ClusterImage, ClusterImage, tuple[Record, ...]]:
        """Note that the append in flight is committed, and send the answers that waited for it.
        Return (image before, image after, records)."""
        old = self.committed
        records = tuple(record for unit in self._in_flight for record in unit.records)
        # Units are applied, committed and dropped in one order: the last unit's image covers all.
        self.committed = self._in_flight[-1].image if self._in_flight else old
        assert self.committed.next_offset == old.next_offset + len(records)
        assert self._queued or self.committed is self.speculative
        self._in_flight = []
        while self._waiters and self._waiters[0].needs <= self.committed.next_offset:
            waiter = self._waiters.popleft()
            if not waiter.future.done():
                waiter.future.set_result(waiter.answer)
        return old, self.committed, records

    def drop(self, why: str, *, culprit: Refused | None = None) -> tuple[Record, ...]:
        """Drop every decision that is queued or in flight, for good, reset the speculative image to
        the committed one, and return the dropped records in order. Waiting requests are answered
        NotController with the text `why`.

        `culprit`: if exactly one decision is in flight, its request gets this answer instead.
        """
        blamed = self._in_flight[0] if culprit and len(self._in_flight) == 1 else None
        units = (*self._in_flight, *self._queued)
        self.speculative = self.committed
        self._in_flight = []
        self._queued.clear()
        self.wakeup.clear()
        waiters, self._waiters = self._waiters, deque()
        for waiter in waiters:
            if waiter.future.done():
                continue
            if culprit is not None and blamed is not None and waiter.unit is blamed:
                waiter.future.set_result(culprit)
            else:
                waiter.future.set_result(refused(Reason.NotController, why))
        return tuple(record for unit in units for record in unit.records)


def _appended(image: ClusterImage, records: Sequence[Record]) -> ClusterImage:
    for record in records:
        image = append(image, record)
    return image


def _too_large(unit: Unit) -> Refused | None:
    if (sentence := record_too_large(unit.records)) is not None:
        return refused(Reason.RecordTooLarge, sentence)
    if unit.size > DECISION_BYTES_MAX:
        text = (
            f"The change needs {unit.size} bytes of metadata, more than the metadata log takes at "
            "once; split it into smaller changes."
        )
        return refused(Reason.RecordTooLarge, text)
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Restored:
    """Result of reading the metadata log: the image at its end, and its newest batches for the
    metadata streams. `epoch`: a controller epoch that the next term's must exceed. `fresh`: True if
    the log was restored from brokers' copies and no term has decided anything since."""

    image: ClusterImage
    tail: MetadataTail
    epoch: int = 0
    fresh: bool = False


class Journal:
    """Appends records to the metadata log and keeps the position of the next batch. The caller
    ensures that one append runs at a time."""

    def __init__(
        self,
        log: MetadataLog,
        cluster_id: UUID,
        now_ms: Callable[[], int] = lambda: 0,
        on_open: Callable[[OpenedLog], None] | None = None,
    ) -> None:
        """Create a journal. `now_ms`: the clock for the times in batches, in milliseconds since
        1970. `on_open`: called with the metadata log's content each time that the log was read."""
        self._on_open = on_open
        self._log = log
        self._now_ms = now_ms
        self.cluster_id = cluster_id
        self._tip: Tip = EMPTY_TIP
        self.group_unfinished = False
        """True if a group of batches was begun and not finished. No further append may follow in
        this term; the next term voids the group."""

    async def open(self) -> Restored:
        """Read the whole metadata log, and return the image at its end with the newest batches. The
        next append follows the last batch that was read. Raises the errors of `MetadataLog.open`
        and `first_image`."""
        opened = await self._log.open()
        restored = replay(opened, self.cluster_id)
        self._tip = opened.tip
        self.group_unfinished = False
        if self._on_open is not None:
            self._on_open(opened)
        return restored

    async def append(
        self, records: Sequence[Record], controller_epoch: ControllerEpoch
    ) -> MetadataBatchCopy:
        """Commit the records in one batch, or in a group of batches if one cannot hold them. Return
        the copy for the brokers' metadata streams. Raises the errors of `MetadataLog.append`."""
        batches = pack(records, self._tip, controller_epoch, _new_nonce, self._now_ms())
        for batch in batches:
            await self._log.append(batch)
            self._tip = self._tip.after(batch)
            self.group_unfinished = not batch.last_of_group
        return merged(batches)


def _new_nonce() -> str:
    return secrets.token_hex(8)


def replay(opened: OpenedLog, cluster_id: UUID) -> Restored:
    """Return the image at the end of the log, and the newest batches, as many as a `MetadataTail`
    keeps. Raises the errors of `first_image`, and `UnknownRecord` if a newer release wrote a
    batch."""
    snapshot, image = opened.snapshot, first_image(opened, cluster_id)
    nonce = snapshot.nonce if snapshot else None
    tail = MetadataTail(start=image.next_offset, nonce=nonce, terms=image.terms)
    fresh = opened.restored
    for whole in wholes(opened.batches):
        for batch in whole:
            records = decode_records(batch)
            fresh = fresh and all(isinstance(record, ControllerChanged) for record in records)
            image = apply_all(image, records)
        tail.append(merged(whole))
    tail.terms = image.terms
    epoch = snapshot.controller_epoch if snapshot else 0
    return Restored(image=image, tail=tail, epoch=epoch, fresh=fresh)


def first_image(opened: OpenedLog, cluster_id: UUID) -> ClusterImage:
    """Return the image before the first batch of the log: that of the log's snapshot, or an empty
    one without a snapshot. Raises `LogCorrupt` if the snapshot belongs to another cluster, and
    `UnknownRecord` if a newer release wrote it."""
    snapshot = opened.snapshot
    image = ClusterImage(cluster_id=cluster_id) if snapshot is None else _image_of(snapshot)
    if image.cluster_id != cluster_id:
        raise LogCorrupt(
            f"the metadata log belongs to cluster {image.cluster_id}, not to cluster {cluster_id}"
        )
    return image


def _image_of(snapshot: Snapshot) -> ClusterImage:
    try:
        return decode_image(snapshot.image_bytes)
    except MetadataTooNew as error:
        raise UnknownRecord(f"metadata snapshot {snapshot.name} cannot be read: {error}") from error


def wholes(batches: Sequence[Batch]) -> list[tuple[Batch, ...]]:
    """Group batches that become visible together: return a tuple of one batch for each single
    batch, and a tuple of all its batches for each group."""
    keyed = groupby(batches, key=lambda batch: batch.group or f"single {batch.sequence}")
    return [tuple(members) for _, members in keyed]


def merged(batches: Sequence[Batch]) -> MetadataBatchCopy:
    """Return a single batch, or all batches of a group, as one batch for the brokers, so that they
    never see half of a group."""
    body = b"[" + b",".join(batch.records_json[1:-1] for batch in batches) + b"]"
    return MetadataBatchCopy(
        base_offset=MetadataOffset(batches[0].base_offset),
        controller_epoch=ControllerEpoch(batches[-1].controller_epoch),
        nonce=batches[-1].nonce,
        records_json=body,
        record_count=sum(batch.record_count for batch in batches),
    )


CAUTIOUS_APPENDS = 64
"""After the metadata log refused an append, this many decisions are committed one by one, so that
only the offending one is refused."""

Subscriber = Callable[[ClusterImage, ClusterImage, tuple[Record, ...]], None]
Dropped = Callable[[tuple[Record, ...]], None]
"""Called with records that were decided but will never be committed, although the term goes on.
Must not block."""


class TermEnded(Exception):
    """Raised if the term cannot go on. The metadata log must be opened again."""


class LogUnusable(Exception):
    """Raised if storage has lost or damaged a part of the metadata log. Waiting does not restore
    it."""


class Committer:
    """Appends the queued decisions of a term to the metadata log, and calls the subscribers after
    each commit. Used by the controller's event loop only."""

    def __init__(
        self, journal: Journal, clock: Clock, stats: ControllerStats, dropped: Dropped
    ) -> None:
        image = ClusterImage(cluster_id=journal.cluster_id)
        self.queue = CommitQueue(image)
        self.tail = MetadataTail(start=image.next_offset, nonce=None)
        self.confirmed_at_ms = 0
        self.subscribers: list[Subscriber] = []
        self._journal = journal
        self._clock = clock
        self._stats = stats
        self._dropped = dropped
        self._cautious = 0

    async def open(self) -> Restored:
        """Read the metadata log, and begin with its image, its newest batches and an empty queue.
        Nothing may be queued yet. Raises `LogUnusable` if the log lost batches or is damaged; other
        errors of `Journal.open` are raised unchanged."""
        try:
            restored = await self._journal.open()
        except (LogRegressed, LogCorrupt) as error:
            raise LogUnusable(
                f"The metadata log cannot be opened: {error}. The operator restores it by itself "
                "from the brokers' copies, so start brokers that are down. Until then the "
                "controller commits no changes; running brokers serve clients."
            ) from error
        self.queue = CommitQueue(restored.image)
        self.tail = restored.tail
        return restored

    async def commit_alone(self, records: tuple[Record, ...]) -> None:
        """Commit one decision before the term's others, the first one in a batch of its own. After
        a failure nothing is queued, and the error is raised: `AppendRefused` if it is too large."""
        answer = self.queue.add(records, Done())
        if answer.done() and isinstance(refusal := answer.result(), Refused):
            raise AppendRefused(refusal.message)
        try:
            await self._append_next()
        except (MetadataLogError, OSError) as error:
            self.queue.drop(
                "The change was not made, because the controller could not take over the cluster. "
                f"The operator tries again by itself; repeat the change after that: {error}"
            )
            raise

    async def commit_before_term(self, record: Record) -> None:
        """Append one record in a batch of the next controller epoch, before the term itself begins.
        The image does not change, so the log must be opened again afterwards. Raises the errors of
        `Journal.append`."""
        epoch = ControllerEpoch(self.queue.speculative.controller_epoch + 1)
        await self._journal.append((record,), epoch)

    async def run_forever(self, log_is_full: asyncio.Event) -> None:
        """Append queued decisions until an error of the log ends the term, and raise that error. If
        the log refuses an append or is full, the term continues: all queued decisions are dropped
        and their requests refused. A full log also sets `log_is_full`."""
        while True:
            await self.queue.wakeup.wait()
            try:
                await self._append_next()
            except AppendRefused as error:
                self._refused(error)
            except SnapshotRequired as error:
                self._dropped(
                    self.queue.drop(
                        "The change was not made, because the metadata log is full. The operator "
                        f"makes room by itself; repeat the change after some seconds: {error}"
                    )
                )
                log_is_full.set()

    def confirm(self, started_ms_ago: int) -> None:
        """Record that this was still the active controller `started_ms_ago` milliseconds ago: an
        operation that began then, and that only the active controller can complete, has succeeded.
        An earlier record that proves a later time stays."""
        self.confirmed_at_ms = max(self.confirmed_at_ms, self._clock.now_ms() - started_ms_ago)

    async def _append_next(self) -> None:
        units = self.queue.take(units_max=1 if self._cautious else None)
        records = [record for unit in units for record in unit.records]
        # A term's first record carries its own epoch; it is applied to the speculative image.
        epoch = self.queue.speculative.controller_epoch
        started_ms = self._clock.now_ms()
        self._stats.append_began_ms = started_ms
        try:
            copy = await self._journal.append(records, epoch)
        except (MetadataLogError, OSError):
            self._stats.failures.inc()
            raise
        finally:
            self._stats.append_began_ms = None
        now_ms = self._clock.now_ms()
        elapsed_ms = now_ms - started_ms
        self.confirm(elapsed_ms)
        self._cautious = max(0, self._cautious - 1)
        self.tail.append(copy)
        old, new, committed = self.queue.commit()
        self.tail.terms = new.terms
        self._stats.committed(len(records), elapsed_ms, Commit(new.next_offset, now_ms))
        for subscriber in self.subscribers:
            subscriber(old, new, committed)

    def _refused(self, error: AppendRefused) -> None:
        """Drop everything queued, since the metadata log has refused the batch in flight for good,
        and append the next `CAUTIOUS_APPENDS` decisions one by one. Raises `TermEnded`, and drops
        nothing, if a part of the batch's group is already in the log."""
        logger.warning(
            "the API server rejected a batch of metadata changes; the operator writes the "
            "changes again one by one and refuses only the one at fault: %s",
            error,
        )
        if self._journal.group_unfinished:
            raise TermEnded(
                "the API server rejected a part of a metadata change, but the metadata log already "
                "holds other parts of that change; the controller starts again and drops the "
                "unfinished change"
            ) from error
        culprit = refused(Reason.RecordTooLarge, str(error))
        self._dropped(
            self.queue.drop(
                "The change was not made, because the metadata log rejected the batch that "
                "contained it; retry.",
                culprit=culprit,
            )
        )
        self._cautious = CAUTIOUS_APPENDS
