"""OffsetFetch: what groups have committed, of some partitions or of all.

`require_stable` holds by itself: there are no transactions.  Source: KIP-709 (many groups);
docs/protocol.md §5.8.
"""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Any, NamedTuple

from plimsoll_broker.coordinator.answers import Asker
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
from plimsoll_core.groups.operations import FetchedOffset, FetchOffsets, OffsetsFetched

_MANY_GROUPS_VERSION = 8
_GROUP_CODE_VERSION = 2


class _AskedGroup(NamedTuple):
    """One group of a request; `partitions` None: all that it has."""

    group_id: str
    partitions: tuple[tuple[str, int], ...] | None
    askers: list[Asker]


class OffsetFetchHandler:
    """`__call__` is the route's handler."""

    def __init__(self, coordinators: Coordinators, aside: Aside) -> None:
        self._coordinators = coordinators
        self._aside = aside

    def __call__(self, context: RequestContext) -> Reply | Awaitable[Reply]:
        return decided(context, self._aside, lambda request: self._serve(context, request))

    def _serve(self, context: RequestContext, request: Any) -> Reply | Awaitable[Reply]:
        many = context.api_version >= _MANY_GROUPS_VERSION
        groups = [self._ask(group) for group in (request.groups if many else (request,))]
        every = [asker for group in groups for asker in group.askers]

        def reply(_: list[object]) -> Reply:
            if many:
                told = [{"group_id": group.group_id, **_told(group)} for group in groups]
                return encoded(context, {"groups": told})
            (group,) = groups
            return encoded(context, _told_alone(context.api_version, group))

        return once_answered(every, reply)

    def _ask(self, group: Any) -> _AskedGroup:
        asked = None
        if group.topics is not None:
            asked = tuple((t.name, index) for t in group.topics for index in t.partition_indexes)
        parts = (None,) if asked is None else portions(asked)
        askers = [
            self._coordinators.ask(
                group.group_id, FetchOffsets(group_id=group.group_id, partitions=part)
            )
            for part in parts
        ]
        return _AskedGroup(group.group_id, asked, askers)


def _told(group: _AskedGroup) -> dict[str, Any]:
    """A group's own code and its offsets."""
    found: list[FetchedOffset] = []
    for asker in group.askers:
        answer = asker.answer_value
        if isinstance(answer, RefusedAsWhole):
            return {"error_code": answer.code, "topics": []}
        assert isinstance(answer, OffsetsFetched), answer
        found += answer.offsets
    return {"error_code": Code.NONE, "topics": _topics(found, Code.NONE)}


def _told_alone(version: int, group: _AskedGroup) -> dict[str, Any]:
    """Before a group had a code, each partition told it."""
    values = _told(group)
    code: Code = values["error_code"]
    if version < _GROUP_CODE_VERSION and code is not Code.NONE:
        nothing = [FetchedOffset(topic, index) for topic, index in group.partitions or ()]
        return {"topics": _topics(nothing, code)}
    return values


def _topics(found: list[FetchedOffset], code: Code) -> list[dict[str, Any]]:
    rows = [
        (
            one.topic,
            {
                "partition_index": one.partition,
                "committed_offset": one.offset,
                "committed_leader_epoch": one.leader_epoch,
                "metadata": one.metadata,
                "error_code": code,
            },
        )
        for one in found
    ]
    return [{"name": name, "partitions": partitions} for name, partitions in by_topic(rows)]
