"""The APIs by which members take part in a group.

`JoinGroup`: a member joins, and is answered when its group's members are known. Source: KIP-62,
KIP-345, KIP-394, KIP-814; docs/protocol.md §5.8.1.

`SyncGroup`: a member gets its assignment once the leader's assignments are committed. From version
5 on a member must name its protocol. Source: KIP-62, KIP-345, KIP-559; docs/protocol.md §5.8.1.

`Heartbeat`: a member reports that it is alive, and learns whether it still belongs to the group.
Source: KIP-62, KIP-345; docs/protocol.md §5.8.1.

`LeaveGroup`: members leave, or an administrator removes them; from version 3 several at once. Many
leave in portions, each of them a decision. Source: KIP-345, KIP-800; docs/protocol.md §5.8.1.

`refuse_heartbeat`: refuses members of group protocols that are not served: KIP-848 consumer groups
and share groups. ApiVersions lists their heartbeats, and the answer is UNSUPPORTED_VERSION (35), as
from an Apache Kafka with `group.coordinator.rebalance.protocols` `classic`. librdkafka waits in
silence if ApiVersions does not list the heartbeat; told 35, it ends with a sentence. No other API
of these protocols is listed. No request is decoded, so no right is required.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Any
from uuid import uuid4

from plimsoll_broker.handlers.groups.group_api import GroupApi, GroupRequest, code_of, portions
from plimsoll_broker.server.dispatch import Reply, RequestContext
from plimsoll_core.errors import Code
from plimsoll_core.groups.membership import (
    GroupJoined,
    GroupSynced,
    JoinedMember,
    JoinGroup,
    LeaveGroup,
    Leaver,
    MemberHeartbeat,
    MemberIdGiven,
    MembersLeft,
    SyncGroup,
)
from plimsoll_core.groups.memory import PRINCIPAL_MAX
from plimsoll_core.security.acl import AclOperation
from plimsoll_wire.messages import encode_response

_ID_FIRST_VERSION = 4
_NO_PROTOCOL_VERSION = 7
_SKIP_ASSIGNMENT_VERSION = 9
_NOT_SAID = timedelta(milliseconds=-1)


def _join_operations(request: GroupRequest) -> Iterator[JoinGroup]:
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
    """Return a parsed duration in whole milliseconds."""
    return time // timedelta(milliseconds=1)


def _join_values(request: GroupRequest, answers: list[object]) -> dict[str, Any]:
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


JOIN_GROUP = GroupApi(_join_operations, _join_values, AclOperation.READ)


_PROTOCOL_VERSION = 5


def _sync_operations(request: GroupRequest) -> Iterator[SyncGroup]:
    asked = request.value
    protocol_type = getattr(asked, "protocol_type", None)
    protocol = getattr(asked, "protocol_name", None)
    if request.version >= _PROTOCOL_VERSION and None in (protocol_type, protocol):
        return
    yield SyncGroup(
        group_id=asked.group_id,
        member_id=asked.member_id,
        group_instance_id=getattr(asked, "group_instance_id", None),
        generation=asked.generation_id,
        protocol_type=protocol_type,
        protocol=protocol,
        assignments=tuple((one.member_id, bytes(one.assignment)) for one in asked.assignments),
    )


def _sync_values(_: GroupRequest, answers: list[object]) -> dict[str, Any]:
    if not answers:
        return {"error_code": Code.INCONSISTENT_GROUP_PROTOCOL, "assignment": b""}
    (answer,) = answers
    if not isinstance(answer, GroupSynced):
        return {"error_code": code_of(answer), "assignment": b""}
    return {
        "error_code": Code.NONE,
        "protocol_type": answer.protocol_type,
        "protocol_name": answer.protocol,
        "assignment": answer.assignment,
    }


SYNC_GROUP = GroupApi(_sync_operations, _sync_values, AclOperation.READ)


def _heartbeat_operations(request: GroupRequest) -> Iterator[MemberHeartbeat]:
    asked = request.value
    yield MemberHeartbeat(
        group_id=asked.group_id,
        member_id=asked.member_id,
        group_instance_id=getattr(asked, "group_instance_id", None),
        generation=asked.generation_id,
    )


def _heartbeat_values(_: GroupRequest, answers: list[object]) -> dict[str, Any]:
    """Return the response's values. As in Kafka, a heartbeat never gets
    COORDINATOR_LOAD_IN_PROGRESS, which some clients take for a fault; it gets
    COORDINATOR_NOT_AVAILABLE instead."""
    code = code_of(answers[0])
    loads = code is Code.COORDINATOR_LOAD_IN_PROGRESS
    return {"error_code": Code.COORDINATOR_NOT_AVAILABLE if loads else code}


HEARTBEAT = GroupApi(_heartbeat_operations, _heartbeat_values, AclOperation.READ)


_MANY_MEMBERS_VERSION = 3


def _leavers(request: GroupRequest) -> Iterator[Leaver]:
    many = request.version >= _MANY_MEMBERS_VERSION
    named = request.value.members if many else (request.value,)
    return (Leaver(one.member_id, getattr(one, "group_instance_id", None)) for one in named)


def _leave_operations(request: GroupRequest) -> Iterator[LeaveGroup]:
    for portion in portions(_leavers(request)):
        yield LeaveGroup(group_id=request.value.group_id, members=portion)


def _leave_values(request: GroupRequest, answers: list[object]) -> dict[str, Any]:
    first = answers[0]
    if not isinstance(first, MembersLeft):
        return {"error_code": code_of(first), "members": []}
    if request.version < _MANY_MEMBERS_VERSION:
        return {"error_code": first.codes[0]}
    codes = (
        code
        for portion, answer in zip(portions(_leavers(request)), answers, strict=True)
        for code in (
            answer.codes if isinstance(answer, MembersLeft) else [code_of(answer)] * len(portion)
        )
    )
    told = [
        {
            "member_id": one.member_id,
            "group_instance_id": one.group_instance_id,
            "error_code": code,
        }
        for one, code in zip(_leavers(request), codes, strict=True)
    ]
    return {"error_code": Code.NONE, "members": told}


LEAVE_GROUP = GroupApi(_leave_operations, _leave_values, AclOperation.READ)


_SENTENCES = {
    68: "This cluster serves the classic group protocol only: set group.protocol=classic.",
    76: "This cluster serves no share groups: use a consumer group.",
}
"""The error messages by API key: ConsumerGroupHeartbeat, ShareGroupHeartbeat."""


def refuse_heartbeat(context: RequestContext) -> Reply:
    values = {
        "error_code": Code.UNSUPPORTED_VERSION,
        "error_message": _SENTENCES[context.api_key],
        "member_epoch": 0,
        "heartbeat_interval": 0,
        "assignment": None,
    }
    return encode_response(context.api_key, context.api_version, values)
