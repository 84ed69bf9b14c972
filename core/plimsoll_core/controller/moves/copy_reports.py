"""The brokers' reports about the progress of copies.  Called for ReportCopies.

Sizes are soft: people read them.
"""

from __future__ import annotations

from plimsoll_core.cluster.model import PartitionKey
from plimsoll_core.controller.kernel.decision import DecisionContext
from plimsoll_core.controller.kernel.stale_broker_epoch import stale_epoch
from plimsoll_core.errors import Refusal
from plimsoll_core.messages.reassignments import ReportCopies
from plimsoll_core.messages.requests import Answer, Done


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
            turn.soft.behind[p.key] = {lag.broker_id: lag.records for lag in one.behind}
    return Done()
