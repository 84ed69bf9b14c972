"""SyncGroup: a member gets its assignment once the leader's assignments are committed.

From version 5 on a member must name its protocol. Source: KIP-62, KIP-345, KIP-559;
docs/protocol.md §5.8.1.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from plimsoll_broker.handlers.groups.asking import GroupApi, GroupRequest, code_of
from plimsoll_core.errors import Code
from plimsoll_core.groups.membership import GroupSynced, SyncGroup
from plimsoll_core.security.acl import AclOperation

_PROTOCOL_VERSION = 5


def _asks(request: GroupRequest) -> Iterator[SyncGroup]:
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


def _tells(_: GroupRequest, answers: list[object]) -> dict[str, Any]:
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


SYNC_GROUP = GroupApi(_asks, _tells, AclOperation.READ)
