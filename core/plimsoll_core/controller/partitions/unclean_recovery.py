"""Unclean recovery: elects a leader where no replica may lead cleanly.

Called for ReportReplicaLogs, when a broker is unfenced, and by ticks for overdue recoveries. A
clean election comes first: a member of the ISR or ELR that can lead is elected before this module
is asked. Then the topic's strategy decides. Balanced: every member of the LastKnownELR must have
reported its log, in its present registration and for the present leader epoch; the longest log
leads, and while a report is missing nothing is decided. Proactive: the longest of the logs reported
by the end of the wait leads. Manual: none leads until a user names one. A leader elected here may
lack acknowledged records, and the record's cause says so; it says that records are lost if another
replica reported a longer log. Source: the protocol's rule for leaderless partitions; KIP-966.

`outlook` explains an unhealthy partition for a cluster's status: its cause, the brokers that it
waits for, and the cost of giving up. No decision depends on it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from msgspec.structs import replace

from plimsoll_core.cluster.model import ClusterImage, Partition, PartitionKey, UncleanRecovery
from plimsoll_core.cluster.topic_configs import unclean_recovery
from plimsoll_core.controller.kernel.decision import DecisionContext, stale_epoch
from plimsoll_core.controller.kernel.partition_change import PartitionUpdate
from plimsoll_core.controller.kernel.settings import Settings
from plimsoll_core.controller.kernel.volatile_state import Report, VolatileState
from plimsoll_core.controller.partitions.failed_disks import back_in_service
from plimsoll_core.errors import Refusal
from plimsoll_core.ids import BrokerId
from plimsoll_core.messages.requests import Answer, Done, ReplicaLog, ReportReplicaLogs

CAUSES: Mapping[UncleanRecovery, str] = {
    "Balanced": "recovery: the most complete of the last known logs leads, possible data loss",
    "Proactive": "recovery: the most complete log that was told of in time leads, possible data"
    " loss",
}
ASKED = "recovery: a client asked for a leader, possible data loss"
NAMED = "recovery: its object names a leader, possible data loss"
POSSIBLE = "possible data loss"
CERTAIN = "certain data loss: another replica told of records that the leader lacks"
POSSIBLE_CAUSES = (*CAUSES.values(), ASKED, NAMED)
UNCLEAN_CAUSES = (*POSSIBLE_CAUSES, *(one.replace(POSSIBLE, CERTAIN) for one in POSSIBLE_CAUSES))
"""All causes in the records of unclean elections."""
_WORDS = {
    "BrokerUnregistered": "not registered",
    "VolumeEmptied": "its volume came back empty",
    "BrokerFenced": "fenced",
    "BrokerStopping": "stopping",
    "StorageFailed": "its disk failed",
    "LogUntold": "has not reported its log",
    "CatchingUp": "catching up",
}


def cause_of(turn: DecisionContext, partition: Partition, leader: BrokerId, how: str) -> str:
    """Return the cause to record for electing `leader`: `how`, one of `POSSIBLE_CAUSES`, or the
    variant of it that states certain data loss if another replica has reported a longer log."""
    return how.replace(POSSIBLE, CERTAIN) if _lacks(turn, partition, leader) else how


def is_loss_certain(cause: str) -> bool:
    return cause.endswith(CERTAIN)


def how_elected(cause: str) -> str:
    """Return the cause without its verdict about data loss: one of `POSSIBLE_CAUSES`, or `cause`
    itself if it is no cause of an unclean election."""
    return cause.removesuffix(CERTAIN) + POSSIBLE if is_loss_certain(cause) else cause


def _lacks(turn: DecisionContext, partition: Partition, leader: BrokerId) -> bool:
    """Return True if `leader` lacks records of a longer log that another replica reported for this
    leader epoch, even if that replica's broker has registered anew since. Return False if `leader`
    has not reported."""
    own = told(turn.image, turn.soft, partition, (leader,)).get(leader)
    return own is not None and any(
        log.leader_epoch == partition.leader_epoch and log.extent > own.extent
        for log in turn.soft.reports.get(partition.key, {}).values()
    )


def report(turn: DecisionContext, request: ReportReplicaLogs) -> Answer | Refusal:
    """Record the logs that a broker reports of leaderless partitions, and elect leaders where that
    is now decided. Refuse a report of another broker epoch. Brokers repeat their reports while a
    partition has no leader, so a new controller gets them as well."""
    refusal = stale_epoch(turn, request.broker_id, request.broker_epoch)
    if refusal:
        return refusal
    now = request.logs[: turn.settings.slice_partitions_max]
    noted: dict[PartitionKey, Partition] = {}
    for log in now:
        partition = turn.image.partitions.get(PartitionKey(log.topic_id, log.index))
        if partition is None or partition.leader is not None:
            continue
        if request.broker_id in partition.replicas:
            _note(turn, request, log)
            noted[partition.key] = partition
    back_in_service(turn, request.broker_id, noted.values())
    # A partition with a leader is left alone.
    _recover(turn, [turn.image.partitions[key] for key in noted])
    if len(now) < len(request.logs):
        turn.again = replace(request, logs=request.logs[len(now) :])
    return Done()


def recover_overdue(turn: DecisionContext) -> None:
    """Decide the Proactive recoveries for which the wait for reports is over, at most one slice,
    those that are due longest first."""
    due = sorted((at, key) for key, at in turn.soft.overdue_ms.items() if at <= turn.now_ms)
    found = [turn.image.partitions[key] for _, key in due[: turn.settings.slice_partitions_max]]
    _recover(turn, found)


def wake(turn: DecisionContext, broker_id: BrokerId) -> None:
    """Decide again the recoveries of leaderless partitions with reported logs and a replica on this
    broker, which was just unfenced; at most one slice."""
    waiting = [p for p in turn.hosted(broker_id) if p.key in turn.soft.reports]
    _recover(turn, waiting[: turn.settings.slice_partitions_max])


def strategy_of(image: ClusterImage, partition: Partition, settings: Settings) -> UncleanRecovery:
    """Return the strategy for unclean recovery in the topic's configs, or else the cluster's."""
    return unclean_recovery(image.topics[partition.topic_id].configs, settings.unclean_recovery)


def told(
    image: ClusterImage, soft: VolatileState, partition: Partition, members: Iterable[BrokerId]
) -> dict[BrokerId, Report]:
    """Return the reports of `members` that count: from the present registration of their broker and
    for the present leader epoch. They come in the order of `members`."""
    reports = soft.reports.get(partition.key, {})
    found: dict[BrokerId, Report] = {}
    for member in members:
        broker, one = image.brokers.get(member), reports.get(member)
        if broker is None or one is None:
            continue
        current = one.broker_epoch == broker.broker_epoch
        if current and one.leader_epoch == partition.leader_epoch:
            found[member] = one
    return found


def suspects(partition: Partition) -> tuple[BrokerId, ...]:
    """Return the replicas that may hold all committed records, in the order of the replicas: the
    members of the last known ELR, or all if it is empty. A Balanced recovery waits for reports of
    all of them."""
    known = partition.last_known_elr
    return tuple(r for r in partition.replicas if r in known) or partition.replicas


def most_complete(logs: Mapping[BrokerId, Report]) -> BrokerId | None:
    """Return the broker with the longest log, the first one among equals, or None if `logs` is
    empty."""
    return max(logs, key=lambda broker_id: logs[broker_id].extent, default=None)


def _note(turn: DecisionContext, request: ReportReplicaLogs, log: ReplicaLog) -> None:
    reports = turn.soft.reports.setdefault(PartitionKey(log.topic_id, log.index), {})
    written = log.last_written_epoch
    reports[request.broker_id] = Report(
        broker_epoch=request.broker_epoch,
        leader_epoch=log.leader_epoch,
        last_written_epoch=-1 if written is None else written,
        log_end_offset=log.log_end_offset,
    )


def _recover(turn: DecisionContext, partitions: Iterable[Partition]) -> None:
    wishes: dict[str, list[tuple[Partition, PartitionUpdate]]] = {}
    for partition in partitions:
        if partition.leader is not None:
            continue
        strategy = strategy_of(turn.image, partition, turn.settings)
        turn.soft.overdue_ms.pop(partition.key, None)
        leader: BrokerId | None = None
        if strategy == "Balanced":
            leader = _balanced(turn, partition)
        elif strategy == "Proactive":
            leader = _proactive(turn, partition)
        if leader is not None and turn.may_lead(leader, partition):
            cause = cause_of(turn, partition, leader, CAUSES[strategy])
            wishes.setdefault(cause, []).append((partition, PartitionUpdate(unclean=leader)))
    for cause, chosen in wishes.items():
        turn.change(chosen, cause)


def _balanced(turn: DecisionContext, partition: Partition) -> BrokerId | None:
    if not partition.needs_recovery:
        return None
    members = suspects(partition)
    logs = told(turn.image, turn.soft, partition, members)
    return most_complete(logs) if len(logs) == len(members) else None


def _proactive(turn: DecisionContext, partition: Partition) -> BrokerId | None:
    """Return the leader of a Proactive recovery. Return None if there is none yet, and set
    `overdue_ms` if the recovery waits for reports. It waits for all replicas, including fenced
    members of the ELR, but no longer than `unclean_wait_ms`."""
    if partition.isr:
        return None  # its last member is just being taken out, slice by slice
    logs = told(turn.image, turn.soft, partition, partition.replicas)
    since_ms = turn.soft.leaderless.setdefault(partition.key, turn.now_ms)
    over_ms = since_ms + turn.settings.unclean_wait_ms
    if len(logs) < len(partition.replicas) and turn.now_ms < over_ms:
        turn.soft.overdue_ms[partition.key] = over_ms
        return None
    able = {
        broker_id: one for broker_id, one in logs.items() if turn.may_lead(broker_id, partition)
    }
    return most_complete(able)


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownLoss:
    """The loss that electing `leader` now is known to cause: the number of records of the longest
    reported log that it lacks."""

    leader: BrokerId
    records: int


def estimated_loss(turn: DecisionContext, partition: Partition) -> KnownLoss | None:
    """Return the loss if the most complete of the replicas that may lead (if none may, of all that
    have reported their logs) were elected now. Return None if no replica has reported its log.

    The loss is counted against every report for this leader epoch, even if that replica's broker
    has registered anew since.
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Outlook:
    """The explanation of an unhealthy partition, for status. `cause`: a reason in CamelCase; `why`:
    a sentence. `waits_for`: the brokers that may help by returning. `loss`: the loss if a leader
    were elected now, None if not known."""

    cause: str
    why: str
    waits_for: tuple[BrokerId, ...]
    loss: KnownLoss | None = None


def outlook(turn: DecisionContext, partition: Partition) -> Outlook:
    """Explain a partition without a leader, or with replicas outside its ISR."""
    if partition.leader is not None:
        return _led(turn, partition)
    trusted = partition.isr or partition.elr
    found = _waits_for_any(turn, partition, trusted) if trusted else _recovers(turn, partition)
    return Outlook(
        cause=found.cause,
        why=found.why,
        waits_for=found.waits_for,
        loss=estimated_loss(turn, partition),
    )


def _led(turn: DecisionContext, partition: Partition) -> Outlook:
    missing = tuple(r for r in partition.replicas if r not in partition.isr)
    return Outlook(
        cause=_cause(turn, partition, missing, "CatchingUp"),
        why=(
            f"Partition {turn.image.name_of(partition)} tolerates fewer failures than it should, "
            "because these replicas are not in its ISR: "
            f"{_list(turn, partition, missing, 'CatchingUp')}. Those that are catching up return "
            "by themselves; start brokers that are down."
        ),
        waits_for=missing,
    )


def _waits_for_any(
    turn: DecisionContext, partition: Partition, trusted: tuple[BrokerId, ...]
) -> Outlook:
    who = _list(turn, partition, trusted, "CatchingUp")
    why = (
        f"Partition {turn.image.name_of(partition)} has no leader until one of its complete "
        f"replicas can lead again. Start any one of their brokers: {who}."
    )
    if strategy_of(turn.image, partition, turn.settings) == "Proactive":
        why += " After a short wait another active replica leads instead."
    return Outlook(cause=_cause(turn, partition, trusted, "CatchingUp"), why=why, waits_for=trusted)


def _recovers(turn: DecisionContext, partition: Partition) -> Outlook:
    """Explain a leaderless partition of which no replica is sure to hold all committed records."""
    strategy = strategy_of(turn.image, partition, turn.settings)
    asked = partition.replicas if strategy == "Proactive" else suspects(partition)
    logs = told(turn.image, turn.soft, partition, asked)
    silent = tuple(member for member in asked if member not in logs)
    begin = f"Partition {turn.image.name_of(partition)} has no leader"
    if strategy == "Manual":
        why = (
            f"{begin}, because no replica is certain to hold all committed records. Name a leader "
            "in the Topic's spec.uncleanRecovery.elect, preferably the replica with the most "
            "complete log (status.unhealthy[].estimatedLoss.leader); records that it lacks are "
            "lost."
        )
        if silent:
            why += f" These have not reported their logs yet: {_list(turn, partition, silent)}."
        return Outlook(cause="LeaderNotNamed", why=why, waits_for=silent)
    best = most_complete(logs)
    waits_for = silent or (() if best is None else (best,))
    if silent:
        then = (
            "After a short wait the most complete of those that have reported becomes leader"
            if strategy == "Proactive"
            else "When all have reported, the most complete one becomes leader"
        )
        why = (
            f"{begin}, because no replica is certain to be complete. The operator waits for these "
            "replicas to report their logs; start brokers that are down: "
            f"{_list(turn, partition, silent)}. {then}."
        )
    else:
        who = _list(turn, partition, waits_for)
        why = (
            f"{begin} yet. The replica with the most complete log becomes the leader as soon as it "
            f"can lead; start its broker if it is down: {who}."
        )
    return Outlook(cause=_cause(turn, partition, waits_for), why=why, waits_for=waits_for)


def _list(
    turn: DecisionContext,
    partition: Partition,
    broker_ids: Iterable[BrokerId],
    else_: str = "LogUntold",
) -> str:
    return ", ".join(
        f"broker {broker_id} ({_WORDS[_state(turn, partition, broker_id) or else_]})"
        for broker_id in broker_ids
    )


def _cause(
    turn: DecisionContext,
    partition: Partition,
    broker_ids: tuple[BrokerId, ...],
    else_: str = "LogUntold",
) -> str:
    """Return the reason why the first absent broker of these is absent, or `else_` if all are
    present and merely behind."""
    states = [_state(turn, partition, broker_id) for broker_id in broker_ids]
    return next((state for state in states if state is not None), else_)


def _state(turn: DecisionContext, partition: Partition, broker_id: BrokerId) -> str | None:
    """Return the reason why a broker cannot lead the partition now, or None if it can."""
    broker = turn.image.brokers.get(broker_id)
    if broker is None:
        return "BrokerUnregistered"
    if broker.fenced:
        return "VolumeEmptied" if broker_id in turn.soft.emptied else "BrokerFenced"
    if not turn.acceptable(broker_id):
        return "BrokerStopping"
    return None if turn.may_lead(broker_id, partition) else "StorageFailed"
