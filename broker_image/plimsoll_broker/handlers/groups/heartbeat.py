"""Heartbeat: a member says that it lives, and hears whether it is still one.

Source: KIP-62, KIP-345; docs/protocol.md §5.8.1.
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
from plimsoll_core.groups.membership import MemberHeartbeat


class HeartbeatHandler:
    """`__call__` is the route's handler."""

    def __init__(self, coordinators: Coordinators, aside: Aside) -> None:
        self._coordinators = coordinators
        self._aside = aside

    def __call__(self, context: RequestContext) -> Reply | Awaitable[Reply]:
        return decided(context, self._aside, lambda request: self._serve(context, request))

    def _serve(self, context: RequestContext, request: Any) -> Reply | Awaitable[Reply]:
        op = MemberHeartbeat(
            group_id=request.group_id,
            member_id=request.member_id,
            group_instance_id=getattr(request, "group_instance_id", None),
            generation=request.generation_id,
        )
        asker = self._coordinators.ask(request.group_id, op)

        def reply(answers: list[object]) -> Reply:
            (answer,) = answers
            code = answer.code if isinstance(answer, RefusedAsWhole) else Code.NONE
            return encoded(context, {"error_code": code})

        return once_answered([asker], reply)
