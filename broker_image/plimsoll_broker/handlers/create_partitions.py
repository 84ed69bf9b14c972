"""CreatePartitions: decided by the controller, answered once this broker sees the change.

Source: KIP-195; the protocol's rule for CreatePartitions.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from plimsoll_broker.handlers.cluster_view import ClusterView
from plimsoll_broker.handlers.forward import ask_for_changes, behalf_of, timeout_ms_of
from plimsoll_broker.handlers.large_messages import things
from plimsoll_broker.handlers.mutation_quota import (
    OVER_QUOTA,
    OVER_QUOTA_TEXT,
    charge_made,
    within_quota,
)
from plimsoll_broker.server.dispatch import Handler, RequestContext
from plimsoll_core.cluster.model import ClusterImage
from plimsoll_core.errors import Code
from plimsoll_core.messages.topic_changes import AddPartitions, TopicChanged, TopicGrowth
from plimsoll_wire.api_versions import ApiKey
from plimsoll_wire.messages import encode_response

_STRICT_VERSION = 3
"""From this version on a client understands the quota's refusal (KIP-599)."""


def create_partitions(view: ClusterView) -> Handler:
    async def handle(context: RequestContext) -> bytes:
        version, aside = context.api_version, view.aside
        request = await aside.decoded(context)
        many = things(context)
        context.body.release()
        topics = await aside.some(many, partial(_growths, request))
        names = tuple(dict.fromkeys(one.topic for one in topics))
        told: dict[str, TopicChanged] = {}
        counted: list[tuple[TopicGrowth, int]] = []
        if not request.validate_only:
            counted = [(one, _added(view.image, one)) for one in topics]
            taken = within_quota(context, counted, _STRICT_VERSION)
            told = {
                one.topic: TopicChanged(topic=one.topic, code=OVER_QUOTA, message=OVER_QUOTA_TEXT)
                for one in topics[len(taken) :]
            }
            topics = tuple(taken)
        try:
            if topics:
                command = AddPartitions(
                    topics=topics,
                    validate_only=request.validate_only,
                    behalf=behalf_of(view, context),
                )
                asked = tuple(dict.fromkeys(one.topic for one in topics))
                told |= await ask_for_changes(view, command, asked, timeout_ms_of(request))
        finally:
            if counted:
                charge_made(context, _made(counted, told))
        return await aside.some(many, partial(_reply, version, names, told))

    return handle


def _added(image: ClusterImage, growth: TopicGrowth) -> int:
    topic_id = image.topic_ids.get(growth.topic)
    topic = None if topic_id is None else image.topics.get(topic_id)
    return max(growth.partitions - (0 if topic is None else topic.partitions), 0)


def _made(counted: list[tuple[TopicGrowth, int]], told: dict[str, TopicChanged]) -> int | None:
    """Return the number of partitions created, or None if the outcome is not known. Each topic is
    counted once."""
    added = {one.topic: count for one, count in counted}
    if any(name not in told or told[name].code == Code.REQUEST_TIMED_OUT for name in added):
        return None
    return sum(n for name, n in added.items() if not told[name].code)


def _growths(request: Any) -> tuple[TopicGrowth, ...]:
    return tuple(
        TopicGrowth(
            topic=topic.name,
            partitions=topic.count,
            assignment=None
            if topic.assignments is None
            else tuple(tuple(row.broker_ids) for row in topic.assignments),
        )
        for topic in request.topics
    )


def _reply(version: int, names: tuple[str, ...], told: dict[str, TopicChanged]) -> bytes:
    results = [
        {
            "name": name,
            "error_code": told[name].code,
            "error_message": told[name].message or None,
        }
        for name in names
    ]
    return encode_response(ApiKey.CREATE_PARTITIONS, version, {"results": results})
