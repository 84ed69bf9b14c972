"""JoinGroup: a member joins, and is answered when its group's members are known.

Source: KIP-62, KIP-345, KIP-394, KIP-814; docs/protocol.md §5.8.1.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Any
from uuid import uuid4

from plimsoll_broker.handlers.groups.asking import GroupApi, GroupRequest, code_of
from plimsoll_core.errors import Code
from plimsoll_core.groups.membership import GroupJoined, JoinedMember, JoinGroup, MemberIdGiven
from plimsoll_core.groups.memory import PRINCIPAL_MAX
from plimsoll_core.security.acl import AclOperation

_ID_FIRST_VERSION = 4
_NO_PROTOCOL_VERSION = 7
_SKIP_ASSIGNMENT_VERSION = 9
_NOT_SAID = timedelta(milliseconds=-1)


def _asks(request: GroupRequest) -> Iterator[JoinGroup]:
    asked, context, version = request.value, request.context, request.version
    instance = getattr(asked, "group_instance_id", None)
    client_id = context.client_id or ""
    session_timeout_ms = _milliseconds(asked.session_timeout)
    # Before version 1 there was one timeout for both.
    rebalance_timeout_ms = _milliseconds(getattr(asked, "rebalance_timeout", _NOT_SAID))
    yield JoinGroup(
        group_id=asked.group_id,
        member_id=asked.member_id,
        group_instance_id=instance,
        new_member_id=f"{client_id if instance is None else instance}-{uuid4()}",
        client_id=client_id,
        client_host=f"/{context.connection.client.rpartition(':')[0]}",
        session_timeout_ms=session_timeout_ms,
        rebalance_timeout_ms=(
            session_timeout_ms if rebalance_timeout_ms < 0 else rebalance_timeout_ms
        ),
        protocol_type=asked.protocol_type,
        protocols=tuple((one.name, bytes(one.metadata)) for one in asked.protocols),
        principal=context.connection.holder[:PRINCIPAL_MAX],
        must_know_its_id=version >= _ID_FIRST_VERSION,
        may_skip_assignment=version >= _SKIP_ASSIGNMENT_VERSION,
    )


def _milliseconds(time: timedelta) -> int:
    """Return kio's duration in whole milliseconds."""
    return time // timedelta(milliseconds=1)


def _tells(request: GroupRequest, answers: list[object]) -> dict[str, Any]:
    (answer,) = answers
    match answer:
        case GroupJoined():
            return {
                "error_code": Code.NONE,
                "generation_id": answer.generation,
                "protocol_type": answer.protocol_type,
                "protocol_name": answer.protocol,
                "leader": answer.leader,
                "skip_assignment": answer.skip_assignment,
                "member_id": answer.member_id,
                "members": [_member(one) for one in answer.members],
            }
        case MemberIdGiven(member_id):
            return _refused(request, Code.MEMBER_ID_REQUIRED, member_id)
    return _refused(request, code_of(answer), request.value.member_id)


def _member(member: JoinedMember) -> dict[str, Any]:
    return {
        "member_id": member.member_id,
        "group_instance_id": member.group_instance_id,
        "metadata": member.metadata,
    }


def _refused(request: GroupRequest, code: Code, member_id: str) -> dict[str, Any]:
    return {
        "error_code": code,
        "generation_id": -1,
        "protocol_name": None if request.version >= _NO_PROTOCOL_VERSION else "",
        "leader": "",
        "member_id": member_id,
        "members": [],
    }


JOIN_GROUP = GroupApi(_asks, _tells, AclOperation.READ)
