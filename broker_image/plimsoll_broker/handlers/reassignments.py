"""AlterPartitionReassignments and ListPartitionReassignments: where replicas are moved.

The first is decided by the controller and answered once this broker sees the decision; the second
reads this broker's image. Source: the protocol's rule for reassignments; KIP-455.
"""

from __future__ import annotations

from collections.abc import Awaitable, Iterable
from functools import partial
from typing import Any

from plimsoll_broker.handlers.cluster_view import ClusterView
from plimsoll_broker.handlers.forward import behalf_of, forward, timeout_ms_of
from plimsoll_broker.handlers.large_messages import THINGS_AT_ONCE, is_short, things
from plimsoll_broker.handlers.partition_results import partition_of, results_by_topic
from plimsoll_broker.server.dispatch import Handler, RequestContext
from plimsoll_core.cluster.model import ClusterImage, Partition, PartitionKey
from plimsoll_core.messages.reassignments import (
    AlterReassignments,
    PartitionTarget,
    ReassignmentsAnswer,
    TargetAnswer,
)
from plimsoll_core.messages.requests import Answer, Refused
from plimsoll_wire.api_versions import ApiKey
from plimsoll_wire.messages import decode_request, encode_response


def alter_reassignments(view: ClusterView) -> Handler:
    async def handle(context: RequestContext) -> bytes:
        version = context.api_version
        aside = view.aside
        request = await aside.decoded(context)
        many = things(context)
        context.body.release()
        targets = await aside.some(many, partial(_targets, request))
        answer = await _alter(view, context, targets, request) if targets else _NOTHING

        def answered() -> bytes:
            values = _altered(answer, targets)
            values["allow_replication_factor_change"] = _may_change_factors(request)
            return encode_response(ApiKey.ALTER_PARTITION_REASSIGNMENTS, version, values)

        return await aside.some(len(targets), answered)

    return handle


_NOTHING = ReassignmentsAnswer(partitions=())


def _targets(request: Any) -> tuple[PartitionTarget, ...]:
    """Return the targets; a partition without replicas is a cancellation."""
    return tuple(
        PartitionTarget(
            topic=topic.name,
            index=each.partition_index,
            replicas=None if each.replicas is None else tuple(each.replicas),
        )
        for topic in request.topics
        for each in topic.partitions
    )


def _may_change_factors(request: Any) -> bool:
    """Return True if the replication factor may change; versions below 1 always allow it."""
    return getattr(request, "allow_replication_factor_change", True)


async def _alter(
    view: ClusterView, context: RequestContext, targets: tuple[PartitionTarget, ...], request: Any
) -> Answer:
    command = AlterReassignments(
        targets=targets,
        allow_factor_change=_may_change_factors(request),
        behalf=behalf_of(view, context),
    )
    timeout_ms = timeout_ms_of(request)
    answer = await forward(view, command, timeout_ms)
    if isinstance(answer, ReassignmentsAnswer):
        begun = [each for each in answer.partitions if not each.code]
        await view.watch.wait_for(
            lambda image: all(_visible(image, one) for one in begun), timeout_ms
        )
    return answer


def _visible(image: ClusterImage, begun: TargetAnswer) -> bool:
    """Return True if this broker has seen this change or a later one, or the topic is gone."""
    found = partition_of(image, begun)
    return found is None or found.partition_epoch >= begun.partition_epoch


def _altered(answer: Answer, targets: tuple[PartitionTarget, ...]) -> dict[str, Any]:
    """Return the response's values; a refusal of the request is repeated for each partition."""
    code, message = 0, None
    if isinstance(answer, ReassignmentsAnswer):
        answers = answer.partitions
    elif isinstance(answer, Refused):
        code, message = answer.code, answer.message
        answers = tuple(
            TargetAnswer(topic=one.topic, index=one.index, code=code, message=answer.message)
            for one in targets
        )
    else:
        raise AssertionError(f"the controller answered {answer}")
    by_topic = results_by_topic(answers, "partition_index")
    responses = [{"name": topic, "partitions": results} for topic, results in by_topic.items()]
    return {"error_code": code, "error_message": message, "responses": responses}


def list_reassignments(view: ClusterView) -> Handler:
    def handle(context: RequestContext) -> bytes | Awaitable[bytes]:
        image = view.image
        answer = partial(_list, image, context.api_version, context.body)
        short = is_short(context) and len(image.partitions) <= THINGS_AT_ONCE
        return answer() if short else view.aside.do(answer)

    return handle


def _list(image: ClusterImage, version: int, body: memoryview) -> bytes:
    request = decode_request(ApiKey.LIST_PARTITION_REASSIGNMENTS, version, body)
    by_topic: dict[str, list[Partition]] = {}
    for partition in _named(image, request.topics):
        if partition.moving:
            name = image.topics[partition.topic_id].name
            by_topic.setdefault(name, []).append(partition)
    topics = [
        {"name": name, "partitions": [_ongoing(partition) for partition in partitions]}
        for name, partitions in sorted(by_topic.items())
    ]
    values = {"error_code": 0, "error_message": None, "topics": topics}
    return encode_response(ApiKey.LIST_PARTITION_REASSIGNMENTS, version, values)


def _named(image: ClusterImage, topics: Any) -> Iterable[Partition]:
    """Return the named partitions that exist, or all if none are named."""
    if topics is None:
        return sorted(image.partitions.values(), key=lambda p: p.key)
    keys = {
        PartitionKey(image.topic_ids[topic.name], index): None
        for topic in topics
        if topic.name in image.topic_ids
        for index in topic.partition_indexes
    }
    found = (image.partitions.get(key) for key in keys)
    return [partition for partition in found if partition is not None]


def _ongoing(partition: Partition) -> dict[str, Any]:
    return {
        "partition_index": partition.index,
        "replicas": partition.replicas,
        "adding_replicas": partition.adding,
        "removing_replicas": partition.removing,
    }
