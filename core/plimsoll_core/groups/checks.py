"""Checks with which several group operations begin: the group's name, and the number of groups."""

from __future__ import annotations

from typing import Any

from plimsoll_core.coordination.outcome import CoordinatorOutcome, RefusedAsWhole, refuse
from plimsoll_core.errors import Code
from plimsoll_core.groups.settings import GROUP_ID_BYTES_MAX
from plimsoll_core.groups.turn import GroupTurn


def check_group_id(group_id: str) -> RefusedAsWhole | None:
    """Return a refusal if the group id is too long, otherwise None. An empty id is accepted, for
    commits of simple consumers as in Kafka."""
    if len(group_id.encode()) <= GROUP_ID_BYTES_MAX:
        return None
    message = f"A group id may have at most {GROUP_ID_BYTES_MAX} bytes: set a shorter group.id."
    return RefusedAsWhole(Code.INVALID_GROUP_ID, message)


def check_named(group_id: str) -> RefusedAsWhole | None:
    """Return a refusal if the group id is empty or too long, otherwise None."""
    if group_id:
        return check_group_id(group_id)
    return RefusedAsWhole(Code.INVALID_GROUP_ID, "The group id is empty: set group.id.")


def no_such_group(group_id: str, token: object) -> CoordinatorOutcome[Any, Any]:
    """Return the outcome that refuses an admin request for a group that does not exist."""
    message = f"Group {group_id} not found."
    return refuse(group_id, token, Code.GROUP_ID_NOT_FOUND, message)


def owner_of(turn: GroupTurn, group_id: str, asks: str = "") -> str:
    """Return the principal to which the group is charged, by its records or else by its state in
    memory. Return `asks` if the group has no owner yet, or does not exist."""
    durable, expected = turn.state.groups.get(group_id), turn.soft.classic.get(group_id)
    if durable is not None and durable.owner:
        return durable.owner
    if expected is not None and expected.owner:
        return expected.owner
    return asks


def check_loaded(turn: GroupTurn, group_id: str) -> RefusedAsWhole | None:
    """Return a refusal (COORDINATOR_LOAD_IN_PROGRESS) if the group is in the log but was not loaded
    for lack of memory; otherwise None. Its committed offsets must not look as if they did not
    exist, and this error makes clients try again."""
    if not turn.state.is_unloaded(group_id):
        return None
    message = (
        f"Group {group_id} is not loaded, because the memory of this broker for consumer groups "
        "is used up: delete groups that are not used any more (DeleteGroups), even this group if "
        "necessary, or give the broker more memory."
    )
    return RefusedAsWhole(Code.COORDINATOR_LOAD_IN_PROGRESS, message)


def check_rate(turn: GroupTurn, group_id: str, asks: str) -> RefusedAsWhole | None:
    """Return a refusal (COORDINATOR_LOAD_IN_PROGRESS, so that clients try again) if the owner of
    the group, or `asks` for a group without one, has had the coordinator write too many bytes
    lately; otherwise None."""
    owner = owner_of(turn, group_id, asks)
    if turn.state.memory.of_broker.rate.admits(owner, turn.now_ms):
        return None
    message = (
        f"{_groups_of(owner)} write more bytes a second than their coordinator allows, so it "
        "refuses this request for now. The client tries again; let it commit less often or less "
        "metadata, or let members join less often."
    )
    return RefusedAsWhole(Code.COORDINATOR_LOAD_IN_PROGRESS, message)


def _groups_of(owner: str) -> str:
    return f"The groups of {owner}" if owner else "The groups without a known owner"


def check_begins(turn: GroupTurn, group_id: str, owner: str) -> bool:
    """Return True if the group exists, or if `owner` may have one more group in this shard; nothing
    is reserved. Otherwise count a refusal and return False."""
    groups = turn.state.memory.groups
    if group_id in turn.state.groups or groups.admits(owner, 1):
        return True
    groups.refused += 1
    return False


def no_room(group_id: str, owner: str, code: Code) -> RefusedAsWhole:
    """Return the refusal with `code` for a group of a principal that has used up its share of the
    coordinator's memory."""
    message = (
        f"{_groups_of(owner)} have used up their share of this broker's memory for consumer "
        f"groups, so group {group_id} cannot grow. Delete groups or offsets that are not used any "
        "more (DeleteGroups, OffsetDelete), commit less metadata, or give the brokers more memory."
    )
    return RefusedAsWhole(code, message)
