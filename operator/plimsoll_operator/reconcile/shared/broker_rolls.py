"""Findings of the restart reconciler's last pass: the rolling restart in progress, and the state of
the brokers' pods.

Only the restart reconciler writes them; the statuses of the LogCluster and of LogBrokers show them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from plimsoll_core.ids import BrokerId
from plimsoll_operator.api.cluster_status import RolloutStatus
from plimsoll_operator.api.conditions import condition
from plimsoll_operator.api.meta import Condition
from plimsoll_operator.reconcile.reconcile_term import Term


@dataclass(frozen=True, slots=True, kw_only=True)
class Rolling:
    """A rolling restart in progress, into `revisions` of the pods' templates, one for each pool
    that rolls. `current` of `total` brokers run the wanted revision. `away` are the brokers being
    restarted: (broker id, why its pod does not start, "" if unknown). `staged`: the stage of the
    roll, None if all pools roll together."""

    revisions: tuple[str, ...]
    current: int
    total: int
    away: tuple[tuple[int, str], ...]
    staged: RolloutStatus | None = None


@dataclass(slots=True)
class BrokerRolls:
    """The rolling restart and the brokers' pods of one cluster, as one term knows them."""

    # The rolling restart in progress, None if there is none.
    rolling: Rolling | None = None
    # Why a broker's pod does not start.
    troubles: dict[BrokerId, str] = field(default_factory=dict)
    # The node of a broker's pod.
    nodes: dict[BrokerId, str] = field(default_factory=dict)


def rolls_of(term: Term) -> BrokerRolls:
    return term.kept(BrokerRolls, BrokerRolls)


def rolls_condition(rolling: Rolling) -> Condition:
    one = len(rolling.revisions) == 1
    wanted = f"revision {rolling.revisions[0]}" if one else "their pool's newest revision"
    text = f"{rolling.current} of {rolling.total} brokers run {wanted} of the pod template."
    for broker, trouble in rolling.away:
        text += f" Broker {broker} is being restarted{f' ({trouble})' if trouble else ''}."
    if rolling.staged is not None and rolling.staged.message:
        text += f" {rolling.staged.message}"
    return condition("Reconciling", True, "RollingBrokers", text)


def troubles_text(troubles: Mapping[BrokerId, str]) -> str:
    """Return a sentence for each broker with a pod that does not start, "" if there is none."""
    return " ".join(f"Broker {b}: {why.rstrip('.')}." for b, why in sorted(troubles.items()))
