"""What a coordinator knows of its groups and loses when it goes: deadlines, and whom it parked.

Decisions write it, in ways that hold whether their records get into the log or not
(`CoordinatorOutcome`).  A successor begins with an empty one, and every deadline anew.
"""

from __future__ import annotations

from typing import NamedTuple

from plimsoll_core.coordination.deadlines import Deadlines


class ExpiryDue(NamedTuple):
    """A deadline: look which of a group's offsets are too old."""

    group_id: str


DeadlineKey = ExpiryDue
"""What a deadline stands for; `groups.step` makes an operation of each that is due."""


class SoftState:
    """Of one shard."""

    __slots__ = ("deadlines",)

    def __init__(self) -> None:
        # When something is to be looked at again, by `DeadlineKey`, on the monotonic clock.
        self.deadlines = Deadlines()
