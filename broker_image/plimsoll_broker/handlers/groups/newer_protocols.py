"""Refuse members of group protocols that are not served: KIP-848 consumer groups and share groups.

Their heartbeats are advertised and answered with UNSUPPORTED_VERSION (35), as by an Apache Kafka
whose `group.coordinator.rebalance.protocols` is `classic`.  librdkafka looks for the heartbeat in
ApiVersions and waits in silence where it is missing; told 35, it ends with a sentence.  Nothing
else of these protocols is advertised.  No request is decoded, so no right is required.
"""

from __future__ import annotations

from plimsoll_broker.server.dispatch import Reply, RequestContext
from plimsoll_core.errors import Code
from plimsoll_wire.messages import encode_response

_SENTENCES = {
    68: "This cluster serves the classic group protocol only: set group.protocol=classic.",
    76: "This cluster serves no share groups: use a consumer group.",
}
"""By api key: ConsumerGroupHeartbeat, ShareGroupHeartbeat."""


def refuse_heartbeat(context: RequestContext) -> Reply:
    values = {
        "error_code": Code.UNSUPPORTED_VERSION,
        "error_message": _SENTENCES[context.api_key],
        "member_epoch": 0,
        "heartbeat_interval": 0,
        "assignment": None,
    }
    return encode_response(context.api_key, context.api_version, values)
