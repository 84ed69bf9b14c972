"""OffsetCommit: stores a group's offsets, answered once they are committed.

Source: docs/protocol.md §5.8.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from itertools import chain
from typing import Any

from plimsoll_broker.handlers.groups.asking import (
    GroupApi,
    GroupRequest,
    by_topic,
    code_of,
    portions,
)
from plimsoll_core.errors import Code
from plimsoll_core.groups.memory import PRINCIPAL_MAX
from plimsoll_core.groups.operations import CommitOffsets, OffsetsCommitted, PartitionOffset
from plimsoll_core.security.acl import AclOperation

_MISSING_GROUPS_VERSION = 9
_NOT_SAID = timedelta(milliseconds=-1)


def _offsets(request: GroupRequest) -> Iterator[PartitionOffset]:
    for topic in request.value.topics:
        if topic.name in request.refused:
            continue
        for partition in topic.partitions:
            yield PartitionOffset(
                topic.name,
                partition.partition_index,
                partition.committed_offset,
                getattr(partition, "committed_leader_epoch", -1),
                partition.committed_metadata or "",
            )


def _asks(request: GroupRequest) -> Iterator[CommitOffsets]:
    asked = request.value
    retention_ms = getattr(asked, "retention_time", _NOT_SAID) // timedelta(milliseconds=1)
    for portion in portions(_offsets(request)):
        yield CommitOffsets(
            group_id=asked.group_id,
            member_id=asked.member_id,
            group_instance_id=getattr(asked, "group_instance_id", None),
            generation=asked.generation_id_or_member_epoch,
            offsets=portion,
            retention_ms=None if retention_ms < 0 else retention_ms,
            principal=request.context.connection.holder[:PRINCIPAL_MAX],
            tells_missing_groups=request.version >= _MISSING_GROUPS_VERSION,
        )


def _tells(request: GroupRequest, answers: list[object]) -> dict[str, Any]:
    codes = (
        code
        for portion, answer in zip(portions(_offsets(request)), answers, strict=True)
        for code in _codes(len(portion), answer)
    )
    rows = (
        (one.topic, {"partition_index": one.partition, "error_code": code})
        for one, code in zip(_offsets(request), codes, strict=True)
    )
    denied = (
        (
            topic.name,
            {
                "partition_index": partition.partition_index,
                "error_code": request.topic_code,
            },
        )
        for topic in request.value.topics
        if topic.name in request.refused
        for partition in topic.partitions
    )
    return {"topics": by_topic(chain(rows, denied))}


def _topics(value: Any) -> Iterator[str]:
    return (topic.name for topic in value.topics)


def _codes(size: int, answer: object) -> list[Code]:
    if isinstance(answer, OffsetsCommitted):
        return [one.code for one in answer.partitions]
    return [code_of(answer)] * size


OFFSET_COMMIT = GroupApi(_asks, _tells, AclOperation.READ, _topics, writes=True)
