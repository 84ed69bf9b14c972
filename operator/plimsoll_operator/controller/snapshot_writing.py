"""Snapshots of the image: written when the metadata log has grown enough, and the slots they free.

One snapshot at a time is taken, at a committed offset. `SnapshotTaken` commits before anything is
released, so two writers can never destroy each other's history. Source: ARCHITECTURE.md, "The
metadata log lives on the Kubernetes API".
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
from plimsoll_operator.metalog.interface import LimitedLog, LogUsage, MetadataLog
from plimsoll_process.waits import set_within

logger = logging.getLogger("plimsoll.controller")

CHECK_S = 1.0


class Committing(Committed, Protocol):
    """The part of a controller that a snapshot needs."""

    async def commit_own(self, records: tuple[Record, ...]) -> Answer: ...


class Snapshotter:
    def __init__(self, controller: Committing, log: MetadataLog) -> None:
        self._controller = controller
        self._log = log
        self.urgent = asyncio.Event()
        # Called before a part of the log is released; must be short, since the log may be full
        # meanwhile.
        self.before_release: Callable[[], Awaitable[bool]] | None = None
        self._turn = asyncio.Lock()

    @property
    def usage(self) -> LogUsage | None:
        """Return the fill level of the metadata log, or None if it has no limit."""
        return self._log.usage if isinstance(self._log, LimitedLog) else None

    async def run_forever(self) -> None:
        while True:
            if await set_within(self.urgent, CHECK_S) or self._log.needs_snapshot():
                self.urgent.clear()
                await self.take()

    async def mend(self) -> tuple[str, ...]:
        """Restore the log after parts of it were deleted. Return their names."""
        lost = await self.lost()
        if lost and await self.take("LogMended"):
            await self._log.mend()
        return lost

    async def lost(self) -> tuple[str, ...]:
        """Return the names of missing parts of the log."""
        return await self._log.lost()

    async def take(self, cause: str = "LogGrew") -> bool:
        """Write, commit and release a snapshot, one at a time. Return False if the term ended
        before the commit."""
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
        logger.info("wrote metadata snapshot %s (%d bytes of image)", name, len(encoded))
        return True

    async def make_room(self, restored: Restored, committer: Committer) -> None:
        """Free a log that terms filled without reaching a snapshot: this term's snapshot comes
        first.

        It covers the log's content, and commits as the first batch of a higher epoch.
        """
        image, nonce = restored.image, restored.tail.end_nonce
        assert nonce is not None, "a log that is full is not empty"
        encoded = await asyncio.to_thread(encode_image, image)
        name = await self._log.write_snapshot(
            encoded, image.next_offset, nonce, image.controller_epoch
        )
        taken = SnapshotTaken(cause="LogFull", end_offset=image.next_offset, name=name)
        await committer.commit_before_term(taken)
        await self._log.release(taken)
