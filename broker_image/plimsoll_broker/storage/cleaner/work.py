"""Where the work of a round is done: the port, and what goes through it.

`replication.log_cleaner` uses it.  The shipped broker has a process of its own for it, since a
thread would take the interpreter from the event loop; the simulator and tests do the same work in
a thread of the broker.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from plimsoll_broker.storage.cleaner.round import CleanedSegment, CleaningJob


class CleaningFailed(Exception):
    """A round ended early; a sentence.  Nothing of the log was changed.  `damaged`: a segment does
    not hold what was written, and no later round can be better."""

    def __init__(self, sentence: str, *, damaged: bool = False) -> None:
        super().__init__(sentence)
        self.damaged = damaged


class CleaningWork(Protocol):
    """One round at a time.  Each raises CleaningFailed.  `in_brokers_share`: its processor time is
    taken from the broker's."""

    in_brokers_share: bool

    async def begin(self, job: CleaningJob) -> int:
        """`Round.measure` of a new round."""

    async def clean(self, bases: Sequence[int]) -> CleanedSegment:
        """`Round.clean` in the round that was begun."""

    async def end(self) -> None:
        """The round is over: its memory is given back."""

    async def close(self) -> None:
        """No log is due: nothing is kept for the next round."""
