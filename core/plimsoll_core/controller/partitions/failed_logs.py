"""A broker's disk took a log out of service: the partition goes on without that replica.

Called for ReportFailedReplicas.  The replica leaves the ISR and is not elected while its log is out
of service; its broker keeps its other partitions.  It comes back when its broker starts again, or
when a disk that was full has room again and the broker has reopened the log: it reports the log
(`back_in_service`, for a partition without a leader) or follows (and the leader proposes it).
Source: the protocol's heartbeat rule for offline log directories.
"""

from __future__ import annotations

from collections.abc import Iterable

from plimsoll_core.cluster.model import Partition, PartitionKey
from plimsoll_core.controller.kernel.decision import DecisionContext
from plimsoll_core.controller.kernel.partition_change import PartitionUpdate
from plimsoll_core.controller.kernel.stale_broker_epoch import stale_epoch
from plimsoll_core.errors import Refusal
from plimsoll_core.ids import BrokerId
from plimsoll_core.messages.requests import Answer, Done, ReportFailedReplicas


def back_in_service(
    turn: DecisionContext, broker_id: BrokerId, partitions: Iterable[Partition]
) -> None:
    """The broker tells of its logs of leaderless partitions: those are in service.  Whoever may
    lead cleanly does; also where it was decided before, and the log was too full to take it."""
    back: list[tuple[Partition, PartitionUpdate]] = []
    late: list[tuple[Partition, PartitionUpdate]] = []
    for partition in partitions:
        if turn.soft.in_service(partition.key, broker_id):
            back.append((partition, PartitionUpdate()))
        elif any(turn.may_lead(member, partition) for member in partition.isr or partition.elr):
            late.append((partition, PartitionUpdate()))
    turn.change(back, f"elected after a disk of broker {broker_id} had room again")
    turn.change(late, f"elected after broker {broker_id} told of its log again")


def report_failed(turn: DecisionContext, request: ReportFailedReplicas) -> Answer | Refusal:
    refusal = stale_epoch(turn, request.broker_id, request.broker_epoch)
    if refusal:
        return refusal
    failed = request.broker_id
    told = request.replicas[: turn.settings.slice_partitions_max]
    # Each partition once: a change is made from the partition as it was.
    keys = dict.fromkeys(PartitionKey(replica.topic_id, replica.index) for replica in told)
    keys = {key: None for key in keys if key in turn.image.partitions}
    for key in keys:
        # Whatever is decided later in this term: electing it would only be answered by this again.
        turn.soft.failed.setdefault(key, {})[failed] = request.broker_epoch
    partitions = [turn.image.partitions[key] for key in keys]
    wishes = [
        (p, PartitionUpdate(isr=[member for member in p.isr if member != failed]))
        for p in partitions
        if failed in p.isr
    ]
    cause = f"storage: broker {failed} has no disk that takes this log"
    turn.change(wishes, cause, without=frozenset({failed}))
    return Done()
