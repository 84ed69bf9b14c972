"""The APIs by which tools list, describe and delete groups.

`DescribeGroups`: the state and the members of groups. Before version 6 a group that does not exist
is reported as dead, without an error (KIP-1043). Source: docs/protocol.md §5.8.

`ListGroups`: the groups that this broker coordinates; a tool asks every broker. Source: KIP-518
(states), KIP-848 (types); docs/protocol.md §5.8.

`DeleteGroups`: removes groups without members, with their offsets. A group with very many offsets
is removed in portions. Source: docs/protocol.md §5.8.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from plimsoll_broker.handlers.groups.group_api import GroupApi, GroupRequest, code_of
from plimsoll_broker.security.authority import Rights
from plimsoll_core.coordination.outcome import RefusedAsWhole
from plimsoll_core.errors import Code
from plimsoll_core.groups.operations import (
    DeleteGroup,
    DescribedMember,
    DescribeGroup,
    GroupDescribed,
    GroupsListed,
    ListedGroup,
    ListGroups,
)
from plimsoll_core.security.acl import TOLD_BITS, AclOperation, ResourceType

_MISSING_VERSION = 6
_DEAD = "Dead"


def _described_group(request: GroupRequest) -> list[str]:
    return list(dict.fromkeys(request.value.groups))


def _describe_operations(request: GroupRequest) -> Iterator[DescribeGroup]:
    for name in _described_group(request):
        yield DescribeGroup(group_id=name)


def _describe_values(request: GroupRequest, answers: list[object]) -> dict[str, Any]:
    told = [
        {"group_id": name, **_described_values(request.version, answer)}
        for name, answer in zip(_described_group(request), answers, strict=True)
    ]
    if getattr(request.value, "include_authorized_operations", False):
        for group in told:
            if not group["error_code"]:
                group["authorized_operations"] = _may(request, group["group_id"])
    return {"groups": told}


def _may(request: GroupRequest, name: str) -> int:
    rights = request.context.rights
    kind = ResourceType.GROUP
    return TOLD_BITS[kind] if rights is None else rights.operations(kind, name)


def _described_values(version: int, answer: object) -> dict[str, Any]:
    if isinstance(answer, RefusedAsWhole):
        missing = answer.code is Code.GROUP_ID_NOT_FOUND
        known = missing and version < _MISSING_VERSION
        return {
            "error_code": Code.NONE if known else answer.code,
            "error_message": answer.message or None,
            "group_state": _DEAD if missing else "",
            "protocol_type": "",
            "protocol_data": "",
            "members": [],
        }
    assert isinstance(answer, GroupDescribed), answer
    return {
        "error_code": Code.NONE,
        "group_state": answer.state,
        "protocol_type": answer.protocol_type,
        "protocol_data": answer.protocol,
        "members": [_member(member) for member in answer.members],
    }


def _member(member: DescribedMember) -> dict[str, Any]:
    return {
        "member_id": member.member_id,
        "group_instance_id": member.group_instance_id,
        "client_id": member.client_id,
        "client_host": member.client_host,
        "member_metadata": member.metadata,
        "member_assignment": member.assignment,
    }


DESCRIBE_GROUPS = GroupApi(
    _describe_operations,
    _describe_values,
    AclOperation.DESCRIBE,
    rows=lambda coordinators: coordinators.members,
)


def _list_operations(request: GroupRequest) -> Iterator[ListGroups]:
    """Yield the operation that lists the groups of every shard on this broker, with the request's
    filters of states and types. Yield nothing if the client may describe no group at all."""
    rights = request.context.rights
    if rights is None or rights.sees_any(ResourceType.GROUP) or _sees_all(rights):
        yield ListGroups(
            states=tuple(getattr(request.value, "states_filter", ())),
            types=tuple(getattr(request.value, "types_filter", ())),
        )


def _sees_all(rights: Rights) -> bool:
    return rights.cluster_quietly(AclOperation.DESCRIBE)


def _list_values(request: GroupRequest, answers: list[object]) -> dict[str, Any]:
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
    return {"error_code": Code.NONE, "groups": [_listed_values(one) for one in listed]}


def _listed_values(listed: ListedGroup) -> dict[str, Any]:
    return {
        "group_id": listed.group_id,
        "protocol_type": listed.protocol_type,
        "group_state": listed.state,
        "group_type": listed.group_type,
    }


LIST_GROUPS = GroupApi(
    _list_operations,
    _list_values,
    AclOperation.DESCRIBE,
    rows=lambda coordinators: coordinators.groups,
)


def _deleted_group(request: GroupRequest) -> list[str]:
    """Return the group ids that the request names, each once, as Kafka does."""
    return list(dict.fromkeys(request.value.groups_names))


def _delete_operations(request: GroupRequest) -> Iterator[DeleteGroup]:
    for name in _deleted_group(request):
        yield DeleteGroup(group_id=name)


def _delete_values(request: GroupRequest, answers: list[object]) -> dict[str, Any]:
    results = [
        {"group_id": name, "error_code": code_of(answer)}
        for name, answer in zip(_deleted_group(request), answers, strict=True)
    ]
    return {"results": results}


DELETE_GROUPS = GroupApi(_delete_operations, _delete_values, AclOperation.DELETE)
