"""Passing a client's admin request on to the controller (any broker takes one).

Called by CreateTopics, DeleteTopics, ElectLeaders and AlterPartitionReassignments.  Sent once: they
are not idempotent, so an unknown outcome is the client's to look into, which is what
REQUEST_TIMED_OUT tells it.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from plimsoll_broker.control.controller_client import NoController
from plimsoll_broker.handlers import cluster_view as shared
from plimsoll_broker.handlers.cluster_view import ClusterView
from plimsoll_core.errors import Code
from plimsoll_core.messages.requests import (
    Answer,
    CreateTopics,
    DeleteTopics,
    Forwarded,
    Refused,
    TopicAnswer,
    TopicsAnswer,
)
from plimsoll_wire import control

FORWARDED_BYTES_MAX = control.REQUEST_BYTES_MAX // 2
_FORWARD_MS_MIN = 1000
"""A client that is not willing to wait still gets the controller's answer if it comes soon."""


def timeout_ms_of(request: Any) -> int:
    """The request's own timeout, in whole milliseconds."""
    return int(request.timeout / timedelta(milliseconds=1))


async def forward(view: ClusterView, request: Forwarded, timeout_ms: int) -> Answer:
    """The controller's answer, or why there is none."""
    size = control.size_of(request)
    if size > FORWARDED_BYTES_MAX:
        # It would cost the connection that also says that this broker is alive.
        message = (
            f"The request has {size} bytes as it goes to the controller, and {FORWARDED_BYTES_MAX} "
            "are allowed; ask for less at a time."
        )
        return Refused(reason="", code=Code.INVALID_REQUEST, message=message)
    wait_ms = min(max(timeout_ms, _FORWARD_MS_MIN), shared.WAIT_MS_MAX)
    try:
        return await view.command(request, wait_ms)
    except NoController:
        message = f"No controller answered within {wait_ms} ms; look whether it happened."
        return Refused(reason="", code=Code.REQUEST_TIMED_OUT, message=message)


async def ask(
    view: ClusterView,
    request: CreateTopics | DeleteTopics,
    names: tuple[str, ...],
    timeout_ms: int,
) -> tuple[TopicAnswer, ...]:
    """One answer for each topic; what the controller says of the request holds for each name."""
    match await forward(view, request, timeout_ms):
        case TopicsAnswer(topics=topics):
            return topics
        case Refused(code=code, message=message):
            return _each(names, code, message)
        case other:
            raise AssertionError(f"the controller answered {other}")


def _each(names: tuple[str, ...], code: int, message: str) -> tuple[TopicAnswer, ...]:
    return tuple(TopicAnswer(name=name, code=code, message=message) for name in names or ("",))
