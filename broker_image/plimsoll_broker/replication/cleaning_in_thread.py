"""CleaningInThread: the work of compaction in a thread of the broker, for the simulator and tests.

Made by `LogCleaner` if the broker was given no other `CleaningWork`. Its rate is not limited, since
there is no other work to hold up.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TypeVar

from plimsoll_broker.background.threads import in_thread
from plimsoll_broker.storage.cleaner.round import CleanedSegment, CleaningJob, Round
from plimsoll_broker.storage.cleaner.work import CleaningFailed
from plimsoll_broker.storage.disk import Disk, StorageError, StorageFault
from plimsoll_wire.batches import BatchError

T = TypeVar("T")


class CleaningInThread:
    """`CleaningWork` on one disk."""

    in_brokers_share = True

    def __init__(self, disk: Disk) -> None:
        self._disk = disk
        self._round: Round | None = None

    async def begin(self, job: CleaningJob) -> int:
        made = Round(self._disk, job, _any_rate)
        self._round = made
        return await _done(made.measure)

    async def clean(self, bases: Sequence[int]) -> CleanedSegment:
        assert self._round is not None, "it was begun"
        return await _done(partial(self._round.clean, bases))

    async def end(self) -> None:
        self._round = None

    async def close(self) -> None:
        """Nothing but the round is held."""


def _any_rate(size: int) -> None:
    """Impose no limit."""


async def _done(work: Callable[[], T]) -> T:
    try:
        return await in_thread(work)
    except StorageError as error:
        raise CleaningFailed(str(error), damaged=error.fault is StorageFault.CORRUPT) from error
    except BatchError as error:
        raise CleaningFailed(str(error), damaged=True) from error
