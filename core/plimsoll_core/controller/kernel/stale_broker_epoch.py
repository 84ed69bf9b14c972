"""Rejects a request of another lifetime than the registered one (STALE_BROKER_EPOCH)."""

from __future__ import annotations

from plimsoll_core.controller.kernel.decision import DecisionContext
from plimsoll_core.errors import Reason, Refusal
from plimsoll_core.ids import BrokerEpoch, BrokerId


def stale_epoch(
    turn: DecisionContext, broker_id: BrokerId, broker_epoch: BrokerEpoch
) -> Refusal | None:
    """Every request of a broker names its lifetime."""
    broker = turn.image.brokers.get(broker_id)
    if broker is not None and broker.broker_epoch == broker_epoch:
        return None
    now = "is not registered" if broker is None else f"has epoch {broker.broker_epoch}"
    return Refusal(
        reason=Reason.StaleBrokerEpoch,
        message=f"Broker {broker_id} {now}, not epoch {broker_epoch}; register again.",
    )
