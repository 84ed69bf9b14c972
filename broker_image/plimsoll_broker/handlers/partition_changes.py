"""The APIs that change leaders and replicas of partitions.

`ElectLeaders`: decided by the controller, answered once this broker sees the new leaders. Source:
the protocol's rule for elections on request; KIP-460.

AlterPartitionReassignments: moves replicas; decided by the controller, and answered once this
broker sees the decision. ListPartitionReassignments: lists the moves in this broker's image.
Source: the protocol's rule for reassignments; KIP-455.

`results_by_topic`: the results of a request's partitions, grouped by topic as responses have them.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from functools import partial
from typing import Any

from plimsoll_broker.handlers.cluster_view import ClusterView
from plimsoll_broker.handlers.forward import behalf_of, forward, timeout_ms_of
from plimsoll_broker.handlers.long_work import THINGS_AT_ONCE, is_short
from plimsoll_broker.server.dispatch import Handler, RequestContext
from plimsoll_core.cluster.model import ClusterImage, Partition, PartitionKey
from plimsoll_core.errors import Reason
from plimsoll_core.messages.elections import (
    ElectionAnswer,
    ElectionKind,
    ElectionsAnswer,
    ElectLeaders,
    PartitionName,
)
from plimsoll_core.messages.moves import (
    AlterReassignments,
    PartitionTarget,
    ReassignmentsAnswer,
    TargetAnswer,
)
from plimsoll_core.messages.requests import Answer, Refused
from plimsoll_wire.api_versions import ApiKey
from plimsoll_wire.messages import encode_response

PartitionAnswer = ElectionAnswer | TargetAnswer


def results_by_topic(
    answers: Iterable[PartitionAnswer], index_field: str
) -> dict[str, list[dict[str, Any]]]:
    """Return the results of all partitions, by topic. `index_field`: the name of the response's
    field for a partition's index."""
    found: dict[str, list[dict[str, Any]]] = {}
    for each in answers:
        result = {
            index_field: each.index,
            "error_code": each.code,
            "error_message": each.message or None,
        }
        found.setdefault(each.topic, []).append(result)
    return found


async def _ask(
    view: ClusterView,
    command: ElectLeaders | AlterReassignments,
    timeout_ms: int,
    sees: Callable[[ClusterImage, Any], bool],
) -> Answer:
    """Send the command to the controller, and return its answer once `sees` is True of this
    broker's image and each successfully changed partition, or once `timeout_ms` is over. A refusal
    is returned at once."""
    answer = await forward(view, command, timeout_ms)
    if isinstance(answer, ElectionsAnswer | ReassignmentsAnswer):
        changed = [each for each in answer.partitions if not each.code]
        await view.watch.wait_for(
            lambda image: all(sees(image, one) for one in changed), timeout_ms
        )
    return answer


def _results(
    answer: Answer,
    kind: type[ElectionAnswer | TargetAnswer],
    asked: Iterable[PartitionName | PartitionTarget],
) -> tuple[PartitionAnswer, ...]:
    """Return the result of each partition in the controller's answer. If the answer refuses the
    whole request, return that refusal for each of `asked`, as results of type `kind`."""
    if isinstance(answer, ElectionsAnswer | ReassignmentsAnswer):
        return answer.partitions
    if not isinstance(answer, Refused):
        raise AssertionError(f"the controller answered with an unexpected message: {answer}")
    return tuple(
        kind(topic=one.topic, index=one.index, code=answer.code, message=answer.message)
        for one in asked
    )


_KINDS: dict[int, ElectionKind] = {0: "Preferred", 1: "Unclean"}
_PREFERRED = 0


def elect_leaders(view: ClusterView) -> Handler:
    async def handle(context: RequestContext) -> bytes:
        version = context.api_version
        aside = view.aside
        request, many = await aside.received(context)
        names = await aside.some(many, partial(_names, request))
        answer = await _elect(view, context, names, request)
        told = len(answer.partitions) if isinstance(answer, ElectionsAnswer) else len(names or ())

        def answered() -> bytes:
            return encode_response(ApiKey.ELECT_LEADERS, version, _values(answer, names or ()))

        return await aside.some(told, answered)

    return handle


def _names(request: Any) -> tuple[PartitionName, ...] | None:
    """Return the partitions of an ElectLeaders request, or None if all are requested."""
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
        message = (
            f"The request asks for a leader election of type {kind}, which does not exist; 0 is "
            "preferred, 1 is unclean."
        )
        reason = Reason.InvalidRequest
        return Refused(reason=reason.name, code=reason.code, message=message)
    if names == ():
        return ElectionsAnswer(partitions=())
    command = ElectLeaders(kind=_KINDS[kind], partitions=names, behalf=behalf_of(view, context))
    return await _ask(view, command, timeout_ms_of(request), _sees_election)


def _sees_election(image: ClusterImage, won: ElectionAnswer) -> bool:
    """Return True if the image has this election or a later one, or no longer has the partition."""
    found = image.partition_named(won.topic, won.index)
    return found is None or found.leader_epoch >= won.leader_epoch


def _values(answer: Answer, names: tuple[PartitionName, ...]) -> dict[str, Any]:
    """Return the response's values. Version 0 has no field for a refusal of the whole request, so
    the refusal is also repeated for each of `names`."""
    code = answer.code if isinstance(answer, Refused) else 0
    by_topic = results_by_topic(_results(answer, ElectionAnswer, names), "partition_id")
    results = [
        {"topic": topic, "partition_result": partitions} for topic, partitions in by_topic.items()
    ]
    return {"error_code": code, "replica_election_results": results}


def alter_reassignments(view: ClusterView) -> Handler:
    async def handle(context: RequestContext) -> bytes:
        version = context.api_version
        aside = view.aside
        request, many = await aside.received(context)
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
    """Return the requested target replicas of each partition. `replicas` is None for a partition
    with a reassignment to be cancelled."""
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
    """Return True if the request may change replication factors; version 0 always may."""
    return getattr(request, "allow_replication_factor_change", True)


async def _alter(
    view: ClusterView, context: RequestContext, targets: tuple[PartitionTarget, ...], request: Any
) -> Answer:
    command = AlterReassignments(
        targets=targets,
        allow_factor_change=_may_change_factors(request),
        behalf=behalf_of(view, context),
    )
    return await _ask(view, command, timeout_ms_of(request), _sees_targets)


def _sees_targets(image: ClusterImage, begun: TargetAnswer) -> bool:
    """Return True if the image has this change of the partition or a later one, or no longer has
    the partition."""
    found = image.partition_named(begun.topic, begun.index)
    return found is None or found.partition_epoch >= begun.partition_epoch


def _altered(answer: Answer, targets: tuple[PartitionTarget, ...]) -> dict[str, Any]:
    code, message = 0, None
    if isinstance(answer, Refused):
        code, message = answer.code, answer.message
    by_topic = results_by_topic(_results(answer, TargetAnswer, targets), "partition_index")
    responses = [{"name": topic, "partitions": results} for topic, results in by_topic.items()]
    return {"error_code": code, "error_message": message, "responses": responses}


def list_reassignments(view: ClusterView) -> Handler:
    def handle(context: RequestContext) -> bytes | Awaitable[bytes]:
        image = view.image
        answer = partial(_list, image, context)
        short = is_short(context) and len(image.partitions) <= THINGS_AT_ONCE
        return answer() if short else view.aside.do(answer)

    return handle


def _list(image: ClusterImage, context: RequestContext) -> bytes:
    request = context.decoded()
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
    return encode_response(ApiKey.LIST_PARTITION_REASSIGNMENTS, context.api_version, values)


def _named(image: ClusterImage, topics: Any) -> Iterable[Partition]:
    """Return the existing partitions that `topics` names, each once, in the request's order; all
    partitions, by key, if `topics` is None."""
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
