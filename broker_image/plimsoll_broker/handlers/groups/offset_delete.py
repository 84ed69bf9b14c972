"""OffsetDelete: removes a group's committed offsets of some partitions (KIP-496).

Source: docs/protocol.md §5.8.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from plimsoll_broker.handlers.groups.asking import (
    GroupApi,
    GroupRequest,
    by_topic,
    code_of,
    portions,
)
from plimsoll_core.errors import Code
from plimsoll_core.groups.operations import DeleteOffsets, OffsetsCommitted
from plimsoll_core.security.acl import AclOperation


def _asks(request: GroupRequest) -> Iterator[DeleteOffsets]:
    asked = request.value
    named = (
        (topic.name, row.partition_index)
        for topic in asked.topics
        if topic.name not in request.refused
        for row in topic.partitions
    )
    for portion in portions(named):
        yield DeleteOffsets(group_id=asked.group_id, partitions=portion)


def _tells(request: GroupRequest, answers: list[object]) -> dict[str, Any]:
    rows: list[tuple[str, dict[str, Any]]] = []
    for answer in answers:
        if not isinstance(answer, OffsetsCommitted):
            return {"error_code": code_of(answer), "topics": []}
        rows += [
            (one.topic, {"partition_index": one.partition, "error_code": one.code})
            for one in answer.partitions
        ]
    rows += [
        (
            topic.name,
            {
                "partition_index": row.partition_index,
                "error_code": Code.TOPIC_AUTHORIZATION_FAILED,
            },
        )
        for topic in request.value.topics
        if topic.name in request.refused
        for row in topic.partitions
    ]
    return {"error_code": Code.NONE, "topics": by_topic(rows)}


def _topics(value: Any) -> Iterator[str]:
    return (topic.name for topic in value.topics)


OFFSET_DELETE = GroupApi(_asks, _tells, AclOperation.DELETE, _topics)
