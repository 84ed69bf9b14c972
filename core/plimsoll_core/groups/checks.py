"""Checks that several operations begin with: the group's name, and how many groups there may be."""

from __future__ import annotations

from typing import Any

from plimsoll_core.coordination.outcome import CoordinatorOutcome, RefusedAsWhole, refuse
from plimsoll_core.errors import Code
from plimsoll_core.groups.settings import GROUP_ID_BYTES_MAX, GROUPS_MAX
from plimsoll_core.groups.turn import GroupTurn


def check_group_id(group_id: str) -> RefusedAsWhole | None:
    """Whether a group may have that name; follows from the request alone.  Commits may be made
    without a name, as in Kafka."""
    if len(group_id.encode()) <= GROUP_ID_BYTES_MAX:
        return None
    message = f"A group id has {GROUP_ID_BYTES_MAX} bytes at most; set a shorter group.id."
    return RefusedAsWhole(Code.INVALID_GROUP_ID, message)


def check_named(group_id: str) -> RefusedAsWhole | None:
    """Whether it may have members: those who only commit need no name."""
    if group_id:
        return check_group_id(group_id)
    return RefusedAsWhole(Code.INVALID_GROUP_ID, "A group with members needs a name: its group.id.")


def no_such_group(group_id: str, token: object) -> CoordinatorOutcome[Any, Any]:
    """What tools hear of a group that does not exist."""
    message = f"Group {group_id} not found."
    return refuse(group_id, token, Code.GROUP_ID_NOT_FOUND, message)


def check_room(turn: GroupTurn, group_id: str) -> RefusedAsWhole | None:
    """Whether the group exists or may begin."""
    groups, expected = turn.state.groups, turn.soft.classic
    if group_id in groups or group_id in expected:
        return None
    if max(len(groups), len(expected)) < GROUPS_MAX:
        return None
    message = (
        f"This coordinator has {GROUPS_MAX} groups, and begins no other; delete groups that are "
        "not used any more (DeleteGroups)."
    )
    return RefusedAsWhole(Code.POLICY_VIOLATION, message)
