"""Rate limits of moves, and the brokers' reports about the progress of copies.

Called for LimitMovement and ReportCopies, and by ticks.  The limit is a record, because brokers
keep to it; sizes and absences are soft: people read them, and after a long absence another target
is chosen.
"""

from __future__ import annotations

from plimsoll_core.cluster.model import PartitionKey
from plimsoll_core.cluster.records import MovementLimited
from plimsoll_core.controller.kernel.decision import DecisionContext
from plimsoll_core.controller.kernel.stale_epoch import stale_epoch
from plimsoll_core.errors import Reason, Refusal
from plimsoll_core.messages.reassignments import LimitMovement, ReportCopies
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


def report_copies(turn: DecisionContext, request: ReportCopies) -> Answer | Refusal:
    refusal = stale_epoch(turn, request.broker_id, request.broker_epoch)
    if refusal:
        return refusal
    for copy in request.copies[: turn.settings.slice_partitions_max]:
        p = turn.image.partitions.get(PartitionKey(copy.topic_id, copy.index))
        if p is None or not p.moving:
            continue
        if request.broker_id == p.leader or request.broker_id in p.adding:
            turn.soft.copies.setdefault(p.key, {})[request.broker_id] = copy.size
    for one in request.sizes[: turn.settings.slice_partitions_max]:
        p = turn.image.partitions.get(PartitionKey(one.topic_id, one.index))
        if p is not None and request.broker_id == p.leader:
            turn.soft.sizes[p.key] = one.size
    return Done()


def note_away(turn: DecisionContext) -> None:
    """Since when each registered broker has not taken part, as far as this term knows."""
    away = turn.soft.away_ms
    for broker_id, broker in turn.image.brokers.items():
        if broker.active:
            away.pop(broker_id, None)
        else:
            away.setdefault(broker_id, turn.now_ms)
