"""Moves leadership away from replicas on disks that failed or are nearly full.

`report_failed` is called for ReportFailedReplicas: the replica leaves the ISR and is not elected
while its log is offline; its broker keeps its other partitions. The log returns when its broker
restarts, or when a full disk has room again and the broker has reopened the log. The broker then
reports the log (`back_in_service`, for a partition without a leader) or follows, and the leader
proposes it for the ISR. A follower that must copy its log anew leaves the ISR and the ELR first.

`hand_leaders_over` is called for heartbeats: a broker that refuses clients' records
(`BrokerFigures.disk_short`) stays in its ISRs and follows; its leaderships go to ISR members on
brokers that accept records, if there are any. None returns before it accepts records again
(`leader_elections`). Source: the heartbeat rule of docs/protocol.md for offline log directories.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice

from plimsoll_core.cluster.model import Broker, Partition, PartitionKey
from plimsoll_core.controller.kernel.decision import DecisionContext, stale_epoch
from plimsoll_core.controller.kernel.partition_change import PartitionUpdate
from plimsoll_core.errors import Refusal
from plimsoll_core.ids import BrokerId
from plimsoll_core.messages.requests import Answer, Done, ReportFailedReplicas


def is_short(turn: DecisionContext, broker_id: BrokerId) -> bool:
    """Return True if the broker's last heartbeat said that its disk is nearly full. Return False if
    none has arrived in this term."""
    contact = turn.soft.contacts.get(broker_id)
    figures = None if contact is None else contact.figures
    return figures is not None and figures.disk_short


def hand_leaders_over(turn: DecisionContext, broker: Broker) -> None:
    """If the broker's disk is nearly full, move its leaderships to ISR members on brokers with
    room. At most one slice of partitions is changed; the next heartbeat continues. A partition
    without such a member stays."""
    if not is_short(turn, broker.id):
        return
    short = frozenset(one for one in turn.image.brokers if is_short(turn, one))

    def has_heir(p: Partition) -> bool:
        heirs = (one for one in p.isr if one not in short)
        return p.leader == broker.id and any(turn.may_lead(one, p) for one in heirs)

    led = (p for p in turn.hosted(broker.id) if has_heir(p))
    batch = list(islice(led, turn.settings.slice_partitions_max))
    cause = f"the disk of broker {broker.id} is nearly full"
    turn.change([(p, PartitionUpdate()) for p in batch], cause, without=short)


def back_in_service(
    turn: DecisionContext, broker_id: BrokerId, partitions: Iterable[Partition]
) -> None:
    """Record that the broker's logs of these leaderless partitions are online again, and elect
    members of the ISR, or of the ELR if the ISR is empty, where one may lead. Repeat an election if
    its records were dropped because the metadata log was full."""
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
    keys = {PartitionKey(replica.topic_id, replica.index): replica.lost for replica in told}
    partitions = {key: p for key in keys if (p := turn.image.partitions.get(key)) is not None}
    failures: list[tuple[Partition, PartitionUpdate]] = []
    losses: list[tuple[Partition, PartitionUpdate]] = []
    for key, p in partitions.items():
        rest = [member for member in p.isr if member != failed]
        if not keys[key]:
            # Whatever is decided later in this term: electing it would only be answered by this
            # again.
            turn.soft.failed.setdefault(key, {})[failed] = request.broker_epoch
            if failed in p.isr:
                failures.append((p, PartitionUpdate(isr=rest)))
        elif p.leader not in (None, failed) and (failed in p.isr or failed in p.elr):
            # Only a follower discards its log.
            losses.append((p, PartitionUpdate(isr=rest, lost=frozenset({failed}))))
    without = frozenset({failed})
    cause = f"storage: broker {failed} has no disk that takes this log"
    turn.change(failures, cause, without=without)
    turn.change(losses, f"broker {failed} has to copy this log anew", without=without)
    return Done()
