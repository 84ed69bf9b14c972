"""What the restart reconciler last found: the roll in progress, and the brokers' pods.

It alone writes this; the statuses of the LogCluster and of LogBrokers show it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from plimsoll_core.ids import BrokerId
from plimsoll_operator.api.conditions import condition
from plimsoll_operator.api.meta import Condition
from plimsoll_operator.reconcile.reconcile_term import Term


@dataclass(frozen=True, slots=True, kw_only=True)
class Rolling:
    """A roll in progress: the number of brokers back with the wanted revision, and the brokers that
    are away for it, each with the cause if its pod does not start."""

    revision: str
    current: int
    total: int
    away: tuple[tuple[int, str], ...]


@dataclass(slots=True)
class BrokerRolls:
    """State of one term."""

    # The roll in progress.
    rolling: Rolling | None = None
    # Why a broker's pod does not start.
    troubles: dict[BrokerId, str] = field(default_factory=dict)
    # The node of a broker's pod.
    nodes: dict[BrokerId, str] = field(default_factory=dict)


def rolls_of(term: Term) -> BrokerRolls:
    return term.kept(BrokerRolls, BrokerRolls)


def rolls_condition(rolling: Rolling) -> Condition:
    text = f"{rolling.current} of {rolling.total} brokers run revision {rolling.revision}."
    for broker, trouble in rolling.away:
        text += f" Broker {broker} is being restarted{f' ({trouble})' if trouble else ''}."
    return condition("Reconciling", True, "RollingBrokers", text)


def troubles_text(troubles: Mapping[BrokerId, str]) -> str:
    """Return why brokers' pods do not start, "" if all do."""
    return " ".join(f"Broker {b}: {why.rstrip('.')}." for b, why in sorted(troubles.items()))
