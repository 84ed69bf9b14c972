"""Which names a new topic may have.  Called for topics of clients and for declared ones."""

from __future__ import annotations

from plimsoll_core.cluster.legal_topic_names import check_form
from plimsoll_core.controller.kernel.decision import DecisionContext
from plimsoll_core.errors import Reason, Refusal


def check_name(turn: DecisionContext, name: str) -> Refusal | None:
    """Two names must not differ only in '.' and '_', as metrics mix them."""
    if refusal := check_form(name):
        return refusal
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
