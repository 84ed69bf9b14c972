"""Forwards a client's admin request to the controller. Any broker accepts such requests.

Called by the handlers of all requests that change topics, partitions or security. A request is sent
once, since it is not idempotent: REQUEST_TIMED_OUT tells the client to check the outcome itself.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import msgspec

from plimsoll_broker.control.controller_client import NoController
from plimsoll_broker.handlers import cluster_view as shared
from plimsoll_broker.handlers.cluster_view import ClusterView
from plimsoll_broker.server.dispatch import RequestContext
from plimsoll_core.cluster.record_versions import release_of
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
from plimsoll_core.messages.security import (
    AclsChanged,
    OnBehalf,
    QuotasAltered,
    ScramAltered,
    SecurityChange,
)
from plimsoll_core.messages.topics import TopicChange, TopicChanged, TopicsChanged
from plimsoll_wire import control

FORWARDED_BYTES_MAX = control.REQUEST_BYTES_MAX // 2
CHANGES_SINCE = 2
"""The metadata version from which on every controller knows `TopicChange`."""
SECURITY_SINCE = 3
"""The metadata version from which on every controller knows `SecurityChange`."""
SECURITY_TIMEOUT_MS = 30_000
"""The time in ms within which the controller must answer a security request, which has no timeout
of its own."""
_FORWARD_MS_MIN = 1000
"""The least time in ms for which a broker awaits the controller's answer, even if the client states
a shorter timeout."""


def timeout_ms_of(request: Any) -> int:
    """Return the timeout that a client's request states, in ms, rounded towards 0."""
    return int(request.timeout / timedelta(milliseconds=1))


async def forward(view: ClusterView, request: Forwarded, timeout_ms: int) -> Answer:
    """Send a request to the controller and return its answer. Return a refusal if the request is
    too large or no controller answers within `timeout_ms`."""
    size = control.size_of(request)
    if size > FORWARDED_BYTES_MAX:
        # It would cost the connection that also carries this broker's heartbeats.
        message = (
            f"The request would have {size} bytes when forwarded to the controller; at most "
            f"{FORWARDED_BYTES_MAX} are allowed. Send smaller requests."
        )
        return Refused(reason="", code=Code.INVALID_REQUEST, message=message)
    wait_ms = min(max(timeout_ms, _FORWARD_MS_MIN), shared.WAIT_MS_MAX)
    try:
        return await view.command(request, wait_ms)
    except NoController:
        message = (
            f"The request has no outcome, because no controller answered within {wait_ms} ms. It "
            "may have been carried out: check before you repeat it."
        )
        return Refused(reason="", code=Code.REQUEST_TIMED_OUT, message=message)


async def ask(
    view: ClusterView,
    request: CreateTopics | DeleteTopics,
    names: tuple[str, ...],
    timeout_ms: int,
) -> tuple[TopicAnswer, ...]:
    """Have the controller create or delete topics. Return one answer for each topic. If the whole
    request is refused or no controller answers in time, return that refusal for each of `names`."""
    match await forward(view, request, timeout_ms):
        case TopicsAnswer(topics=topics):
            return topics
        case Refused(code=code, message=message):
            return _each(names, code, message)
        case other:
            raise AssertionError(f"the controller answered with an unexpected message: {other}")


async def ask_for_changes(
    view: ClusterView, request: TopicChange, names: tuple[str, ...], timeout_ms: int
) -> dict[str, TopicChanged]:
    """Have the controller change these topics, and return the outcome by topic once this broker's
    image has the changes, or `timeout_ms` later. If the metadata version is too old, the whole
    request is refused or no controller answers, return that refusal for each of `names`."""
    if view.image.metadata_version < CHANGES_SINCE:
        # An older controller would close the connection that also carries the heartbeats.
        message = (
            f"The request needs metadata version {release_of(CHANGES_SINCE)}; the cluster is at "
            f"{release_of(view.image.metadata_version)}. Upgrade the operator and all brokers, "
            "and remove spec.metadataVersion from the LogCluster if it is set."
        )
        return _refused(names, Code.UNSUPPORTED_VERSION, message)
    match await forward(view, request, timeout_ms):
        case TopicsChanged(topics=topics, end_offset=end_offset):
            if any(not one.code for one in topics):
                await view.watch.wait_for(lambda image: image.next_offset >= end_offset, timeout_ms)
            return {one.topic: one for one in topics}
        case Refused(code=code, message=message):
            return _refused(names, code, message)
        case other:
            raise AssertionError(f"the controller answered with an unexpected message: {other}")


async def forward_security(
    view: ClusterView, context: RequestContext, request: SecurityChange
) -> Answer:
    """Forward a client's change of ACLs, SCRAM users or quotas, and return the controller's answer
    once this broker's image has the change, or after SECURITY_TIMEOUT_MS. Return a refusal if the
    metadata version is too old or no controller answers."""
    if view.image.metadata_version < SECURITY_SINCE:
        message = (
            f"Users, ACLs and quotas need metadata version {release_of(SECURITY_SINCE)}; the "
            f"cluster is at {release_of(view.image.metadata_version)}. Upgrade the operator and "
            "all brokers, and remove spec.metadataVersion from the LogCluster if it is set."
        )
        return Refused(reason="", code=Code.UNSUPPORTED_VERSION, message=message)
    asked = msgspec.structs.replace(request, behalf=behalf_of(view, context))
    answer = await forward(view, asked, SECURITY_TIMEOUT_MS)
    if isinstance(answer, AclsChanged | ScramAltered | QuotasAltered):
        end_offset = answer.end_offset
        await view.watch.wait_for(
            lambda image: image.next_offset >= end_offset, SECURITY_TIMEOUT_MS
        )
    return answer


def behalf_of(view: ClusterView, context: RequestContext) -> OnBehalf | None:
    """Return the identity of the client, by which the controller checks the client's rights again.
    It is sent even if authorization is off here, since this broker may not have applied a change of
    that yet. Return None if authorization is off and the metadata version is below SECURITY_SINCE,
    where a controller may not know the field."""
    if context.rights is not None:
        behalf: OnBehalf = context.rights.behalf
        return behalf
    if view.image.metadata_version < SECURITY_SINCE:
        return None
    asks = context.connection
    return OnBehalf(principal=asks.principal, host=asks.host, login=asks.login)


def _refused(names: tuple[str, ...], code: int, message: str) -> dict[str, TopicChanged]:
    return {name: TopicChanged(topic=name, code=code, message=message) for name in names}


def _each(names: tuple[str, ...], code: int, message: str) -> tuple[TopicAnswer, ...]:
    return tuple(TopicAnswer(name=name, code=code, message=message) for name in names or ("",))
