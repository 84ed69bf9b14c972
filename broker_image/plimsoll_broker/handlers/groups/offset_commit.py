"""OffsetCommit: how far a group has come, answered once it is committed.

Source: docs/protocol.md §5.8.
"""

from __future__ import annotations

from collections.abc import Awaitable
from datetime import timedelta
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
from plimsoll_core.groups.operations import CommitOffsets, OffsetsCommitted, PartitionOffset

_MISSING_GROUPS_VERSION = 9


class OffsetCommitHandler:
    """`__call__` is the route's handler."""

    def __init__(self, coordinators: Coordinators, aside: Aside) -> None:
        self._coordinators = coordinators
        self._aside = aside

    def __call__(self, context: RequestContext) -> Reply | Awaitable[Reply]:
        return decided(context, self._aside, lambda request: self._serve(context, request))

    def _serve(self, context: RequestContext, request: Any) -> Reply | Awaitable[Reply]:
        asked = [
            PartitionOffset(
                topic.name,
                partition.partition_index,
                partition.committed_offset,
                getattr(partition, "committed_leader_epoch", -1),
                partition.committed_metadata or "",
            )
            for topic in request.topics
            for partition in topic.partitions
        ]
        parts = list(portions(tuple(asked)))
        ask = self._coordinators.ask
        askers = [ask(request.group_id, _operation(context, request, part)) for part in parts]

        def reply(answers: list[object]) -> Reply:
            codes = [
                code
                for part, answer in zip(parts, answers, strict=True)
                for code in _codes(part, answer)
            ]
            self._coordinators.stats.answered(codes)
            rows = [
                (one.topic, {"partition_index": one.partition, "error_code": code})
                for one, code in zip(asked, codes, strict=True)
            ]
            topics = [{"name": name, "partitions": found} for name, found in by_topic(rows)]
            return encoded(context, {"topics": topics})

        return once_answered(askers, reply)


def _operation(
    context: RequestContext, request: Any, offsets: tuple[PartitionOffset, ...]
) -> CommitOffsets:
    retention: timedelta = getattr(request, "retention_time", timedelta(milliseconds=-1))
    retention_ms = int(retention / timedelta(milliseconds=1))
    return CommitOffsets(
        group_id=request.group_id,
        member_id=request.member_id,
        group_instance_id=getattr(request, "group_instance_id", None),
        generation=request.generation_id_or_member_epoch,
        offsets=offsets,
        retention_ms=None if retention_ms < 0 else retention_ms,
        tells_missing_groups=context.api_version >= _MISSING_GROUPS_VERSION,
    )


def _codes(offsets: tuple[PartitionOffset, ...], answer: object) -> list[Code]:
    if isinstance(answer, RefusedAsWhole):
        return [answer.code] * len(offsets)
    assert isinstance(answer, OffsetsCommitted), answer
    return [one.code for one in answer.partitions]
