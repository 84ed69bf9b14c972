"""LeaveGroup: members leave, or an administrator removes them; from version 3 several at once.

Source: KIP-345, KIP-800; docs/protocol.md §5.8.1.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from plimsoll_broker.handlers.groups.asking import GroupApi, GroupRequest, code_of
from plimsoll_core.errors import Code
from plimsoll_core.groups.membership import LeaveGroup, Leaver, MembersLeft
from plimsoll_core.security.acl import AclOperation

_MANY_MEMBERS_VERSION = 3


def _leavers(request: GroupRequest) -> tuple[Leaver, ...]:
    many = request.version >= _MANY_MEMBERS_VERSION
    named = request.value.members if many else (request.value,)
    return tuple(Leaver(one.member_id, getattr(one, "group_instance_id", None)) for one in named)


def _asks(request: GroupRequest) -> Iterator[LeaveGroup]:
    yield LeaveGroup(group_id=request.value.group_id, members=_leavers(request))


def _tells(request: GroupRequest, answers: list[object]) -> dict[str, Any]:
    (answer,) = answers
    if not isinstance(answer, MembersLeft):
        return {"error_code": code_of(answer), "members": []}
    if request.version < _MANY_MEMBERS_VERSION:
        return {"error_code": answer.codes[0]}
    told = [
        {
            "member_id": one.member_id,
            "group_instance_id": one.group_instance_id,
            "error_code": code,
        }
        for one, code in zip(_leavers(request), answer.codes, strict=True)
    ]
    return {"error_code": Code.NONE, "members": told}


LEAVE_GROUP = GroupApi(_asks, _tells, AclOperation.READ)
