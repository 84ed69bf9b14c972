"""Lists of brokers in sentences."""

from __future__ import annotations

from collections.abc import Iterable

from plimsoll_core.ids import BrokerId


def listed(brokers: Iterable[BrokerId]) -> str:
    return ", ".join(str(broker) for broker in sorted(brokers))
