"""The value of a topic config that the topic does not set: the broker's own, else Kafka's default.

Called by DescribeConfigs and by the handlers that change configs.
"""

from __future__ import annotations

from collections.abc import Mapping

from plimsoll_core.cluster.cluster_configs import BROKER_DEFAULTS
from plimsoll_core.cluster.topic_configs import BY_NAME

BROKER_NAMES = {topic_name: broker_name for broker_name, topic_name in BROKER_DEFAULTS.items()}
"""The broker config behind each topic config."""
SHOWN_NAMES = BROKER_NAMES | {
    "file.delete.delay.ms": "log.segment.delete.delay.ms",
    "local.retention.bytes": "log.local.retention.bytes",
    "local.retention.ms": "log.local.retention.ms",
    "preallocate": "log.preallocate",
    "segment.jitter.ms": "log.roll.jitter.ms",
}
"""As BROKER_NAMES, with configs that exist only in Kafka."""
TOPICS_ALONE = frozenset(
    {
        "follower.replication.throttled.replicas",
        "leader.replication.throttled.replicas",
        "remote.log.copy.disable",
        "remote.log.delete.on.disable",
        "remote.storage.enable",
    }
)
"""Topic configs without a broker config."""


def value_without_topic(name: str, broker_configs: Mapping[str, str]) -> str:
    """Return the value, or "" for an unknown name."""
    key = BY_NAME.get(name)
    default = "" if key is None else key.default
    return broker_configs.get(BROKER_NAMES.get(name, name), default)
