"""Which names a topic can have at all.

Called by the controller, for new and changed topics, and by brokers, which tell a client at once
that a name is none instead of that the topic is not there.  Source: Kafka's Topic.validate.
"""

from __future__ import annotations

import re

from plimsoll_core.errors import Reason, Refusal

NAME_LENGTH_MAX = 249

CLUSTER_METADATA = "__cluster_metadata"
"""Kafka's name for its metadata log, which is no topic here."""
_LEGAL = re.compile(r"[a-zA-Z0-9._-]+")


def check_form(name: str) -> Refusal | None:
    """Kafka's alphabet."""
    if name not in ("", ".", "..") and len(name) <= NAME_LENGTH_MAX and _LEGAL.fullmatch(name):
        return None
    return Refusal(
        reason=Reason.InvalidTopicName,
        message=(
            f"{name[:NAME_LENGTH_MAX]!r} is not a topic name: use 1 to {NAME_LENGTH_MAX} ASCII"
            " letters, digits, '.', '_' and '-', and not '.' or '..' alone."
        ),
    )
