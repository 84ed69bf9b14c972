"""Who leads a partition that has lost everybody it could trust: the most complete last known log.

Called for ReportReplicaLogs.  Balanced recovery: every member of the LastKnownELR must have told,
in its present lifetime and about the present term, how far its log goes; then the greatest log
leads.  As long as one of them is silent nothing is decided.  Clean election always comes first:
where the ISR or the ELR has a member, that member is waited for.
Source: the protocol's rule for leaderless partitions, strategy balanced; KIP-966.
"""

from __future__ import annotations

from plimsoll_core.controller.change import Wish
from plimsoll_core.controller.heartbeat import stale_epoch
from plimsoll_core.controller.turn import Report, Turn
from plimsoll_core.ids import BrokerId
from plimsoll_core.messages import Answer, Done, ReplicaLog, ReportReplicaLogs
from plimsoll_core.model import Partition, PartitionKey
from plimsoll_core.reasons import Refusal

CAUSE = "recovery: the most complete of the last known logs leads, possible data loss"


def report(turn: Turn, request: ReportReplicaLogs) -> Answer | Refusal:
    refusal = stale_epoch(turn, request.broker_id, request.broker_epoch)
    if refusal:
        return refusal
    wishes: list[tuple[Partition, Wish]] = []
    for log in request.logs[: turn.settings.slice_partitions_max]:
        partition = turn.image.partitions.get(PartitionKey(log.topic_id, log.index))
        if partition is None or not partition.needs_recovery:
            turn.soft.reports.pop(PartitionKey(log.topic_id, log.index), None)
            continue
        _note(turn, request, log)
        leader = _most_complete(turn, partition)
        if leader is not None and turn.may_lead(leader, partition):
            wishes.append((partition, Wish(unclean=leader)))
    turn.change(wishes, CAUSE)
    return Done()


def _note(turn: Turn, request: ReportReplicaLogs, log: ReplicaLog) -> None:
    reports = turn.soft.reports.setdefault(PartitionKey(log.topic_id, log.index), {})
    written = log.last_written_epoch
    reports[request.broker_id] = Report(
        broker_epoch=request.broker_epoch,
        leader_epoch=log.leader_epoch,
        last_written_epoch=-1 if written is None else written,
        log_end_offset=log.log_end_offset,
    )


def _most_complete(turn: Turn, partition: Partition) -> BrokerId | None:
    """None while somebody has not told; ties go to the first in the order of the replicas."""
    reports = turn.soft.reports.get(partition.key, {})
    best: tuple[int, int] | None = None
    chosen: BrokerId | None = None
    for member in partition.replicas:
        if member not in partition.last_known_elr:
            continue
        broker, told = turn.image.brokers.get(member), reports.get(member)
        current = (
            broker is not None
            and told is not None
            and told.broker_epoch == broker.broker_epoch
            and told.leader_epoch == partition.leader_epoch
        )
        if not current or told is None:
            return None
        extent = (told.last_written_epoch, told.log_end_offset)
        if best is None or extent > best:
            best, chosen = extent, member
    return chosen
