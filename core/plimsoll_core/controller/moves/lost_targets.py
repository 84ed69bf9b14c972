"""Chooses another target for a move if its target is away, and ends moves that are complete.

`note_away` and `end_moves` are called by ticks, the others while moves are carried out.  Another
target is chosen only if the controller chose the first one (`onTargetLost: Replan`); a target that
a user named is waited for.  `end_moves` ends the moves that reached their end without a change of
their partition: a restart that was granted and never began delays the end of a move, and so does a
controller of an earlier release with a stricter rule; no ISR changes when either is over.  Source:
docs/protocol.md §3.0, step 1.
"""

from __future__ import annotations

from itertools import islice

from plimsoll_core.cluster.model import (
    Partition,
)
from plimsoll_core.controller.kernel.availability_margin import away
from plimsoll_core.controller.kernel.decision import DecisionContext
from plimsoll_core.controller.kernel.partition_change import PartitionUpdate, ends_now
from plimsoll_core.ids import BrokerId
from plimsoll_core.messages.reassignments import (
    RunReassignment,
)


def note_away(turn: DecisionContext) -> None:
    """Record when this term first saw each inactive broker inactive, and forget the active ones."""
    away = turn.soft.away_ms
    for broker_id, broker in turn.image.brokers.items():
        if broker.active:
            away.pop(broker_id, None)
        else:
            away.setdefault(broker_id, turn.now_ms)


def waited_for(turn: DecisionContext, p: Partition) -> list[BrokerId]:
    """Return the inactive brokers that the partition's move waits for, in the order of its target.
    First these are added replicas outside the ISR. If all added replicas are in the ISR, the move
    waits for replicas that stay: without them the ISR is too small for it to end."""
    added = set(p.adding)
    missing = [b for b in p.target if b not in p.isr]
    needed = [b for b in missing if b in added] or missing
    return [b for b in needed if not turn.acceptable(b)]


def lost_targets(turn: DecisionContext, p: Partition) -> frozenset[BrokerId]:
    """Return the brokers that the partition's move waits for and that have been inactive for at
    least `target_lost_ms`."""
    limit_ms = turn.settings.target_lost_ms
    away = turn.soft.away_ms
    return frozenset(
        b for b in waited_for(turn, p) if turn.now_ms - away.get(b, turn.now_ms) >= limit_ms
    )


def is_lost(turn: DecisionContext, broker: BrokerId) -> bool:
    """Return True if a move should get another target in place of this broker: it takes no new
    replicas, or has been inactive for at least `target_lost_ms`."""
    if not turn.image.takes_replicas(broker):
        return True
    if turn.acceptable(broker):
        return False
    away_ms = turn.now_ms - turn.soft.away_ms.get(broker, turn.now_ms)
    return away_ms >= turn.settings.target_lost_ms


def replans(turn: DecisionContext, request: RunReassignment, p: Partition) -> bool:
    """Return True if the Reassignment permits the controller to choose another target for the
    partition."""
    name = turn.image.topics[p.topic_id].name
    return any(
        move.replan and move.topic == name and (not move.partitions or p.index in move.partitions)
        for move in request.moves
    )


def end_moves(turn: DecisionContext) -> None:
    """End the moves that are complete without a change of their ISR. At most one slice of
    partitions is changed; later ticks change the rest."""
    absent = away(turn.image)
    found = (turn.image.partitions.get(key) for key in turn.soft.moving)
    over = (p for p in found if p is not None and p.moving and ends_now(p, absent))
    now = list(islice(over, turn.settings.slice_partitions_max))
    turn.change([(p, PartitionUpdate()) for p in now], "reassignment completed")
