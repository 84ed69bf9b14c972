"""Metadata: who the brokers are, and who leads which partition.

The answer every client starts with and comes back to after an error.  Source: the protocol's
Metadata rules.
"""

from __future__ import annotations

from typing import Any
from uuid import UUID

from plimsoll_broker.dispatch import Handler, RequestContext
from plimsoll_broker.handlers import view as shared
from plimsoll_broker.handlers.view import ClusterView
from plimsoll_broker.storage.checkpoints import uuid_text
from plimsoll_core.model import ClusterImage, PartitionKey, Topic
from plimsoll_wire.messages import decode_request, encode_response
from plimsoll_wire.versions import ApiKey

_LISTENER_CODE_VERSION = 6
_NULLABLE_NAME_VERSION = 12
_REMEMBERED_MAX = 16
_REMEMBERED_BYTES_MAX = 4096


class MetadataHandler:
    """Remembers its answers until the image changes: after an event every client asks the same."""

    def __init__(self, view: ClusterView) -> None:
        self._view = view
        self._image = view.image
        self._answers: dict[tuple[int, bytes], bytes] = {}

    def __call__(self, context: RequestContext) -> bytes:
        image = self._view.image
        if image is not self._image:
            self._answers.clear()
            self._image = image
        asked = (context.api_version, bytes(context.body))
        answer = self._answers.get(asked)
        if answer is None:
            answer = self._answer(image, context)
            if len(asked[1]) <= _REMEMBERED_BYTES_MAX and len(self._answers) < _REMEMBERED_MAX:
                self._answers[asked] = answer
        return answer

    def _answer(self, image: ClusterImage, context: RequestContext) -> bytes:
        version = context.api_version
        request = decode_request(ApiKey.METADATA, version, context.body)
        values = {
            "brokers": brokers(image),
            "cluster_id": uuid_text(image.cluster_id),
            "controller_id": shared.admin_target(self._view),
            "topics": _topics(image, request.topics, version),
            "error_code": shared.NONE,
        }
        return encode_response(ApiKey.METADATA, version, values)


def metadata(view: ClusterView) -> Handler:
    return MetadataHandler(view)


def brokers(image: ClusterImage) -> list[dict[str, Any]]:
    """Unfenced ones only: nobody should connect to another."""
    return [
        {"node_id": broker.id, **shared.node(broker, endpoint)}
        for _, broker in sorted(image.brokers.items())
        if not broker.fenced and (endpoint := shared.endpoint_of(broker)) is not None
    ]


def _topics(image: ClusterImage, asked: Any, version: int) -> list[dict[str, Any]]:
    if asked is None or (version == 0 and not asked):
        topics = sorted(image.topics.values(), key=lambda topic: topic.name)
        return [_topic(image, topic, version) for topic in topics]
    return [_asked(image, item, version) for item in asked]


def _asked(image: ClusterImage, item: Any, version: int) -> dict[str, Any]:
    by_id: UUID | None = getattr(item, "topic_id", None)
    name: str | None = item.name
    topic_id = image.topic_ids.get(name) if name is not None else by_id
    topic = None if topic_id is None else image.topics.get(topic_id)
    if topic is not None:
        return _topic(image, topic, version)
    if name is None and version < _NULLABLE_NAME_VERSION:
        name = ""
    code = shared.UNKNOWN_TOPIC_ID if not name else shared.UNKNOWN_TOPIC_OR_PARTITION
    return {"error_code": code, "name": name, "topic_id": by_id, "partitions": []}


def _topic(image: ClusterImage, topic: Topic, version: int) -> dict[str, Any]:
    keys = (PartitionKey(topic.id, index) for index in range(topic.partitions))
    partitions = (image.partitions.get(key) for key in keys)
    return {
        "error_code": shared.NONE,
        "name": topic.name,
        "topic_id": topic.id,
        "is_internal": False,
        "partitions": [
            shared.partition(image, partition, version >= _LISTENER_CODE_VERSION)
            for partition in partitions
            if partition is not None
        ],
    }
