"""SyncGroup: a member gets its assignment once the leader's are committed.

Source: KIP-62, KIP-345, KIP-559; docs/protocol.md §5.8.1.
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
from plimsoll_core.groups.membership import GroupSynced, SyncGroup


class SyncGroupHandler:
    """`__call__` is the route's handler."""

    def __init__(self, coordinators: Coordinators, aside: Aside) -> None:
        self._coordinators = coordinators
        self._aside = aside

    def __call__(self, context: RequestContext) -> Reply | Awaitable[Reply]:
        return decided(context, self._aside, lambda request: self._serve(context, request))

    def _serve(self, context: RequestContext, request: Any) -> Reply | Awaitable[Reply]:
        op = SyncGroup(
            group_id=request.group_id,
            member_id=request.member_id,
            group_instance_id=getattr(request, "group_instance_id", None),
            generation=request.generation_id,
            protocol_type=getattr(request, "protocol_type", None),
            protocol=getattr(request, "protocol_name", None),
            assignments=tuple(
                (one.member_id, bytes(one.assignment)) for one in request.assignments
            ),
        )
        asker = self._coordinators.ask(request.group_id, op)
        return once_answered([asker], lambda answers: encoded(context, _values(answers[0])))


def _values(answer: object) -> dict[str, Any]:
    if isinstance(answer, RefusedAsWhole):
        return {"error_code": answer.code, "assignment": b""}
    assert isinstance(answer, GroupSynced), answer
    return {
        "error_code": Code.NONE,
        "protocol_type": answer.protocol_type,
        "protocol_name": answer.protocol,
        "assignment": answer.assignment,
    }
