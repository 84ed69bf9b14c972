"""Which targets of moves have been away for so long that another is chosen (`onTargetLost`).

Called by ticks, which note since when brokers do not take part, and by what carries moves out.
Another target is chosen only where the controller had chosen (`onTargetLost: Replan`); where a
person did, the move waits.
"""

from __future__ import annotations

from plimsoll_core.cluster.model import (
    Partition,
)
from plimsoll_core.controller.kernel.decision import DecisionContext
from plimsoll_core.ids import BrokerId
from plimsoll_core.messages.reassignments import (
    RunReassignment,
)


def note_away(turn: DecisionContext) -> None:
    """Since when each registered broker has not taken part, as far as this term knows."""
    away = turn.soft.away_ms
    for broker_id, broker in turn.image.brokers.items():
        if broker.active:
            away.pop(broker_id, None)
        else:
            away.setdefault(broker_id, turn.now_ms)


def waited_for(turn: DecisionContext, p: Partition) -> list[BrokerId]:
    """Brokers that a move cannot end without and that do not take part, in the target's order.

    First those that it adds.  When all of these are in sync and the move has not ended, the ISR
    without what it removes would be too small: then it is the replicas that stay.
    """
    added = set(p.adding)
    missing = [b for b in p.target if b not in p.isr]
    needed = [b for b in missing if b in added] or missing
    return [b for b in needed if not turn.acceptable(b)]


def lost_targets(turn: DecisionContext, p: Partition) -> frozenset[BrokerId]:
    """Those that a move cannot end without and that have been away for long."""
    limit_ms = turn.settings.target_lost_ms
    away = turn.soft.away_ms
    return frozenset(
        b for b in waited_for(turn, p) if turn.now_ms - away.get(b, turn.now_ms) >= limit_ms
    )


def is_lost(turn: DecisionContext, broker: BrokerId) -> bool:
    """Inactive for so long that another target should replace it; or it takes no replicas."""
    if not turn.image.takes_replicas(broker):
        return True
    if turn.acceptable(broker):
        return False
    away_ms = turn.now_ms - turn.soft.away_ms.get(broker, turn.now_ms)
    return away_ms >= turn.settings.target_lost_ms


def replans(turn: DecisionContext, request: RunReassignment, p: Partition) -> bool:
    """Whether the Reassignment leaves it to the controller to choose another target."""
    name = turn.image.topics[p.topic_id].name
    return any(
        move.replan and move.topic == name and (not move.partitions or p.index in move.partitions)
        for move in request.moves
    )
