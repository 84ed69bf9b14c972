"""Forecasts the partitions that would fall below min ISR if a broker died now.

Called for a plan that awaits approval and while one runs. A forecast is shown to users; no plan is
refused for it.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from plimsoll_core.cluster.model import PartitionKey
from plimsoll_core.ids import BrokerId
from plimsoll_core.planner.outcome import Move
from plimsoll_core.planner.request import PlanPartition, effective_min_isr

EXAMPLES_MAX = 3


class WhatIf(msgspec.Struct, frozen=True, kw_only=True):
    """The number of partitions that would fall below min ISR if this broker died now, and a few of
    them."""

    broker: BrokerId
    under_min_isr: int
    examples: tuple[PartitionKey, ...] = ()


def what_if(partitions: Iterable[PlanPartition], brokers: Iterable[BrokerId]) -> tuple[WhatIf, ...]:
    """Return a forecast for each of the brokers: the partitions that would fall below min ISR if it
    died."""
    hit: dict[BrokerId, list[PartitionKey]] = {broker: [] for broker in sorted(set(brokers))}
    for partition in partitions:
        if partition.isr_margin > 0:
            continue
        for member in partition.isr:
            if member in hit:
                hit[member].append(partition.key)
    return tuple(
        WhatIf(
            broker=broker,
            under_min_isr=len(keys),
            examples=tuple(sorted(keys)[:EXAMPLES_MAX]),
        )
        for broker, keys in hit.items()
    )


def lowest_isr_margin(moves: Iterable[Move], partitions: Iterable[PlanPartition]) -> int | None:
    """Return the least value of ISR size minus min ISR over the moved partitions: now, and when all
    target replicas are in sync. In between the ISR only grows. Return None if nothing moves."""
    now = {partition.key: partition for partition in partitions}
    margins = []
    for move in moves:
        partition = now[move.partition]
        size = len(move.after)
        margins.append(min(partition.isr_margin, size - effective_min_isr(partition.min_isr, size)))
    return min(margins, default=None)
