"""How far a roll is, and how the condition Reconciling says it: pure.

The restart reconciler counts; `logcluster_status` shows it.
"""

from __future__ import annotations

from dataclasses import dataclass

from plimsoll_operator.api.conditions import condition
from plimsoll_operator.api.meta import Condition


@dataclass(frozen=True, slots=True, kw_only=True)
class Rolling:
    """A roll under way: how many brokers run the revision that the spec asks for and are back with
    it, and who is away for it, with what keeps its pod from coming up."""

    revision: str
    current: int
    total: int
    away: tuple[tuple[int, str], ...]


def rolls_condition(rolling: Rolling) -> Condition:
    text = f"{rolling.current} of {rolling.total} brokers run revision {rolling.revision}."
    for broker, trouble in rolling.away:
        text += f" Broker {broker} is being restarted{f' ({trouble})' if trouble else ''}."
    return condition("Reconciling", True, "RollingBrokers", text)
