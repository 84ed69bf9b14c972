"""JoinGroup: a member comes, and is answered when its group's members are known.

A newcomer whose connection closes while it waits is let go of at once.  Source: KIP-62, KIP-345,
KIP-394, KIP-814; docs/protocol.md §5.8.1.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from datetime import timedelta
from typing import Any
from uuid import uuid4

from plimsoll_broker.coordinator.answers import Asker
from plimsoll_broker.coordinator.roles import Coordinators
from plimsoll_broker.handlers.groups.asking import decided, encoded
from plimsoll_broker.handlers.large_messages import Aside
from plimsoll_broker.server.dispatch import Reply, RequestContext
from plimsoll_core.coordination.outcome import RefusedAsWhole
from plimsoll_core.errors import Code
from plimsoll_core.groups.membership import (
    CloseRequest,
    GroupJoined,
    JoinedMember,
    JoinGroup,
    MemberIdGiven,
)
from plimsoll_wire.messages import encode_response

_ID_FIRST_VERSION = 4
_NO_PROTOCOL_VERSION = 7
_SKIP_ASSIGNMENT_VERSION = 9
MEMBERS_AT_ONCE = 500
"""In an answer that is written in the event loop."""


class JoinGroupHandler:
    """`__call__` is the route's handler."""

    def __init__(self, coordinators: Coordinators, aside: Aside) -> None:
        self._coordinators = coordinators
        self._aside = aside

    def __call__(self, context: RequestContext) -> Reply | Awaitable[Reply]:
        return decided(context, self._aside, lambda request: self._serve(context, request))

    def _serve(self, context: RequestContext, request: Any) -> Reply | Awaitable[Reply]:
        asker = self._coordinators.ask(request.group_id, _operation(context, request))
        if not asker.answered:
            return self._wait(context, request, asker)
        return encoded(context, _values(context, request, asker.answer_value))

    async def _wait(self, context: RequestContext, request: Any, asker: Asker) -> Reply:
        try:
            answer = await asker.future()
        except asyncio.CancelledError:
            closed = CloseRequest(group_id=request.group_id, token=asker)
            self._coordinators.order(request.group_id, closed)
            raise
        values = _values(context, request, answer)
        if len(values["members"]) <= MEMBERS_AT_ONCE:
            return encoded(context, values)
        key, version = context.api_key, context.api_version
        return await self._aside.do(lambda: encode_response(key, version, values))


def _operation(context: RequestContext, request: Any) -> JoinGroup:
    version = context.api_version
    instance = getattr(request, "group_instance_id", None)
    client_id = context.client_id or ""
    session_timeout_ms = milliseconds(request.session_timeout)
    # Before version 1 there was one timeout for both.
    rebalance_timeout_ms = milliseconds(
        getattr(request, "rebalance_timeout", timedelta(milliseconds=-1))
    )
    return JoinGroup(
        group_id=request.group_id,
        member_id=request.member_id,
        group_instance_id=instance,
        new_member_id=f"{client_id if instance is None else instance}-{uuid4()}",
        client_id=client_id,
        client_host=f"/{context.client.rpartition(':')[0]}",
        session_timeout_ms=session_timeout_ms,
        rebalance_timeout_ms=(
            session_timeout_ms if rebalance_timeout_ms < 0 else rebalance_timeout_ms
        ),
        protocol_type=request.protocol_type,
        protocols=tuple((one.name, bytes(one.metadata)) for one in request.protocols),
        must_know_its_id=version >= _ID_FIRST_VERSION,
        may_skip_assignment=version >= _SKIP_ASSIGNMENT_VERSION,
    )


def milliseconds(time: timedelta) -> int:
    """kio's times in the core's unit."""
    return time // timedelta(milliseconds=1)


def _values(context: RequestContext, request: Any, answer: object) -> dict[str, Any]:
    match answer:
        case GroupJoined():
            return {
                "error_code": Code.NONE,
                "generation_id": answer.generation,
                "protocol_type": answer.protocol_type,
                "protocol_name": answer.protocol,
                "leader": answer.leader,
                "skip_assignment": answer.skip_assignment,
                "member_id": answer.member_id,
                "members": [_member(one) for one in answer.members],
            }
        case MemberIdGiven(member_id):
            return _refused(context, Code.MEMBER_ID_REQUIRED, member_id)
        case RefusedAsWhole(code):
            return _refused(context, code, request.member_id)
    raise AssertionError(answer)


def _member(member: JoinedMember) -> dict[str, Any]:
    return {
        "member_id": member.member_id,
        "group_instance_id": member.group_instance_id,
        "metadata": member.metadata,
    }


def _refused(context: RequestContext, code: Code, member_id: str) -> dict[str, Any]:
    return {
        "error_code": code,
        "generation_id": -1,
        "protocol_name": None if context.api_version >= _NO_PROTOCOL_VERSION else "",
        "leader": "",
        "member_id": member_id,
        "members": [],
    }
