"""The APIs of committed offsets.

`OffsetCommit`: stores a group's offsets; answered once they are committed. Source: docs/protocol.md
§5.8.

`OffsetFetch`: the committed offsets of groups, for some partitions or for all. With
`require_stable` a partition gets an error while an open transaction has a pending offset of it.
Source: KIP-709 (many groups), KIP-447 (stable offsets); docs/protocol.md §5.8.

`OffsetDelete`: removes a group's committed offsets of some partitions (KIP-496). Source:
docs/protocol.md §5.8.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import timedelta
from itertools import chain
from typing import Any

from plimsoll_broker.handlers.groups.group_api import (
    GroupApi,
    GroupRequest,
    by_topic,
    code_of,
    codes_of,
    portions,
)
from plimsoll_core.errors import Code
from plimsoll_core.groups.memory import PRINCIPAL_MAX
from plimsoll_core.groups.operations import (
    AllOffsetsFetched,
    CommitOffsets,
    DeleteOffsets,
    FetchAllOffsets,
    FetchedOffset,
    FetchOffsets,
    OffsetsCommitted,
    OffsetsFetched,
    PartitionOffset,
)
from plimsoll_core.security.acl import AclOperation, ResourceType

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


def _commit_operations(request: GroupRequest) -> Iterator[CommitOffsets]:
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


def _commit_values(request: GroupRequest, answers: list[object]) -> dict[str, Any]:
    codes = (
        code
        for portion, answer in zip(portions(_offsets(request)), answers, strict=True)
        for code in codes_of(len(portion), answer)
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


def _committed_topics(value: Any) -> Iterator[str]:
    return (topic.name for topic in value.topics)


OFFSET_COMMIT = GroupApi(
    _commit_operations, _commit_values, AclOperation.READ, _committed_topics, writes=True
)


_MANY_GROUPS_VERSION = 8
_GROUP_CODE_VERSION = 2


def _groups(request: GroupRequest) -> Iterator[tuple[Any, bool]]:
    """Yield each group of the request in order, with True if the request has named the same group
    before. The caller refuses a repeated group, so that a reply cannot be many times as large as
    the committed offsets."""
    many = request.version >= _MANY_GROUPS_VERSION
    seen: set[str] = set()
    for group in request.value.groups if many else (request.value,):
        yield group, group.group_id in seen
        seen.add(group.group_id)


def _named(request: GroupRequest, group: Any) -> Iterator[tuple[str, int]]:
    return (
        (topic.name, index)
        for topic in group.topics
        if topic.name not in request.refused
        for index in topic.partition_indexes
    )


def _of_group(request: GroupRequest, group: Any) -> Iterator[FetchOffsets | FetchAllOffsets]:
    stable = getattr(request.value, "require_stable", False)
    if group.topics is None:
        yield FetchAllOffsets(group_id=group.group_id, stable=stable)
        return
    for portion in portions(_named(request, group)):
        yield FetchOffsets(group_id=group.group_id, partitions=portion, stable=stable)


def _fetch_operations(request: GroupRequest) -> Iterator[FetchOffsets | FetchAllOffsets]:
    for group, again in _groups(request):
        if not again:
            yield from _of_group(request, group)


def _fetch_values(request: GroupRequest, answers: list[object]) -> dict[str, Any]:
    left = iter(answers)
    told = []
    for group, again in _groups(request):
        if again:
            told.append(_refused(group, Code.INVALID_REQUEST))
        else:
            told.append(_told(request, group, [next(left) for _ in _of_group(request, group)]))
    if request.version >= _MANY_GROUPS_VERSION:
        return {"groups": told}
    (values,) = told
    code: Code = values["error_code"]
    if request.version < _GROUP_CODE_VERSION and code is not Code.NONE:
        # Before version 2, which has a code for the group, each partition has it.
        nothing = (
            FetchedOffset(topic.name, index)
            for topic in request.value.topics
            for index in topic.partition_indexes
        )
        return {"topics": by_topic(_row(one, code) for one in nothing)}
    return values


def _refused(group: Any, code: Code) -> dict[str, Any]:
    return {"group_id": group.group_id, "error_code": code, "topics": []}


def _told(request: GroupRequest, group: Any, answers: list[object]) -> dict[str, Any]:
    """Return the response's values for one group: its error code if any of its operations failed;
    otherwise its offsets, with an error for each partition of a denied topic."""
    found: list[Iterable[FetchedOffset]] = []
    for answer in answers:
        match answer:
            case OffsetsFetched(offsets):
                found.append(offsets)
            case AllOffsetsFetched():
                found.append(_seen(request, answer.offsets()))
            case _:
                return _refused(group, code_of(answer))
    rows = (_row(one, _code_of(one)) for offsets in found for one in offsets)
    nothing = (
        _row(FetchedOffset(topic.name, index), request.topic_code)
        for topic in group.topics or ()
        if topic.name in request.refused
        for index in topic.partition_indexes
    )
    topics = by_topic(chain(rows, nothing))
    topics += [
        {"name": topic.name, "partitions": []}
        for topic in group.topics or ()
        if not topic.partition_indexes
    ]
    return {"group_id": group.group_id, "error_code": Code.NONE, "topics": topics}


def _code_of(one: FetchedOffset) -> Code:
    return Code.NONE if one.is_stable else Code.UNSTABLE_OFFSET_COMMIT


def _seen(request: GroupRequest, offsets: Iterable[FetchedOffset]) -> Iterable[FetchedOffset]:
    """Return the offsets without those of topics that the client may not describe."""
    rights = request.context.rights
    if rights is None:
        return offsets
    return (one for one in offsets if rights.sees(ResourceType.TOPIC, one.topic))


def _fetched_topics(value: Any) -> Iterator[str]:
    groups = getattr(value, "groups", None)
    for group in (value,) if groups is None else groups:
        for topic in group.topics or ():
            yield topic.name


def _row(one: FetchedOffset, code: Code) -> tuple[str, dict[str, Any]]:
    row = {
        "partition_index": one.partition,
        "committed_offset": one.offset,
        "committed_leader_epoch": one.leader_epoch,
        "metadata": one.metadata,
        "error_code": code,
    }
    return one.topic, row


OFFSET_FETCH = GroupApi(
    _fetch_operations,
    _fetch_values,
    AclOperation.DESCRIBE,
    _fetched_topics,
    topic_right=AclOperation.DESCRIBE,
)


def _delete_operations(request: GroupRequest) -> Iterator[DeleteOffsets]:
    asked = request.value
    named = (
        (topic.name, row.partition_index)
        for topic in asked.topics
        if topic.name not in request.refused
        for row in topic.partitions
    )
    for portion in portions(named):
        yield DeleteOffsets(group_id=asked.group_id, partitions=portion)


def _delete_values(request: GroupRequest, answers: list[object]) -> dict[str, Any]:
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


def _deleted_topics(value: Any) -> Iterator[str]:
    return (topic.name for topic in value.topics)


OFFSET_DELETE = GroupApi(_delete_operations, _delete_values, AclOperation.DELETE, _deleted_topics)
