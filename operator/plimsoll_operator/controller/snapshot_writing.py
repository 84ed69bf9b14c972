"""Writes snapshots of the image when the metadata log has grown enough, and releases the part of
the log that they cover.

One snapshot at a time is written, of the image at a committed offset. `SnapshotTaken` is committed
before anything is released, so two writers can never destroy each other's history. Source:
ARCHITECTURE.md, "The metadata log lives on the Kubernetes API".
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Protocol

from plimsoll_core.cluster.image_encoding import encode_image
from plimsoll_core.cluster.records import Record, SnapshotTaken
from plimsoll_core.messages.requests import Answer, Done
from plimsoll_operator.controller.commit_queue import Committer, Restored
from plimsoll_operator.controller.metadata_tail import Committed
from plimsoll_operator.metalog.interface import (
    LimitedLog,
    LogUsage,
    MetadataLog,
    RestoredHistory,
)
from plimsoll_process.waits import set_within

logger = logging.getLogger("plimsoll.controller")

CHECK_S = 1.0


class Committing(Committed, Protocol):
    """The part of a controller that the `Snapshotter` uses: the committed state, and the commit of
    a record."""

    async def commit_own(self, records: tuple[Record, ...]) -> Answer: ...


class Snapshotter:
    def __init__(self, controller: Committing, log: MetadataLog) -> None:
        self._controller = controller
        self._log = log
        self.urgent = asyncio.Event()
        # Called before the part of the log that a snapshot covers is released. Must be short, since
        # the log may be full meanwhile.
        self.before_release: Callable[[], Awaitable[bool]] | None = None
        self._turn = asyncio.Lock()

    @property
    def usage(self) -> LogUsage | None:
        """Return the fill level of the metadata log, or None if the log has no limit or is not
        open."""
        return self._log.usage if isinstance(self._log, LimitedLog) else None

    async def run_forever(self) -> None:
        while True:
            if await set_within(self.urgent, CHECK_S) or self._log.needs_snapshot():
                self.urgent.clear()
                await self.take()

    async def mend(self) -> tuple[str, ...]:
        """Look for deleted objects of the metadata log. If any is missing, take a snapshot that
        covers their content, then create them again. Return the names of the missing objects, () if
        there are none. If the term ends before the snapshot is committed, they stay missing."""
        lost = await self.lost()
        if lost and await self.take("LogMended"):
            await self._log.mend()
        return lost

    async def lost(self) -> tuple[str, ...]:
        """Return the names of the log's objects that are missing from storage."""
        return await self._log.lost()

    async def take(self, cause: str = "LogGrew") -> bool:
        """Write a snapshot, commit `SnapshotTaken` with this `cause`, release the part of the log
        that it covers, and return True. Runs one at a time. Return False, and release nothing, if
        the term ended before the commit."""
        async with self._turn:
            return await self._take(cause)

    async def _take(self, cause: str) -> bool:
        controller = self._controller
        image, nonce = controller.image, controller.tail.end_nonce
        assert controller.tail.end == image.next_offset
        assert nonce is not None, "a term starts with a committed batch"
        encoded = await asyncio.to_thread(encode_image, image)
        name = await self._log.write_snapshot(
            encoded, image.next_offset, nonce, image.controller_epoch
        )
        taken = SnapshotTaken(cause=cause, end_offset=image.next_offset, name=name)
        answer = await controller.commit_own((taken,))
        if not isinstance(answer, Done):
            return False
        if self.before_release is not None:
            await self.before_release()
        await self._log.release(taken)
        logger.info("the controller wrote the metadata snapshot %s (%d bytes)", name, len(encoded))
        return True

    async def make_room(self, restored: Restored, committer: Committer) -> None:
        """Free space in a metadata log that is full when a term is about to begin: write a snapshot
        and release what it covers. Earlier terms had filled the log without reaching a snapshot.
        `SnapshotTaken` is committed as the first batch of a higher epoch. A log that was restored,
        and in which nothing was decided since, stays one: it is restored to itself."""
        image, nonce = restored.image, restored.tail.end_nonce
        assert nonce is not None, "a log that is full is not empty"
        encoded = await asyncio.to_thread(encode_image, image)
        if restored.fresh:
            epoch = max(image.controller_epoch, restored.epoch)
            history = RestoredHistory(
                image_bytes=encoded,
                end_offset=image.next_offset,
                nonce=nonce,
                controller_epoch=epoch,
            )
            await self._log.restore(history)
            return
        name = await self._log.write_snapshot(
            encoded, image.next_offset, nonce, image.controller_epoch
        )
        taken = SnapshotTaken(cause="LogFull", end_offset=image.next_offset, name=name)
        await committer.commit_before_term(taken)
        await self._log.release(taken)
