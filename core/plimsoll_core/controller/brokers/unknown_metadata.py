"""Whether a broker that cannot read the metadata is fenced: once another has applied more.

Called by `heartbeat`.  Source: docs/protocol.md §3.14.
"""

from __future__ import annotations

from plimsoll_core.cluster.model import Broker
from plimsoll_core.controller.kernel.decision import DecisionContext
from plimsoll_core.messages.requests import Heartbeat


def others_know_more(turn: DecisionContext, broker: Broker, request: Heartbeat) -> bool:
    """It cannot read what was decided, and somebody else has: then that one leads in its place.

    While no broker understands it, all serve on what they knew, and fencing would only take that
    away.
    """
    if not request.unknown_metadata:
        return False
    for other in sorted(turn.active() - {broker.id}):
        contact = turn.soft.contacts.get(other)
        applied = contact.applied_offset if contact else None
        if applied is not None and applied > request.position.applied_offset:
            return True
    return False
