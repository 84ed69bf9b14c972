"""A roll under way, and an edit that settles, as the condition Reconciling says them: pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from plimsoll_core.ids import BrokerId
from plimsoll_core.phrasing import brokers_text
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


def troubles_text(troubles: Mapping[BrokerId, str]) -> str:
    """What keeps the pods of brokers from coming up; empty when nothing does."""
    return " ".join(f"Broker {b}: {why.rstrip('.')}." for b, why in sorted(troubles.items()))


def settling_condition(wanted: tuple[int, ...]) -> Condition:
    """Edits often come in several; a wish stands for some seconds before it is acted on."""
    text = (
        f"The spec asks for {brokers_text(wanted)}; the members change once it has not been edited"
        " for some seconds."
    )
    return condition("Reconciling", True, "Settling", text)
