"""The topics that brokers keep for themselves, by name: no client and no object may have one.

Called by the controller, which makes them, and by the brokers, which say that they are internal.
Source: Kafka's `Topic` and `org.apache.kafka.common.internals`.
"""

from __future__ import annotations

GROUP_OFFSETS = "__consumer_offsets"
METADATA_VERSION = 2
"""Below it none is made: an older broker does not know `cleanup.policy=compact`, nor an older
controller the request to make one."""
INTERNAL_TOPICS = frozenset({GROUP_OFFSETS, "__transaction_state", "__share_group_state"})


def is_internal(name: str) -> bool:
    return name in INTERNAL_TOPICS
