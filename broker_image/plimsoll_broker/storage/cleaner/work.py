"""CleaningWork: the interface to the place where a round's work is done.

Used by `replication.log_cleaner`. The shipped broker uses a process, since a thread would take the
interpreter from the event loop; the simulator and tests use a thread of the broker.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from plimsoll_broker.storage.cleaner.round import CleanedSegment, CleaningJob


class CleaningFailed(Exception):
    """A round ended early; the message says why. The log was not changed. `damaged`: a segment is
    corrupt, and no later round can succeed."""

    def __init__(self, sentence: str, *, damaged: bool = False) -> None:
        super().__init__(sentence)
        self.damaged = damaged


class CleaningWork(Protocol):
    """One round at a time; each method raises CleaningFailed. `in_brokers_share`: True if its
    processor time is taken from the broker's."""

    in_brokers_share: bool

    async def begin(self, job: CleaningJob) -> int:
        """Begin a round and return the result of `Round.measure`."""

    async def clean(self, bases: Sequence[int]) -> CleanedSegment:
        """Return the result of `Round.clean` in the present round."""

    async def end(self) -> None:
        """End the round and release its memory."""

    async def close(self) -> None:
        """Keep nothing for the next round: no log is due."""
