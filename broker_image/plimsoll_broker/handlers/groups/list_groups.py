"""ListGroups: the groups that this broker coordinates; a tool asks every broker.

Source: KIP-518 (states), KIP-848 (types); docs/protocol.md §5.8.
"""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Any

from plimsoll_broker.coordinator.group_shard import ShardPhase
from plimsoll_broker.coordinator.roles import Coordinators
from plimsoll_broker.handlers.groups.asking import decided, encoded, once_answered
from plimsoll_broker.handlers.large_messages import Aside
from plimsoll_broker.server.dispatch import Reply, RequestContext
from plimsoll_core.coordination.outcome import RefusedAsWhole
from plimsoll_core.errors import Code
from plimsoll_core.groups.operations import GroupsListed, ListedGroup, ListGroups


class ListGroupsHandler:
    """`__call__` is the route's handler."""

    def __init__(self, coordinators: Coordinators, aside: Aside) -> None:
        self._coordinators = coordinators
        self._aside = aside

    def __call__(self, context: RequestContext) -> Reply | Awaitable[Reply]:
        return decided(context, self._aside, lambda request: self._serve(context, request))

    def _serve(self, context: RequestContext, request: Any) -> Reply | Awaitable[Reply]:
        op = ListGroups(
            states=tuple(getattr(request, "states_filter", ())),
            types=tuple(getattr(request, "types_filter", ())),
        )
        shards = [s for s in self._coordinators.shards() if s.phase is not ShardPhase.FAILED]
        askers = [shard.ask(op) for shard in shards]

        def reply(answers: list[object]) -> Reply:
            listed: list[ListedGroup] = []
            for answer in answers:
                if isinstance(answer, RefusedAsWhole):
                    if answer.code is Code.NOT_COORDINATOR:
                        continue  # another broker tells of these groups
                    return encoded(context, {"error_code": answer.code, "groups": []})
                assert isinstance(answer, GroupsListed), answer
                listed += answer.groups
            groups = [_group(one) for one in listed]
            return encoded(context, {"error_code": Code.NONE, "groups": groups})

        return once_answered(askers, reply)


def _group(listed: ListedGroup) -> dict[str, Any]:
    return {
        "group_id": listed.group_id,
        "protocol_type": listed.protocol_type,
        "group_state": listed.state,
        "group_type": listed.group_type,
    }
