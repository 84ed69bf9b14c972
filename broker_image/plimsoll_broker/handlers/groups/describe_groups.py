"""DescribeGroups: the state and the members of groups.

Before version 6 a group that does not exist is a dead one, without an error (KIP-1043).
Source: docs/protocol.md §5.8.
"""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Any

from plimsoll_broker.coordinator.roles import Coordinators
from plimsoll_broker.handlers.groups.asking import decided, encoded, once_answered
from plimsoll_broker.handlers.large_messages import Aside
from plimsoll_broker.server.dispatch import Reply, RequestContext
from plimsoll_core.coordination.outcome import RefusedAsWhole
from plimsoll_core.errors import Code
from plimsoll_core.groups.operations import DescribedMember, DescribeGroup, GroupDescribed

_MISSING_VERSION = 6
_DEAD = "Dead"


class DescribeGroupsHandler:
    """`__call__` is the route's handler."""

    def __init__(self, coordinators: Coordinators, aside: Aside) -> None:
        self._coordinators = coordinators
        self._aside = aside

    def __call__(self, context: RequestContext) -> Reply | Awaitable[Reply]:
        return decided(context, self._aside, lambda request: self._serve(context, request))

    def _serve(self, context: RequestContext, request: Any) -> Reply | Awaitable[Reply]:
        names = list(dict.fromkeys(request.groups))
        ask = self._coordinators.ask
        askers = [ask(name, DescribeGroup(group_id=name)) for name in names]

        def reply(answers: list[object]) -> Reply:
            told = [
                {"group_id": name, **_group(context.api_version, answer)}
                for name, answer in zip(names, answers, strict=True)
            ]
            return encoded(context, {"groups": told})

        return once_answered(askers, reply)


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
