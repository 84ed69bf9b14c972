"""DeleteGroups: removes groups without members, with their offsets.

A group with very many offsets is removed in portions. Source: docs/protocol.md §5.8.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from plimsoll_broker.handlers.groups.asking import GroupApi, GroupRequest, code_of
from plimsoll_core.groups.operations import DeleteGroup
from plimsoll_core.security.acl import AclOperation


def _named(request: GroupRequest) -> list[str]:
    """Return each name once, as Kafka does."""
    return list(dict.fromkeys(request.value.groups_names))


def _asks(request: GroupRequest) -> Iterator[DeleteGroup]:
    for name in _named(request):
        yield DeleteGroup(group_id=name)


def _tells(request: GroupRequest, answers: list[object]) -> dict[str, Any]:
    results = [
        {"group_id": name, "error_code": code_of(answer)}
        for name, answer in zip(_named(request), answers, strict=True)
    ]
    return {"results": results}


DELETE_GROUPS = GroupApi(_asks, _tells, AclOperation.DELETE)
