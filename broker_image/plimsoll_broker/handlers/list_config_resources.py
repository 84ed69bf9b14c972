"""ListConfigResources: the topics and brokers, whose configs can be described.

Version 0 asks for client metrics subscriptions; there are none. Source: KIP-1142.
"""

from __future__ import annotations

from collections.abc import Awaitable, Iterator
from functools import partial
from typing import Any

from plimsoll_broker.handlers.cluster_view import ClusterView
from plimsoll_broker.handlers.large_messages import THINGS_AT_ONCE, is_short
from plimsoll_broker.server.dispatch import Handler, RequestContext
from plimsoll_core.cluster.model import ClusterImage
from plimsoll_core.errors import Code
from plimsoll_wire.api_versions import ApiKey
from plimsoll_wire.messages import decode_request, encode_response

TOPIC, BROKER = 2, 4
_WITHOUT_ANY = frozenset({8, 16, 32})
"""Loggers of brokers, client metrics, groups: Kafka's other types, of which there are none here."""
_TYPES_VERSION = 1


def list_config_resources(view: ClusterView) -> Handler:
    def handle(context: RequestContext) -> bytes | Awaitable[bytes]:
        image = view.image
        answer = partial(_answer, image, context.api_version, context.body)
        short = is_short(context) and len(image.topics) <= THINGS_AT_ONCE
        return answer() if short else view.aside.do(answer)

    return handle


def _answer(image: ClusterImage, version: int, body: memoryview) -> bytes:
    request = decode_request(ApiKey.LIST_CONFIG_RESOURCES, version, body)
    values: dict[str, Any] = {"error_code": Code.NONE, "config_resources": []}
    if version >= _TYPES_VERSION:
        wanted = frozenset(request.resource_types)
        if wanted - {TOPIC, BROKER} - _WITHOUT_ANY:
            values["error_code"] = Code.UNSUPPORTED_VERSION
        else:
            values["config_resources"] = list(_resources(image, wanted or {TOPIC, BROKER}))
    return encode_response(ApiKey.LIST_CONFIG_RESOURCES, version, values)


def _resources(image: ClusterImage, wanted: frozenset[int] | set[int]) -> Iterator[dict[str, Any]]:
    if TOPIC in wanted:
        for name in sorted(image.topic_ids):
            yield {"resource_name": name, "resource_type": TOPIC}
    if BROKER in wanted:
        for broker_id, broker in sorted(image.brokers.items()):
            if not broker.fenced:
                yield {"resource_name": str(broker_id), "resource_type": BROKER}
