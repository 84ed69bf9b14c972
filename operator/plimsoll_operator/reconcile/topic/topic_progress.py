"""Progress of moves of a topic's partitions, and its condition Reconciling. Pure.

Called by `topic_status` for moves of any origin: another replication factor, a Reassignment, a
Rebalance.
"""

from __future__ import annotations

from plimsoll_core.cluster.model import Partition
from plimsoll_operator.api import topic as api
from plimsoll_operator.api.conditions import condition
from plimsoll_operator.api.meta import Condition
from plimsoll_operator.api.quantities import binary
from plimsoll_operator.status.copy_meter import Copies, Meter


def move(
    moving: list[Partition], meter: Meter, copies: Copies, now_ms: int
) -> api.TopicMove | None:
    """Return the move. `copies`: copy sizes that brokers reported, as of `now_ms` (monotonic)."""
    if not moving:
        return None
    progress = meter.read(moving, copies, now_ms)
    return api.TopicMove(
        partitions=len(moving),
        bytes_left=binary(progress.left),
        eta_seconds=progress.eta_seconds,
    )


def reconciling(moving: list[Partition]) -> Condition:
    if not moving:
        text = "Every partition has its intended replicas."
        return condition("Reconciling", False, "Done", text)
    changing = any(len(p.target) != len(p.settled) for p in moving)
    reason = "ChangingReplicationFactor" if changing else "MovingReplicas"
    return condition("Reconciling", True, reason, f"{len(moving)} partitions are moving.")
