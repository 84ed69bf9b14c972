"""LeaveGroup: members go, or an administrator sends them away; from version 3 several at once.

Source: KIP-345, KIP-800; docs/protocol.md §5.8.1.
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
from plimsoll_core.groups.membership import LeaveGroup, Leaver, MembersLeft

_MANY_MEMBERS_VERSION = 3


class LeaveGroupHandler:
    """`__call__` is the route's handler."""

    def __init__(self, coordinators: Coordinators, aside: Aside) -> None:
        self._coordinators = coordinators
        self._aside = aside

    def __call__(self, context: RequestContext) -> Reply | Awaitable[Reply]:
        return decided(context, self._aside, lambda request: self._serve(context, request))

    def _serve(self, context: RequestContext, request: Any) -> Reply | Awaitable[Reply]:
        many = context.api_version >= _MANY_MEMBERS_VERSION
        named = request.members if many else (request,)
        leavers = tuple(
            Leaver(one.member_id, getattr(one, "group_instance_id", None)) for one in named
        )
        op = LeaveGroup(group_id=request.group_id, members=leavers)
        asker = self._coordinators.ask(request.group_id, op)

        def reply(answers: list[object]) -> Reply:
            (answer,) = answers
            if isinstance(answer, RefusedAsWhole):
                return encoded(context, {"error_code": answer.code, "members": []})
            assert isinstance(answer, MembersLeft), answer
            if not many:
                return encoded(context, {"error_code": answer.codes[0]})
            told = [
                {
                    "member_id": one.member_id,
                    "group_instance_id": one.group_instance_id,
                    "error_code": code,
                }
                for one, code in zip(leavers, answer.codes, strict=True)
            ]
            return encoded(context, {"error_code": Code.NONE, "members": told})

        return once_answered([asker], reply)
