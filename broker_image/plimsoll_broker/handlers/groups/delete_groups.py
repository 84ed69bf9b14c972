"""DeleteGroups: groups without members go, with all that they committed.

A group of very many offsets goes in portions.  Source: docs/protocol.md §5.8.
"""

from __future__ import annotations

from typing import Any

from plimsoll_broker.coordinator.roles import Coordinators
from plimsoll_broker.handlers.groups.asking import encoded
from plimsoll_broker.handlers.large_messages import Aside
from plimsoll_broker.server.dispatch import Reply, RequestContext
from plimsoll_core.coordination.outcome import RefusedAsWhole
from plimsoll_core.errors import Code
from plimsoll_core.groups.operations import DeleteGroup, GroupDeleted, GroupShrunk


class DeleteGroupsHandler:
    """`__call__` is the route's handler."""

    def __init__(self, coordinators: Coordinators, aside: Aside) -> None:
        self._coordinators = coordinators
        self._aside = aside

    async def __call__(self, context: RequestContext) -> Reply:
        request = await self._aside.decoded(context)
        results: list[dict[str, Any]] = []
        for group_id in dict.fromkeys(request.groups_names):
            code = await self._delete(group_id)
            results.append({"group_id": group_id, "error_code": code})
        return encoded(context, {"results": results})

    async def _delete(self, group_id: str) -> Code:
        answer: object = GroupShrunk()
        while isinstance(answer, GroupShrunk):
            op = DeleteGroup(group_id=group_id)
            answer = await self._coordinators.ask(group_id, op).future()
        if isinstance(answer, RefusedAsWhole):
            return answer.code
        assert isinstance(answer, GroupDeleted), answer
        return Code.NONE
