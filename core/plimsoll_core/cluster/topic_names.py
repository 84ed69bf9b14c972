"""Legal topic names, and the names of the brokers' internal topics.

Called by the controller for new and changed topics, and by brokers, which refuse invalid names at
once and mark the internal topics. Clients and objects cannot create an internal topic. Sources:
Kafka's `Topic.validate` and `org.apache.kafka.common.internals`.
"""

from __future__ import annotations

import re

from plimsoll_core.errors import Reason, Refusal

NAME_LENGTH_MAX = 249

CLUSTER_METADATA = "__cluster_metadata"
"""The name of Kafka's metadata log. No topic may have this name."""
_LEGAL = re.compile(r"[a-zA-Z0-9._-]+")


def check_form(name: str) -> Refusal | None:
    """Return a Refusal if a topic name has invalid characters or an invalid length, or None. The
    message is worded as Kafka's, which users search for."""
    shown = f"'{name[:NAME_LENGTH_MAX]}'"
    if not name:
        why = "the empty string is not allowed"
    elif name in (".", ".."):
        why = f"{shown} is not allowed"
    elif len(name) > NAME_LENGTH_MAX:
        why = f"the length of {shown}... is longer than the max allowed length {NAME_LENGTH_MAX}"
    elif not _LEGAL.fullmatch(name):
        characters = "characters other than ASCII alphanumerics, '.', '_' and '-'"
        why = f"{shown} contains one or more {characters}"
    else:
        return None
    return Refusal(reason=Reason.InvalidTopicName, message=f"Topic name is invalid: {why}")


GROUP_OFFSETS = "__consumer_offsets"
METADATA_VERSION = 2
"""The least metadata version for the group offsets. Older brokers do not know
`cleanup.policy=compact`, and older controllers do not know the request that creates the topic."""
TRANSACTION_STATE = "__transaction_state"
TRANSACTIONS_VERSION = 5
"""The least metadata version for transactions. Older brokers know neither the topic nor markers."""
INTERNAL_TOPICS = frozenset({GROUP_OFFSETS, TRANSACTION_STATE, "__share_group_state"})


def is_internal(name: str) -> bool:
    return name in INTERNAL_TOPICS
