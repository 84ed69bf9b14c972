"""How many replicas each broker is to have, and how many must move for that at least.

Called by `fewest_moves`, which moves them, and by `full_rebalance`.  It moves nothing, and knows no
racks.  Source: §2.5 of the protocol ("add brokers").
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from plimsoll_core.ids import BrokerId
from plimsoll_core.planner.move_costs import Layout


@dataclass(frozen=True, slots=True, kw_only=True)
class Targets:
    """`sure`: what each receiver gets for sure; `extra` of those `sharing` get one more each.

    Those sharing get ⌊R/n⌋; others keep more than that, because it cannot be moved.
    """

    sure: Mapping[BrokerId, int]
    sharing: frozenset[BrokerId]
    extra: int

    def slots(self, layout: Layout) -> list[BrokerId]:
        """The brokers of the ⌈⌉ slots: the currently fullest."""
        fullest = sorted(self.sharing, key=lambda broker: (-layout.count[broker], broker))
        return fullest[: self.extra]


def targets_of(layout: Layout) -> Targets:
    """t(b) ∈ {⌊R/n⌋, ⌈R/n⌉}.

    A broker on which more than that cannot be moved keeps it, and the others share the rest.
    """
    pinned = {broker: layout.count[broker] - layout.movable(broker) for broker in layout.receivers}
    sure: dict[BrokerId, int] = {}
    rest, sharing = sum(layout.count.values()), list(layout.receivers)
    while sharing:
        low, extra = divmod(rest, len(sharing))
        full = [broker for broker in sharing if pinned[broker] > low]
        if not full:
            sure.update(dict.fromkeys(sharing, low))
            return Targets(sure=sure, sharing=frozenset(sharing), extra=extra)
        sure.update({broker: pinned[broker] for broker in full})
        rest -= sum(pinned[broker] for broker in full)
        sharing = [broker for broker in sharing if broker not in sure]
    return Targets(sure=sure, sharing=frozenset(), extra=0)


def lower_bound(layout: Layout, targets: Targets) -> int:
    """Minimum moves = Σ max(0, c(b) − t(b)); no racks asked."""
    slots = targets.slots(layout)
    return sum(
        max(0, count - targets.sure.get(broker, 0) - (broker in slots))
        for broker, count in layout.count.items()
    )
