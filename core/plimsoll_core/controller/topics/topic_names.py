"""Which names a topic may have.  Called for topics of clients and for declared ones."""

from __future__ import annotations

import re

from plimsoll_core.controller.kernel.decision import DecisionContext
from plimsoll_core.errors import Reason, Refusal

NAME_LENGTH_MAX = 249


_LEGAL = re.compile(r"[a-zA-Z0-9._-]+")


def check_name(turn: DecisionContext, name: str) -> Refusal | None:
    """Kafka's alphabet; and two names must not differ only in '.' and '_', as metrics mix them."""
    if not name or name in (".", "..") or len(name) > NAME_LENGTH_MAX or not _LEGAL.fullmatch(name):
        return Refusal(
            reason=Reason.InvalidTopicName,
            message=(
                f"{name[:NAME_LENGTH_MAX]!r} is not a topic name: use 1 to {NAME_LENGTH_MAX} ASCII"
                " letters, digits, '.', '_' and '-', and not '.' or '..' alone."
            ),
        )
    if "." not in name and "_" not in name:
        return None
    plain = name.replace(".", "_")
    for other in turn.image.topic_ids:
        if other != name and other.replace(".", "_") == plain:
            return Refusal(
                reason=Reason.InvalidTopicName,
                message=f"{name} differs from topic {other} only in '.' and '_'; choose another.",
            )
    return None
