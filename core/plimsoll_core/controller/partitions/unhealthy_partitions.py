"""Explains an unhealthy partition: its cause, the brokers that it waits for, and the cost of giving
up.

Called for a cluster's status; no decision depends on it. `unclean_recovery` decides, or a user who
reads this and names a leader (`requested_elections.name_leaders`)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from plimsoll_core.cluster.model import Partition
from plimsoll_core.controller.kernel.decision import DecisionContext
from plimsoll_core.controller.partitions.unclean_recovery import (
    most_complete,
    strategy_of,
    suspects,
    told,
)
from plimsoll_core.ids import BrokerId


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownLoss:
    """The loss that electing `leader` now is known to cause: the number of records of the longest
    reported log that it lacks."""

    leader: BrokerId
    records: int


def estimated_loss(turn: DecisionContext, partition: Partition) -> KnownLoss | None:
    """Return the loss if the most complete available replica were elected now. Return None if no
    replica has reported its log.

    Reports for this leader epoch count even if their broker has registered anew since.
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


_WORDS = {
    "BrokerUnregistered": "not registered",
    "VolumeEmptied": "its volume came back empty",
    "BrokerFenced": "fenced",
    "BrokerStopping": "stopping",
    "StorageFailed": "its disk failed",
    "LogUntold": "has not reported its log",
    "CatchingUp": "catching up",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Outlook:
    """The explanation of an unhealthy partition, for status. `cause` is a reason in CamelCase,
    `why` a sentence. `waits_for` are the brokers that may help by returning. `loss` is what giving
    up would cost, None if not known."""

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
        why=f"Out of sync: {_list(turn, partition, missing, 'CatchingUp')}.",
        waits_for=missing,
    )


def _waits_for_any(
    turn: DecisionContext, partition: Partition, trusted: tuple[BrokerId, ...]
) -> Outlook:
    who = _list(turn, partition, trusted, "CatchingUp")
    why = f"The first complete replica that returns is elected: {who}."
    if strategy_of(turn.image, partition, turn.settings) == "Proactive":
        why += " After a short wait another active replica leads instead."
    return Outlook(cause=_cause(turn, partition, trusted, "CatchingUp"), why=why, waits_for=trusted)


def _recovers(turn: DecisionContext, partition: Partition) -> Outlook:
    """Explain a leaderless partition of which no replica is sure to hold all committed records."""
    strategy = strategy_of(turn.image, partition, turn.settings)
    asked = partition.replicas if strategy == "Proactive" else suspects(partition)
    logs = told(turn.image, turn.soft, partition, asked)
    silent = tuple(member for member in asked if member not in logs)
    if strategy == "Manual":
        why = (
            "No replica certainly holds all committed records. Name a leader in the Topic's "
            "spec.uncleanRecovery.elect, best the one with the latest log: records that it lacks "
            "are lost."
        )
        if silent:
            why += f" Not reported yet: {_list(turn, partition, silent)}."
        return Outlook(cause="LeaderNotNamed", why=why, waits_for=silent)
    best = most_complete(logs)
    waits_for = silent or (() if best is None else (best,))
    if silent:
        rest = "the first answers decide" if strategy == "Proactive" else "the most complete leads"
        why = (
            "No replica is certainly complete. These replicas must report their logs first, then "
            f"{rest}: {_list(turn, partition, silent)}."
        )
    else:
        who = _list(turn, partition, waits_for)
        why = f"The most complete log leads as soon as its broker can: {who}."
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
