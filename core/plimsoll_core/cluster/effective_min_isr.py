"""The effective min ISR of a partition: the protocol's m(p).

Read through `Partition.effective_min_isr` by the controller, the leaders and the simulator.
Source: docs/protocol.md §1.
"""

from __future__ import annotations

from collections.abc import Sequence

from plimsoll_core.ids import BrokerId


def effective_min_isr(
    min_isr: int, replicas: Sequence[BrokerId], adding: Sequence[BrokerId]
) -> int:
    """Return the min ISR that applies to a partition now: `min_isr`, but at most the number of
    replicas that are not being added, and at least 1."""
    return max(1, min(min_isr, len(set(replicas) - set(adding))))
