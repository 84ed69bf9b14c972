"""ElectLeaders: decided by the controller, answered once this broker sees the new leaders.

Source: the protocol's rule for elections on request; KIP-460.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from plimsoll_broker.handlers.cluster_view import ClusterView
from plimsoll_broker.handlers.forward import behalf_of, forward, timeout_ms_of
from plimsoll_broker.handlers.large_messages import things
from plimsoll_broker.handlers.partition_results import partition_of, results_by_topic
from plimsoll_broker.server.dispatch import Handler, RequestContext
from plimsoll_core.cluster.model import ClusterImage
from plimsoll_core.errors import Reason
from plimsoll_core.messages.elections import (
    ElectionAnswer,
    ElectionKind,
    ElectionsAnswer,
    ElectLeaders,
    PartitionName,
)
from plimsoll_core.messages.requests import (
    Answer,
    Refused,
)
from plimsoll_wire.api_versions import ApiKey
from plimsoll_wire.messages import encode_response

_KINDS: dict[int, ElectionKind] = {0: "Preferred", 1: "Unclean"}
_PREFERRED = 0


def elect_leaders(view: ClusterView) -> Handler:
    async def handle(context: RequestContext) -> bytes:
        version = context.api_version
        aside = view.aside
        request = await aside.decoded(context)
        many = things(context)
        context.body.release()
        names = await aside.some(many, partial(_names, request))
        answer = await _elect(view, context, names, request)
        told = len(answer.partitions) if isinstance(answer, ElectionsAnswer) else len(names or ())

        def answered() -> bytes:
            return encode_response(ApiKey.ELECT_LEADERS, version, _values(answer, names or ()))

        return await aside.some(told, answered)

    return handle


def _names(request: Any) -> tuple[PartitionName, ...] | None:
    """Return the named partitions, or None for all."""
    if request.topic_partitions is None:
        return None
    return tuple(
        PartitionName(topic=each.topic, index=index)
        for each in request.topic_partitions
        for index in each.partitions
    )


async def _elect(
    view: ClusterView,
    context: RequestContext,
    names: tuple[PartitionName, ...] | None,
    request: Any,
) -> Answer:
    kind = getattr(request, "election_type", _PREFERRED)
    if kind not in _KINDS:
        message = f"There is no election of type {kind}; 0 is preferred, 1 is unclean."
        reason = Reason.InvalidRequest
        return Refused(reason=reason.name, code=reason.code, message=message)
    if names == ():
        return ElectionsAnswer(partitions=())
    timeout_ms = timeout_ms_of(request)
    command = ElectLeaders(kind=_KINDS[kind], partitions=names, behalf=behalf_of(view, context))
    answer = await forward(view, command, timeout_ms)
    if isinstance(answer, ElectionsAnswer):
        won = [each for each in answer.partitions if not each.code]
        await view.watch.wait_for(
            lambda image: all(_visible(image, one) for one in won), timeout_ms
        )
    return answer


def _visible(image: ClusterImage, won: ElectionAnswer) -> bool:
    """Return True if this broker has seen this election or a later one, or the topic is gone."""
    found = partition_of(image, won)
    return found is None or found.leader_epoch >= won.leader_epoch


def _values(answer: Answer, names: tuple[PartitionName, ...]) -> dict[str, Any]:
    """Encode the answer. A refusal of the whole request is repeated for each named partition:
    version 0 has no other field for it."""
    code = 0
    if isinstance(answer, ElectionsAnswer):
        answers = answer.partitions
    elif isinstance(answer, Refused):
        code = answer.code
        answers = tuple(
            ElectionAnswer(topic=each.topic, index=each.index, code=code, message=answer.message)
            for each in names
        )
    else:
        raise AssertionError(f"the controller answered {answer}")
    by_topic = results_by_topic(answers, "partition_id")
    results = [
        {"topic": topic, "partition_result": partitions} for topic, partitions in by_topic.items()
    ]
    return {"error_code": code, "replica_election_results": results}
