"""How many records a partition would lose if the best available replica were named its leader now.

Called for a cluster's status; nothing is decided from it.
"""

from __future__ import annotations

from dataclasses import dataclass

from plimsoll_core.cluster.model import Partition
from plimsoll_core.controller.kernel.decision import DecisionContext
from plimsoll_core.controller.partitions.unclean_recovery import (
    most_complete,
    told,
)
from plimsoll_core.ids import BrokerId


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownLoss:
    """If `leader` led now, it would lack so many records of the longest log that was told of."""

    leader: BrokerId
    records: int


def estimated_loss(turn: DecisionContext, partition: Partition) -> KnownLoss | None:
    """Of naming the best replica that can be named now.

    Everything that was told in this leader epoch counts, also by lifetimes that are over.
    """
    logs = told(turn.image, turn.soft, partition, partition.replicas)
    able = {b: log for b, log in logs.items() if turn.may_lead(b, partition)}
    leader = most_complete(able or logs)
    if leader is None:
        return None
    ends = [
        log.log_end_offset
        for log in turn.soft.reports.get(partition.key, {}).values()
        if log.leader_epoch == partition.leader_epoch
    ]
    return KnownLoss(leader=leader, records=max(ends) - logs[leader].log_end_offset)
