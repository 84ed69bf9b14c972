"""Progress of a roll, and its condition Reconciling. Pure.

The restart reconciler counts; `logcluster_status` shows it.
"""

from __future__ import annotations

from dataclasses import dataclass

from plimsoll_operator.api.conditions import condition
from plimsoll_operator.api.meta import Condition


@dataclass(frozen=True, slots=True, kw_only=True)
class Rolling:
    """A roll in progress: the number of brokers back with the wanted revision, and the brokers that
    are away for it, each with the cause if its pod does not start."""

    revision: str
    current: int
    total: int
    away: tuple[tuple[int, str], ...]


def rolls_condition(rolling: Rolling) -> Condition:
    text = f"{rolling.current} of {rolling.total} brokers run revision {rolling.revision}."
    for broker, trouble in rolling.away:
        text += f" Broker {broker} is being restarted{f' ({trouble})' if trouble else ''}."
    return condition("Reconciling", True, "RollingBrokers", text)
