"""The APIs that describe brokers and topics beside Metadata.

`DescribeCluster`: the brokers, and on request the fenced ones too (KIP-700, KIP-1073).

`DescribeTopicPartitions`: topics page by page, with ELR and LastKnownELR (KIP-966).
"""

from __future__ import annotations

from collections.abc import Awaitable
from functools import partial
from typing import Any

from plimsoll_broker.handlers import cluster_view as shared
from plimsoll_broker.handlers.cluster_view import AskedOn, ClusterView
from plimsoll_broker.handlers.long_work import THINGS_AT_ONCE, is_short
from plimsoll_broker.server.dispatch import Handler, RequestContext
from plimsoll_broker.storage.checkpoint_formats import uuid_text
from plimsoll_core.cluster.listeners import Listener
from plimsoll_core.cluster.model import ClusterImage, Partition, PartitionKey
from plimsoll_core.cluster.topic_names import check_form, is_internal
from plimsoll_core.errors import Code
from plimsoll_core.security.acl import TOLD_BITS, ResourceType
from plimsoll_wire.api_versions import ApiKey
from plimsoll_wire.messages import decode_request, encode_response

_BROKERS, _CONTROLLERS = 1, 2
_CLUSTER = ResourceType.CLUSTER


def describe_cluster(view: ClusterView) -> Handler:
    def handle(context: RequestContext) -> bytes:
        version = context.api_version
        request = decode_request(ApiKey.DESCRIBE_CLUSTER, version, context.body)
        endpoint_type = getattr(request, "endpoint_type", _BROKERS)
        if endpoint_type != _BROKERS:
            return encode_response(ApiKey.DESCRIBE_CLUSTER, version, _not_here(endpoint_type))
        values: dict[str, Any] = {
            "error_code": Code.NONE,
            "endpoint_type": _BROKERS,
            "cluster_id": uuid_text(view.image.cluster_id),
            "controller_id": shared.admin_target(view),
            "brokers": _brokers(
                view, context.connection.listener, getattr(request, "include_fenced_brokers", False)
            ),
        }
        if request.include_cluster_authorized_operations:
            rights = context.rights
            may = TOLD_BITS[_CLUSTER] if rights is None else rights.on_the_cluster()
            values["cluster_authorized_operations"] = may
        return encode_response(ApiKey.DESCRIBE_CLUSTER, version, values)

    return handle


def _not_here(endpoint_type: int) -> dict[str, Any]:
    """Return the refusal to a client that asks for controllers' endpoints, or for endpoints of an
    unknown type."""
    known = endpoint_type == _CONTROLLERS
    return {
        "error_code": Code.MISMATCHED_ENDPOINT_TYPE if known else Code.UNSUPPORTED_ENDPOINT_TYPE,
        "error_message": (
            "Brokers describe only brokers: ask for endpoint type 1 (with Kafka's tools, use "
            "--bootstrap-server instead of --bootstrap-controller)."
        ),
        "endpoint_type": _BROKERS,
        "cluster_id": "",
        "controller_id": -1,
        "brokers": [],
    }


def _brokers(view: ClusterView, listener: Listener, fenced_too: bool) -> list[dict[str, Any]]:
    return [
        {"broker_id": broker.id, "is_fenced": broker.fenced, **shared.node(broker, endpoint)}
        for _, broker in sorted(view.image.brokers.items())
        if (fenced_too or not broker.fenced)
        and (endpoint := shared.endpoint_of(broker, listener)) is not None
    ]


PARTITIONS_MAX = 2000


def describe_topic_partitions(view: ClusterView) -> Handler:
    def handle(context: RequestContext) -> bytes | Awaitable[bytes]:
        image = view.image
        context.applies_changes = True
        answer = partial(_answer, image, AskedOn(context.connection.listener), context)
        short = is_short(context) and len(image.partitions) <= THINGS_AT_ONCE
        return answer() if short else view.aside.do(answer)

    return handle


def _answer(image: ClusterImage, asked_on: AskedOn, context: RequestContext) -> bytes:
    page = _page(image, asked_on, context.decoded())
    for change in context.changes:
        change(page)
    return encode_response(ApiKey.DESCRIBE_TOPIC_PARTITIONS, context.api_version, page)


def _page(image: ClusterImage, asked_on: AskedOn, request: Any) -> dict[str, Any]:
    names = sorted({topic.name for topic in request.topics} or set(image.topic_ids))
    first_partition = 0
    cursor = request.cursor
    if cursor is not None and _is_wrong(cursor, request):
        code = Code.INVALID_REQUEST
        told = [
            {"error_code": code, "name": name, "topic_id": None, "partitions": []}
            for name in (names if request.topics else ())
        ]
        return {"topics": told, "next_cursor": None}
    if cursor is not None:
        names = [name for name in names if name >= cursor.topic_name]
        if names and names[0] == cursor.topic_name:
            first_partition = cursor.partition_index
    room = min(max(request.response_partition_limit, 1), PARTITIONS_MAX)
    topics: list[dict[str, Any]] = []
    for name in names:
        if room <= 0:
            return {"topics": topics, "next_cursor": _cursor(name, 0)}
        topic = _topic(image, asked_on, name, first_partition, room)
        topics.append(topic)
        room -= len(topic["partitions"])
        reached = first_partition + len(topic["partitions"])
        if reached < _partition_count(image, name):
            return {"topics": topics, "next_cursor": _cursor(name, reached)}
        first_partition = 0
    return {"topics": topics, "next_cursor": None}


def _is_wrong(cursor: Any, request: Any) -> bool:
    """Return True if no reply to this request could have contained this cursor: its partition index
    is negative, or its topic is not among the requested ones. If all topics are requested, any
    topic is right: it may have been deleted meanwhile, and is then skipped."""
    named = {topic.name for topic in request.topics}
    return cursor.partition_index < 0 or bool(named and cursor.topic_name not in named)


def _cursor(name: str, index: int) -> dict[str, Any]:
    return {"topic_name": name, "partition_index": index}


def _partition_count(image: ClusterImage, name: str) -> int:
    topic_id = image.topic_ids.get(name)
    return 0 if topic_id is None else image.topics[topic_id].partitions


def _topic(
    image: ClusterImage, asked_on: AskedOn, name: str, first: int, room: int
) -> dict[str, Any]:
    topic_id = image.topic_ids.get(name)
    # If authorization is on, the guard replaces this by each client's own operations.
    may = {"topic_authorized_operations": TOLD_BITS[ResourceType.TOPIC]}
    if topic_id is None:
        illegal = check_form(name) is not None
        code = Code.INVALID_TOPIC_EXCEPTION if illegal else Code.UNKNOWN_TOPIC_OR_PARTITION
        return {"error_code": code, "name": name, "topic_id": None, "partitions": [], **may}
    indexes = range(first, min(first + room, image.topics[topic_id].partitions))
    return {
        "error_code": Code.NONE,
        "is_internal": is_internal(name),
        "name": name,
        "topic_id": topic_id,
        **may,
        "partitions": [
            _partition(image, asked_on, image.partitions[PartitionKey(topic_id, index)])
            for index in indexes
        ],
    }


def _partition(image: ClusterImage, asked_on: AskedOn, partition: Partition) -> dict[str, Any]:
    return {
        **shared.partition(image, partition, asked_on),
        "eligible_leader_replicas": partition.elr,
        "last_known_elr": partition.last_known_elr,
    }
