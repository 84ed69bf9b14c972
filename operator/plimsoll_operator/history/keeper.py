"""Writes committed changes to the history archive, off the commit path.

A commit only appends to a bounded queue here. A task of the term converts it into rows and stores
them within `FLUSH_S`; rows are stored before a snapshot truncates their part of the metadata log.
If a term ends before all rows are stored, the next term makes the missing ones from the log. A
failure of the archive, or a bug in this package, can lose rows but never a commit. It is logged,
and storing is retried.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import NamedTuple
from uuid import UUID

import msgspec

from plimsoll_core.cluster.image import apply_all
from plimsoll_core.cluster.model import ClusterImage
from plimsoll_core.cluster.records import Record
from plimsoll_operator.controller.commit_queue import first_image, wholes
from plimsoll_operator.history import segments
from plimsoll_operator.history.archive import Archive, ArchiveConflict, ArchiveUnavailable
from plimsoll_operator.history.changes import RESTORED, ChangeRow, changes, relevant
from plimsoll_operator.metalog.codec import decode_records
from plimsoll_operator.metalog.interface import OpenedLog
from plimsoll_process.waits import cancelled, set_within

logger = logging.getLogger("plimsoll.history")

FLUSH_S = 10.0
AGAIN_S = 30.0
SETTLE_S = 2.0
COMMITS_MAX = 2_000
WAITING_BYTES_MAX = 8 * 1024 * 1024
"""Maximum size of the rows that wait while the archive cannot be written. Beyond it the oldest rows
are dropped, and a row of kind "unknown" takes their place."""
WRITE_BYTES_MAX = 1024 * 1024
"""Approximate size in bytes at which one write to the archive ends. The remaining rows follow in
the next write."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Commit:
    old: ClusterImage
    new: ClusterImage
    records: tuple[Record, ...]
    ms: int


class _WaitingRow(NamedTuple):
    """An encoded row that is not stored yet, and the metadata offset of its record."""

    offset: int
    text: bytes


class HistoryKeeper:
    """Keeps the history of one cluster: queues each commit, makes rows of it and stores them in the
    archive. Call `begin` with each term, then run `run` as a task of the term; the controller calls
    `opened`, `committed` and `settle`. `now_ms`: the wall clock."""

    def __init__(
        self,
        archive: Archive,
        cluster_id: UUID,
        now_ms: Callable[[], int],
        agreed_ms: Callable[[], int] | None = None,
    ) -> None:
        """Create a keeper that has not begun a term. `agreed_ms`: the time by which rows are too
        old, which another clock than `now_ms` confirms; None: `now_ms`."""
        self._archive = archive
        self._cluster_id = cluster_id
        self._now_ms = now_ms
        self._agreed_ms = agreed_ms or now_ms
        # Futures of the callers of `settle`.
        self._settling: list[asyncio.Future[None]] = []
        # Number of rows and commits dropped, because the archive was too slow.
        self.dropped_rows = 0
        self.begin()

    def begin(self) -> None:
        """Drop all state of the previous term, with commits and rows that are not stored: the next
        term makes them again from the metadata log."""
        # The metadata log as the term opened it; None once its rows are made.
        self._opened: OpenedLog | None = None
        # Commits that are not converted into rows yet.
        self._commits: deque[_Commit] = deque()
        # Metadata offset below which commits were dropped because too many waited; 0 if none were.
        self._dropped_to = 0
        # Rows that are not stored yet, and their bytes.
        self._lines: deque[_WaitingRow] = deque()
        self._waiting_bytes = 0
        # Metadata offsets: `_end` is where rows and archive end, `_committed` where the committed
        # log ends.
        self._end = 0
        self._committed = 0
        self._ready = False
        # Where the metadata log ended as the term opened it; None before that.
        self._tip: int | None = None
        # True once the archive's end was compared with it.
        self._compared = False
        self._wanted = asyncio.Event()
        # Wall-clock time since which the oldest unstored commit waits; None if none waits.
        self._behind_since_ms: int | None = None

    @property
    def behind_ms(self) -> int:
        """Return for how many milliseconds the oldest commit that is not archived has waited; 0 if
        none waits."""
        since_ms = self._behind_since_ms
        return 0 if since_ms is None else max(0, self._now_ms() - since_ms)

    # --- on the commit path ---------------------------------------------------------------------

    def opened(self, log: OpenedLog) -> None:
        """Store a reference to the metadata log as it was read before the term's first commit.
        `run` then makes rows of the part that the archive lacks."""
        self._opened = log
        self._committed = self._tip = log.tip.next_offset
        # The archive may lack the log's end until it has been read.
        self._behind()

    def committed(self, old: ClusterImage, new: ClusterImage, records: tuple[Record, ...]) -> None:
        """Queue a commit of `records` if it changes leaders, ISRs or replicas. The conversion into
        rows is left to `run`, because the commit path waits for this call. If more than
        `COMMITS_MAX` wait, the oldest is dropped, and a row of kind "unknown" will show the gap."""
        self._committed = new.next_offset
        if not relevant(records):
            return
        self._commits.append(_Commit(old=old, new=new, records=records, ms=self._now_ms()))
        self._behind()
        if len(self._commits) > COMMITS_MAX:
            self._dropped_to = self._commits.popleft().new.next_offset
            self.dropped_rows += 1

    def _behind(self) -> None:
        if self._behind_since_ms is None:
            self._behind_since_ms = self._now_ms()

    # --- beside it ------------------------------------------------------------------------------

    async def settle(self) -> bool:
        """Have `run` store everything committed by now in the archive at once, and return True when
        it is stored. Return False if that takes longer than `SETTLE_S`; it may still be stored
        later."""
        stored: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._settling.append(stored)
        self._wanted.set()
        await asyncio.wait([stored], timeout=SETTLE_S)
        if not stored.done():
            if stored in self._settling:
                self._settling.remove(stored)
            logger.warning(
                "the archive of the cluster's metadata history did not store the newest changes "
                "within %g s, so a history shown now may lack them; the metadata itself is safe, "
                "and the operator writes the archive again; if this repeats, check the archive's "
                "storage",
                SETTLE_S,
            )
        return stored.done()

    async def run(self) -> None:
        """Make and store rows until cancelled. A bug is logged, and no more history is stored in
        this term."""
        task = asyncio.ensure_future(self._run())
        try:
            await asyncio.wait([task])
            logger.critical(
                "internal error of the operator: it archives no more of the cluster's metadata "
                "history until another operator leads; the cluster works as before; restart this "
                "operator, and report the error with this traceback",
                exc_info=task.exception(),
            )
            await asyncio.Event().wait()
        finally:
            await cancelled(task)

    async def _run(self) -> None:
        while True:
            self._wanted.clear()
            try:
                await self._round()
            except ArchiveConflict as error:
                logger.info(
                    "another operator wrote to the archive of the cluster's metadata history, as "
                    "after a change of the leading operator; this operator reads the archive "
                    "again and goes on, and no history is lost: %s",
                    error,
                )
                self._ready = False
            except ArchiveUnavailable as error:
                logger.warning(
                    "the operator cannot write the archive of the cluster's metadata history and "
                    "tries again; up to %d MiB of changes wait in memory, and after that the "
                    "oldest are left out of the history; the metadata itself is safe: %s",
                    *(WAITING_BYTES_MAX // 2**20, error),
                )
                self._ready = False
                await asyncio.sleep(AGAIN_S)
            await set_within(self._wanted, FLUSH_S)

    async def _round(self) -> None:
        settling, self._settling = self._settling, []
        due = not self._compared and self._tip is not None and self._committed > self._tip
        if due or not self._ready:
            await self._archive.open()
            if due:
                await self._compare()
            self._ready = True
            self._end = max(self._end, self._archive.end_offset)
        await self._make_rows()
        await self._store(forced=bool(settling))
        self._behind_since_ms = self._commits[0].ms if self._commits else None
        for waiter in settling:
            if not waiter.done():
                waiter.set_result(None)
        if await self._archive.drop_excess(self._agreed_ms()):
            logger.info(
                "the operator deleted the oldest parts of the archive of the cluster's metadata "
                "history, because the archive exceeded its age or size limit"
            )

    async def _compare(self) -> None:
        """If the archive ends behind the log as the term opened it, the metadata were restored to
        an earlier state: have the archive continue at the log's end, with a row that says so.
        Called after the term's first commit, since which no earlier term archives anything more.
        Raises the errors of `Archive.add`."""
        assert self._tip is not None, "the log is open"
        if self._archive.end_offset > self._tip:
            row = _unknown(
                self._tip,
                self._now_ms(),
                "the metadata were restored to an earlier state, and the changes after it were "
                "given up",
            )
            row = msgspec.structs.replace(row, word=RESTORED)
            self._archive.rewind(self._tip)
            await self._archive.add(segments.line(row), 1, self._tip, self._now_ms())
            self._end = self._tip
        self._compared = True

    async def _store(self, *, forced: bool) -> None:
        """Write the waiting rows to the archive, in the order of the log, and remove them from the
        queue. `forced`: if no row waits, write nevertheless, to store the offset up to which the
        archive is complete. Raises the errors of `Archive.add`."""
        self._drop_stored()
        while self._lines or (forced and self._end > self._archive.end_offset):
            text, count = [], 0
            for line in self._lines:
                text.append(line.text)
                count += len(line.text)
                if count >= WRITE_BYTES_MAX:
                    break
            rest = len(self._lines) > len(text)
            end = self._lines[len(text)].offset if rest else self._end
            await self._archive.add(b"".join(text), len(text), end, self._now_ms())
            for _ in text:
                self._waiting_bytes -= len(self._lines.popleft().text)

    def _drop_stored(self) -> None:
        """Drop waiting rows of records below the archive's end: the archive already has them."""
        while self._lines and self._lines[0].offset < self._archive.end_offset:
            self._waiting_bytes -= len(self._lines.popleft().text)

    async def _make_rows(self) -> None:
        if (log := self._opened) is not None:
            async for row in replayed(log, self._cluster_id, self._end):
                self._add(row)
            self._opened = None
            self._end = max(self._end, log.tip.next_offset)
        while self._commits:
            commit = self._commits.popleft()
            if self._dropped_to > self._end:
                self._add(
                    _unknown(
                        self._dropped_to,
                        commit.ms,
                        "the archive of the metadata history lacks these changes, because too "
                        "many waited to be archived at once",
                    )
                )
            if commit.new.next_offset > self._end:
                for row in changes(commit.old, commit.new, commit.records, commit.ms):
                    self._add(row)
                self._end = commit.new.next_offset
            await asyncio.sleep(0)
        self._end = max(self._end, self._committed)

    def _add(self, row: ChangeRow) -> None:
        line = _WaitingRow(row.offset, segments.line(row))
        self._lines.append(line)
        self._behind()
        self._waiting_bytes += len(line.text)
        if self._waiting_bytes <= WAITING_BYTES_MAX:
            return
        dropped = 0
        while self._waiting_bytes > WAITING_BYTES_MAX // 2 and self._lines:
            gone = self._lines.popleft()
            self._waiting_bytes -= len(gone.text)
            dropped = gone.offset
            self.dropped_rows += 1
        told = _unknown(
            dropped + 1,
            row.ms,
            "the operator left these changes out of the archive of the metadata history, because "
            "it could not write the archive for a long time",
        )
        self._lines.appendleft(_WaitingRow(told.offset, segments.line(told)))
        self._waiting_bytes += len(self._lines[0].text)


async def replayed(log: OpenedLog, cluster_id: UUID, since: int) -> AsyncIterator[ChangeRow]:
    """Yield the rows of a metadata log for records from offset `since` on, in order. If the log
    begins later than that, a row of kind "unknown" comes first. Other tasks of the event loop run
    after each batch. Raises the errors of `commit_queue.first_image`."""
    image = first_image(log, cluster_id)
    if image.next_offset > since:
        why = (
            "the operator kept no history of the cluster yet"
            if since == 0
            else ("the metadata log dropped these changes before the operator archived them")
        )
        yield _unknown(image.next_offset, log.batches[0].written_ms if log.batches else 0, why)
    if log.tip.next_offset <= since:
        return
    for whole in wholes(log.batches):
        records = tuple(record for batch in whole for record in decode_records(batch))
        after = apply_all(image, records)
        if after.next_offset > since and relevant(records):
            for row in changes(image, after, records, whole[-1].written_ms):
                if row.offset >= since:
                    yield row
        image = after
        await asyncio.sleep(0)


def _unknown(offset: int, ms: int, why: str) -> ChangeRow:
    return ChangeRow(offset=offset, ms=ms, kind="unknown", cause=why)
