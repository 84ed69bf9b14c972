"""Returns leaderships to the preferred replicas: after a while by itself, at once what was moved.

Called by ticks, in bounded batches, and by Rebalances and Reassignments at the end of their moves.
Leadership does not return to a broker that has just failed. Source: the protocol's rule for
elections on request (automatic ones).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice

from plimsoll_core.cluster.model import Partition, PartitionKey
from plimsoll_core.controller.kernel.decision import DecisionContext
from plimsoll_core.controller.kernel.partition_change import PartitionUpdate
from plimsoll_core.controller.partitions.failed_disks import is_short
from plimsoll_core.controller.partitions.requested_elections import PREFERRED
from plimsoll_core.ids import BrokerId

BY_ITSELF = f"{PREFERRED}, by itself"
AFTER_MOVE = f"{PREFERRED}, at the end of its move by "
"""The beginning of the cause in records of elections after a move. Kind, namespace and name of the
moving object follow."""


def return_leaders(turn: DecisionContext) -> None:
    """Elect the preferred replicas of at most one slice of partitions that others lead, at
    intervals of `preferred_leader_interval_ms`. All of them at once would disturb clients
    noticeably."""
    due_ms = turn.soft.leaders_due_ms
    if due_ms is None:
        due_ms = turn.soft.leaders_due_ms = turn.now_ms + turn.settings.preferred_leader_interval_ms
    if turn.now_ms < due_ms:
        return
    most = turn.settings.slice_partitions_max
    batch = list(islice(_returning(turn, turn.soft.displaced), most))
    turn.change([(p, PartitionUpdate(preferred=True)) for p in batch], BY_ITSELF)
    if len(batch) < most:
        turn.soft.leaders_due_ms = turn.now_ms + turn.settings.preferred_leader_interval_ms


def lead_by_preferred(turn: DecisionContext, keys: Iterable[PartitionKey], mover: str) -> None:
    """Elect the preferred replicas of partitions that the object `mover` has moved. At most one
    slice is changed here; ticks change the rest."""
    displaced = (key for key in keys if key in turn.soft.displaced)
    batch = islice(_returning(turn, displaced), turn.settings.slice_partitions_max)
    turn.change([(p, PartitionUpdate(preferred=True)) for p in batch], AFTER_MOVE + mover)


def _returning(turn: DecisionContext, keys: Iterable[PartitionKey]) -> Iterator[Partition]:
    steady: dict[BrokerId, bool] = {}
    for key in keys:
        p = turn.image.partitions[key]
        first = p.replicas[0]
        if first not in p.isr or first in turn.image.leaving:
            continue
        if first not in steady:
            steady[first] = _is_steady(turn, first)
        if steady[first] and turn.may_lead(first, p):
            yield p


def _is_steady(turn: DecisionContext, broker_id: BrokerId) -> bool:
    """Return True if leaderships may return to the broker: it has not failed lately, and its disk
    is not nearly full."""
    if is_short(turn, broker_id):
        return False  # it would refuse what clients write
    fell_out = turn.soft.flaps.get(broker_id)
    return not fell_out or turn.now_ms - fell_out[-1] >= turn.settings.flap_wait_ms_max
