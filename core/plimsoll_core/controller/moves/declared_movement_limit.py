"""Commits the rate limit of moves that a LogCluster states.  Called for LimitMovement.

A record, because brokers keep to it.
"""

from __future__ import annotations

from plimsoll_core.cluster.records import MovementLimited
from plimsoll_core.controller.kernel.decision import DecisionContext
from plimsoll_core.errors import Reason, Refusal
from plimsoll_core.messages.reassignments import LimitMovement
from plimsoll_core.messages.requests import Answer, Done


def limit(turn: DecisionContext, request: LimitMovement) -> Answer | Refusal:
    if request.bytes_per_second < 1:
        text = "Moves may be slow, but not stand still: give at least one byte a second."
        return Refusal(reason=Reason.InvalidRequest, message=text)
    if request.bytes_per_second != turn.image.movement_bytes_per_second:
        turn.add(
            MovementLimited(cause="declared", bytes_per_second=request.bytes_per_second),
        )
    return Done()
