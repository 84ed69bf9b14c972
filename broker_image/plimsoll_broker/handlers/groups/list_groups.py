"""ListGroups: the groups that this broker coordinates; a tool asks every broker.

Source: KIP-518 (states), KIP-848 (types); docs/protocol.md §5.8.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from plimsoll_broker.handlers.groups.asking import GroupApi, GroupRequest
from plimsoll_broker.security.authority import Rights
from plimsoll_core.coordination.outcome import RefusedAsWhole
from plimsoll_core.errors import Code
from plimsoll_core.groups.operations import GroupsListed, ListedGroup, ListGroups
from plimsoll_core.security.acl import AclOperation, ResourceType


def _asks(request: GroupRequest) -> Iterator[ListGroups]:
    """Ask every shard on this broker; none if the client may see no group at all."""
    rights = request.context.rights
    if rights is None or rights.sees_any(ResourceType.GROUP) or _sees_all(rights):
        yield ListGroups(
            states=tuple(getattr(request.value, "states_filter", ())),
            types=tuple(getattr(request.value, "types_filter", ())),
        )


def _sees_all(rights: Rights) -> bool:
    return rights.cluster_quietly(AclOperation.DESCRIBE)


def _tells(request: GroupRequest, answers: list[object]) -> dict[str, Any]:
    listed: list[ListedGroup] = []
    for answer in answers:
        if isinstance(answer, RefusedAsWhole):
            if answer.code is Code.NOT_COORDINATOR:
                continue  # another broker reports these groups
            return {"error_code": answer.code, "groups": []}
        assert isinstance(answer, GroupsListed), answer
        listed += answer.groups
    rights = request.context.rights
    if rights is not None and not _sees_all(rights):
        listed = [one for one in listed if rights.sees(ResourceType.GROUP, one.group_id)]
    return {"error_code": Code.NONE, "groups": [_group(one) for one in listed]}


def _group(listed: ListedGroup) -> dict[str, Any]:
    return {
        "group_id": listed.group_id,
        "protocol_type": listed.protocol_type,
        "group_state": listed.state,
        "group_type": listed.group_type,
    }


LIST_GROUPS = GroupApi(_asks, _tells, AclOperation.DESCRIBE)
