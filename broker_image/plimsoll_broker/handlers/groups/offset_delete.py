"""OffsetDelete: a group forgets what it committed for some partitions (KIP-496).

Source: docs/protocol.md §5.8.
"""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Any

from plimsoll_broker.coordinator.roles import Coordinators
from plimsoll_broker.handlers.groups.asking import (
    by_topic,
    decided,
    encoded,
    once_answered,
    portions,
)
from plimsoll_broker.handlers.large_messages import Aside
from plimsoll_broker.server.dispatch import Reply, RequestContext
from plimsoll_core.coordination.outcome import RefusedAsWhole
from plimsoll_core.errors import Code
from plimsoll_core.groups.operations import DeleteOffsets, OffsetsCommitted


class OffsetDeleteHandler:
    """`__call__` is the route's handler."""

    def __init__(self, coordinators: Coordinators, aside: Aside) -> None:
        self._coordinators = coordinators
        self._aside = aside

    def __call__(self, context: RequestContext) -> Reply | Awaitable[Reply]:
        return decided(context, self._aside, lambda request: self._serve(context, request))

    def _serve(self, context: RequestContext, request: Any) -> Reply | Awaitable[Reply]:
        group_id = request.group_id
        asked = tuple((t.name, p.partition_index) for t in request.topics for p in t.partitions)
        askers = [
            self._coordinators.ask(group_id, DeleteOffsets(group_id=group_id, partitions=part))
            for part in portions(asked)
        ]

        def reply(answers: list[object]) -> Reply:
            rows: list[tuple[str, dict[str, Any]]] = []
            for answer in answers:
                if isinstance(answer, RefusedAsWhole):
                    return encoded(context, {"error_code": answer.code, "topics": []})
                assert isinstance(answer, OffsetsCommitted), answer
                rows += [
                    (one.topic, {"partition_index": one.partition, "error_code": one.code})
                    for one in answer.partitions
                ]
            topics = [{"name": name, "partitions": found} for name, found in by_topic(rows)]
            return encoded(context, {"error_code": Code.NONE, "topics": topics})

        return once_answered(askers, reply)
