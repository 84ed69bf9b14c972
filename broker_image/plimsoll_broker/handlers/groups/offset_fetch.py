"""OffsetFetch: the committed offsets of groups, for some partitions or for all.

`require_stable` is always met: there are no transactions. Source: KIP-709 (many groups);
docs/protocol.md §5.8.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
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
from plimsoll_core.groups.operations import (
    AllOffsetsFetched,
    FetchAllOffsets,
    FetchedOffset,
    FetchOffsets,
    OffsetsFetched,
)
from plimsoll_core.security.acl import AclOperation, ResourceType

_MANY_GROUPS_VERSION = 8
_GROUP_CODE_VERSION = 2


def _groups(request: GroupRequest) -> Iterator[tuple[Any, bool]]:
    """Yield each group, with True if it was named before. A repeated group is refused, so that a
    reply is not a multiple of what is committed."""
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
    if group.topics is None:
        yield FetchAllOffsets(group_id=group.group_id)
        return
    for portion in portions(_named(request, group)):
        yield FetchOffsets(group_id=group.group_id, partitions=portion)


def _asks(request: GroupRequest) -> Iterator[FetchOffsets | FetchAllOffsets]:
    for group, again in _groups(request):
        if not again:
            yield from _of_group(request, group)


def _tells(request: GroupRequest, answers: list[object]) -> dict[str, Any]:
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
    """Return a group's error code and offsets."""
    found: list[Iterable[FetchedOffset]] = []
    for answer in answers:
        match answer:
            case OffsetsFetched(offsets):
                found.append(offsets)
            case AllOffsetsFetched():
                found.append(_seen(request, answer.offsets()))
            case _:
                return _refused(group, code_of(answer))
    rows = (_row(one, Code.NONE) for offsets in found for one in offsets)
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


def _seen(request: GroupRequest, offsets: Iterable[FetchedOffset]) -> Iterable[FetchedOffset]:
    """Return the offsets of topics that the client may describe."""
    rights = request.context.rights
    if rights is None:
        return offsets
    return (one for one in offsets if rights.sees(ResourceType.TOPIC, one.topic))


def _topics(value: Any) -> Iterator[str]:
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
    _asks, _tells, AclOperation.DESCRIBE, _topics, topic_right=AclOperation.DESCRIBE
)
