"""DescribeGroups: the state and the members of groups.

Before version 6 a group that does not exist is a dead one, without an error (KIP-1043).
Source: docs/protocol.md §5.8.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from plimsoll_broker.handlers.cluster_view import EVERY_OPERATION
from plimsoll_broker.handlers.groups.asking import GroupApi, GroupRequest
from plimsoll_core.coordination.outcome import RefusedAsWhole
from plimsoll_core.errors import Code
from plimsoll_core.groups.operations import DescribedMember, DescribeGroup, GroupDescribed
from plimsoll_core.security.acl import AclOperation, ResourceType

_MISSING_VERSION = 6
_DEAD = "Dead"


def _named(request: GroupRequest) -> list[str]:
    return list(dict.fromkeys(request.value.groups))


def _asks(request: GroupRequest) -> Iterator[DescribeGroup]:
    for name in _named(request):
        yield DescribeGroup(group_id=name)


def _tells(request: GroupRequest, answers: list[object]) -> dict[str, Any]:
    told = [
        {"group_id": name, **_group(request.version, answer)}
        for name, answer in zip(_named(request), answers, strict=True)
    ]
    if getattr(request.value, "include_authorized_operations", False):
        for group in told:
            if not group["error_code"]:
                group["authorized_operations"] = _may(request, group["group_id"])
    return {"groups": told}


def _may(request: GroupRequest, name: str) -> int:
    rights = request.context.rights
    kind = ResourceType.GROUP
    return EVERY_OPERATION[kind] if rights is None else rights.operations(kind, name)


def _group(version: int, answer: object) -> dict[str, Any]:
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


DESCRIBE_GROUPS = GroupApi(_asks, _tells, AclOperation.DESCRIBE)
