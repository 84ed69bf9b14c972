"""What a coordinator knows of its groups and loses when it goes: deadlines, phases, parked
requests.

Decisions write it, in ways that hold whether their records get into the log or not
(`CoordinatorOutcome`).  A successor begins with an empty one, and every deadline anew.
"""

from __future__ import annotations

from typing import NamedTuple

from plimsoll_core.coordination.deadlines import Deadlines
from plimsoll_core.groups.members import ClassicGroup
from plimsoll_core.groups.membership import (
    EndJoining,
    EndPending,
    EndSession,
    EndSyncing,
    StoreEmptiness,
    WakeGroup,
)
from plimsoll_core.groups.memory import SeatsCharged


class ExpiryDue(NamedTuple):
    """A deadline: look which of a group's offsets are too old."""

    group_id: str


DeadlineKey = (
    ExpiryDue | EndSession | EndPending | EndJoining | EndSyncing | WakeGroup | StoreEmptiness
)
"""What a deadline stands for; `groups.step` makes an operation of each that is due."""


class SoftState:
    """Of one shard."""

    __slots__ = ("charged", "classic", "deadlines", "rebalances", "seats")

    def __init__(self) -> None:
        # When something is to be looked at again, by `DeadlineKey`, on the monotonic clock.
        self.deadlines = Deadlines()
        # Groups that have members or expect some, by id.
        self.classic: dict[str, ClassicGroup] = {}
        # Members and pending ids of all of them.
        self.seats = 0
        # What is counted of each of these groups' members (`groups.step`).
        self.charged: dict[str, SeatsCharged] = {}
        # How many rebalances began, for the metrics.
        self.rebalances = 0
