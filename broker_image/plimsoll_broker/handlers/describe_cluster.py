"""DescribeCluster: the brokers, and on request the fenced ones too (KIP-700, KIP-1073)."""

from __future__ import annotations

from typing import Any

from plimsoll_broker.handlers import cluster_view as shared
from plimsoll_broker.handlers.cluster_view import ClusterView
from plimsoll_broker.server.dispatch import Handler, RequestContext
from plimsoll_broker.storage.checkpoint_formats import uuid_text
from plimsoll_core.cluster.listeners import Listener
from plimsoll_core.errors import Code
from plimsoll_core.security.acl import ResourceType
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
            may = shared.EVERY_OPERATION[_CLUSTER] if rights is None else rights.on_the_cluster()
            values["cluster_authorized_operations"] = may
        return encode_response(ApiKey.DESCRIBE_CLUSTER, version, values)

    return handle


def _not_here(endpoint_type: int) -> dict[str, Any]:
    """Return the refusal to a client that took this address for a controller's."""
    known = endpoint_type == _CONTROLLERS
    return {
        "error_code": Code.MISMATCHED_ENDPOINT_TYPE if known else Code.UNSUPPORTED_ENDPOINT_TYPE,
        "error_message": "This listener is the brokers', not the controller's.",
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
