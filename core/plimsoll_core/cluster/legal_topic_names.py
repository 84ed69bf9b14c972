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
    """Kafka's alphabet, and its sentences: clients' users look for words of them."""
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
