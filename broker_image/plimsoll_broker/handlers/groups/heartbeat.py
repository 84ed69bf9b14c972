"""Heartbeat: a member reports that it is alive, and learns whether it still belongs to the group.

Source: KIP-62, KIP-345; docs/protocol.md §5.8.1.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from plimsoll_broker.handlers.groups.asking import GroupApi, GroupRequest, code_of
from plimsoll_core.errors import Code
from plimsoll_core.groups.membership import MemberHeartbeat
from plimsoll_core.security.acl import AclOperation


def _asks(request: GroupRequest) -> Iterator[MemberHeartbeat]:
    asked = request.value
    yield MemberHeartbeat(
        group_id=asked.group_id,
        member_id=asked.member_id,
        group_instance_id=getattr(asked, "group_instance_id", None),
        generation=asked.generation_id,
    )


def _tells(_: GroupRequest, answers: list[object]) -> dict[str, Any]:
    """Return the response's values. As in Kafka, a heartbeat never gets
    COORDINATOR_LOAD_IN_PROGRESS, which some clients take for a fault."""
    code = code_of(answers[0])
    loads = code is Code.COORDINATOR_LOAD_IN_PROGRESS
    return {"error_code": Code.COORDINATOR_NOT_AVAILABLE if loads else code}


HEARTBEAT = GroupApi(_asks, _tells, AclOperation.READ)
