"""Which broker ids a cluster should have.  Called for SetMembers, and by the operator to plan it.

Membership is sticky: an id leaves only when it is excluded or, when fewer are asked for, from the
top; lifting an exclusion removes nobody, so that undoing an edit moves no data.
"""

from __future__ import annotations

from collections.abc import Collection
from itertools import count as numbers

from plimsoll_core.controller.turn import Turn
from plimsoll_core.ids import BrokerId
from plimsoll_core.messages import Answer, Done, SetMembers
from plimsoll_core.reasons import Reason, Refusal
from plimsoll_core.records import MembersChanged


def next_members(
    current: Collection[BrokerId], count: int, excluded: Collection[int]
) -> tuple[BrokerId, ...]:
    """The `count` ids to have from now on, given those that are there."""
    kept = sorted(set(current) - set(excluded))[:count]
    free = (BrokerId(n) for n in numbers() if n not in excluded and n not in kept)
    return tuple(sorted([*kept, *(next(free) for _ in range(count - len(kept)))]))


def set_members(turn: Turn, request: SetMembers) -> Answer | Refusal:
    wanted = tuple(sorted(set(request.broker_ids)))
    if not wanted:
        return Refusal(
            reason=Reason.InvalidRequest,
            message="A cluster has at least one broker; delete the LogCluster to stop it.",
        )
    if wanted != turn.image.members:
        turn.add(MembersChanged(cause="declared", broker_ids=wanted))
    return Done()
