"""Appends queued decisions, one append in flight, and makes them the committed state.

`controller_term` owns one and runs `run_forever` for the length of a term. On a certain failure the
speculative part is dropped as a whole; any other failure ends the term. It decides nothing.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from plimsoll_core.cluster.model import ClusterImage
from plimsoll_core.cluster.records import Record
from plimsoll_core.errors import Reason
from plimsoll_core.ids import ControllerEpoch
from plimsoll_core.messages.requests import Done
from plimsoll_operator.controller.commit_queue import CommitQueue, refused
from plimsoll_operator.controller.controller_stats import Commit, ControllerStats
from plimsoll_operator.controller.decision_clock import Clock
from plimsoll_operator.controller.journal import Journal, Restored
from plimsoll_operator.controller.recent_batches import MetadataTail
from plimsoll_operator.metalog.interface import (
    AppendRefused,
    LogCorrupt,
    LogRegressed,
    MetadataLogError,
    SnapshotRequired,
)

logger = logging.getLogger("plimsoll.controller")

CAUTIOUS_APPENDS = 64
"""Number of decisions that commit one by one after a refusal, so that only the offending one is
refused."""

Subscriber = Callable[[ClusterImage, ClusterImage, tuple[Record, ...]], None]
Dropped = Callable[[tuple[Record, ...]], None]
"""Called with records that were decided but will never be committed, while the term goes on; must
not block."""


class TermEnded(Exception):
    """The term cannot go on; the log must be opened again."""


class LogUnusable(Exception):
    """Storage lost or damaged a part of the log; waiting does not restore it."""


class Committer:
    """Appender of a term, owned by the controller's event loop."""

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
        """Start from the log's content; nothing may be queued. Raises `LogUnusable`."""
        try:
            restored = await self._journal.open()
        except (LogRegressed, LogCorrupt) as error:
            raise LogUnusable(f"The metadata log cannot be opened: {error}.") from error
        self.queue = CommitQueue(restored.image)
        self.tail = restored.tail
        return restored

    async def commit_alone(self, record: Record) -> None:
        """Commit one record in a batch of its own; a failure leaves nothing queued."""
        self.queue.add((record,), Done())
        try:
            await self._append_next()
        except (MetadataLogError, OSError) as error:
            self.queue.drop(f"The controller failed to take over: {error}")
            raise

    async def commit_before_term(self, record: Record) -> None:
        """Commit one record as the first of a higher epoch; the log must be opened again
        afterwards."""
        epoch = ControllerEpoch(self.queue.speculative.controller_epoch + 1)
        await self._journal.append((record,), epoch)

    async def run_forever(self, log_is_full: asyncio.Event) -> None:
        """Append until the log fails in a way that ends the term."""
        while True:
            await self.queue.wakeup.wait()
            try:
                await self._append_next()
            except AppendRefused as error:
                self._refused(error)
            except SnapshotRequired as error:
                self._dropped(self.queue.drop(f"The metadata log is full: {error}"))
                log_is_full.set()

    def confirm(self, started_ms_ago: int) -> None:
        """Note a success that only the one controller can have, of an operation begun this long
        ago."""
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
        self._stats.committed(len(records), elapsed_ms, Commit(new.next_offset, now_ms))
        for subscriber in self.subscribers:
            subscriber(old, new, committed)

    def _refused(self, error: AppendRefused) -> None:
        """Drop the whole speculative part: this batch can never commit."""
        logger.warning("the metadata log refused a batch: %s", error)
        if self._journal.group_unfinished:
            raise TermEnded("a group of batches was refused half-way") from error
        culprit = refused(Reason.RecordTooLarge, str(error))
        self._dropped(
            self.queue.drop("The metadata log rejected the change; retry.", culprit=culprit)
        )
        self._cautious = CAUTIOUS_APPENDS
