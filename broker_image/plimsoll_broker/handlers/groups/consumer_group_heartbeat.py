"""ConsumerGroupHeartbeat: members of KIP-848 are told that their protocol is not served.

The same answer as Kafka's where `group.coordinator.rebalance.protocols` leaves it out, from which
every client learns at once what is the matter.  Where the API is not there at all, librdkafka looks
for another coordinator for ever and tells its application nothing.
"""

from __future__ import annotations

from plimsoll_broker.server.dispatch import RequestContext
from plimsoll_core.errors import Code
from plimsoll_wire.messages import encode_response

NOT_SERVED = "The group protocol 'consumer' is not served here; set group.protocol=classic."


def consumer_group_heartbeat(context: RequestContext) -> bytes:
    """Whatever it asks."""
    values = {
        "error_code": Code.UNSUPPORTED_VERSION,
        "error_message": NOT_SERVED,
        "member_id": None,
        "member_epoch": 0,
        "heartbeat_interval": 0,
        "assignment": None,
    }
    return encode_response(context.api_key, context.api_version, values)
