"""The only place that writes to logs: it carries out what replicas decide, in their order.

Called by the replica manager and the fetcher.  It never decides: where to append, what to cut and
whom to answer comes from `plimsoll_core.replica`.  A disk that fails takes the one replica whose
log it held out of service.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Protocol

from plimsoll_broker.failures import CommitPathFailed
from plimsoll_broker.replication.hosted_partition import Hosted
from plimsoll_broker.storage.disk import StorageError, StorageFault
from plimsoll_broker.storage.log import Log
from plimsoll_broker.storage.segment import Segment
from plimsoll_core.messages.requests import IsrProposal
from plimsoll_core.replica.follower import Reset
from plimsoll_core.replica.ready import Ready
from plimsoll_core.replica.values import Append
from plimsoll_wire.batches import BatchHeader, stamp, stamp_append_time

logger = logging.getLogger("plimsoll.driver")


class AckToken(Protocol):
    """A produce that waits for one partition."""

    def answer(self, code: int) -> None: ...


class ParkedFetch(Protocol):
    """A long poll, or a session of them: told of every partition that moved, and woken at most once
    a step after that."""

    def moved(self, hosted: Hosted) -> None: ...
    def wake(self) -> None: ...


class LogWriter:
    """Stateless but for where proposals go."""

    def __init__(self, propose: Callable[[Hosted, IsrProposal], None]) -> None:
        self._propose = propose

    # --- leading --------------------------------------------------------------------------------

    def append_produced(
        self,
        hosted: Hosted,
        data: memoryview,
        header: BatchHeader,
        place: Append,
        append_time_ms: int | None,
    ) -> bool:
        """Stamp a client's batch in place and write it.  False: the disk did not take it."""
        stamp(data, 0, place.base_offset, place.leader_epoch)
        if append_time_ms is not None:
            stamp_append_time(data, 0, header.length, append_time_ms)
            header = header._replace(max_timestamp=append_time_ms)
        header = header._replace(base_offset=place.base_offset, leader_epoch=place.leader_epoch)
        try:
            hosted.log.append(data, (header,))
        except StorageError as error:
            self.fail(hosted, error)
            return False
        except Exception as error:
            raise CommitPathFailed(f"{hosted!r}: a produced batch") from error
        hosted.replica.wrote()
        return True

    def fail(self, hosted: Hosted, error: StorageError) -> None:
        """The disk broke under it: nothing more is promised from what it holds."""
        until = "there is room" if error.fault is StorageFault.FULL else "the broker starts again"
        logger.error("%r is out of service until %s: %s", hosted, until, error)
        hosted.log.fault = hosted.log.fault or error  # half cut, say: never closed cleanly
        hosted.replica.fail()

    # --- following ------------------------------------------------------------------------------

    def append_fetched(
        self, hosted: Hosted, data: memoryview, headers: Sequence[BatchHeader]
    ) -> bool:
        """Write a leader's batches as they are."""
        try:
            hosted.log.append(data, headers)
        except StorageError as error:
            self.fail(hosted, error)
            return False
        return True

    def truncate(self, hosted: Hosted, offset: int) -> bool:
        logger.info("%r is cut to %d of %d", hosted, offset, hosted.log.log_end_offset)
        try:
            hosted.log.truncate_to(offset)
        except StorageError as error:
            self.fail(hosted, error)
            return False
        hosted.replica.cut()
        return True

    def reset(self, hosted: Hosted, reset: Reset) -> bool:
        """Start again where the leader's log does, or cut to where it ends."""
        if not reset.discard:
            return self.truncate(hosted, reset.offset)
        logger.info("%r is discarded and starts again at %d", hosted, reset.offset)
        try:
            hosted.log.discard_to(reset.offset)
        except StorageError as error:
            self.fail(hosted, error)
            return False
        hosted.replica.cut()
        return True

    def advance_log_start(self, hosted: Hosted, offset: int) -> None:
        log = hosted.log
        if offset > log.log_start_offset:
            log.advance_log_start(min(offset, log.log_end_offset))

    def cannot_read(self, hosted: Hosted, offset: int, error: StorageError) -> None:
        """What is there is not what was written.  Where others are in sync they go on, and the next
        start cuts this log there; who is alone goes on serving the rest."""
        logger.error("%r cannot be read at %d: %s", hosted, offset, error)
        if len(hosted.replica.partition.isr) < 2 or hosted.replica.failed:
            return
        if error.fault is StorageFault.CORRUPT:
            try:
                hosted.log.distrust(offset)
            except StorageError as second:
                error.add_note(f"and that could not be kept for the next start: {second}")
        self.fail(hosted, error)

    def apply_retention(self, hosted: Hosted, wall_ms: int | None) -> None:
        """Its log begins later, if that is due; `wall_ms` None: nothing goes for its age now."""
        try:
            hosted.log.apply_retention(wall_ms, hosted.replica.high_watermark)
        except StorageError as error:
            self.fail(hosted, error)

    def remove_segments(
        self, hosted: Hosted, remove: Callable[[Log], list[Segment]]
    ) -> list[Segment]:
        """Those that `remove` took out of its log: their room is free once nobody holds them."""
        try:
            return remove(hosted.log)
        except StorageError as error:
            self.fail(hosted, error)
            return []

    # --- a step's effects -----------------------------------------------------------------------

    def carry_out(self, hosted: Hosted, ready: Ready, woken: dict[ParkedFetch, None]) -> None:
        """First the answers, then who is to be woken (collected: the caller wakes each once after
        all partitions of the step), the proposal last: `Ready` says why."""
        for token, code in ready.answers:
            ack: AckToken = token  # type: ignore[assignment]
            ack.answer(code)
        for token in ready.woken:
            fetch: ParkedFetch = token  # type: ignore[assignment]
            fetch.moved(hosted)
            woken[fetch] = None
        if ready.proposal is not None:
            self._propose(hosted, ready.proposal)
