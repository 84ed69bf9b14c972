"""The fewest moves to the number of replicas that each broker is to have, racks kept.

Called for every goal that moves data.  The order is the protocol's ("add brokers", "remove
brokers"): direct moves, then augmenting chains, then balance is relaxed, and racks only when a
vacancy could not be filled otherwise.  Last, where it is asked for, copies that were not needed are
taken back.
"""

from __future__ import annotations

from collections.abc import Sequence

from plimsoll_core.ids import BrokerId
from plimsoll_core.planner.augment import cancel, level, settle
from plimsoll_core.planner.move_costs import Layout
from plimsoll_core.planner.replica_targets import Targets, lower_bound, targets_of


def spread(layout: Layout, *, fewest_copies: bool = False) -> int:
    """Move what may move; returns the lower bound.

    `fewest_copies`: afterwards take back every copy that as even an outcome does without.  That is
    exact without racks, and not done with racks, where one shift can forbid another.  Not for rows
    that were asked for (by the formula, by name): what they differ in is not to be taken back.
    """
    targets = targets_of(layout)
    bound = lower_bound(layout, targets)
    pool = _Pool(layout, targets)
    even = settle(pool, {**targets.sure, pool.id: targets.extra})
    if not even:
        fill(layout)
        level(layout)
    at_bound = even and layout.copies() == bound
    if fewest_copies and layout.racks is None and not at_bound:
        cancel(layout)
    return bound


class _Pool:
    """A layout with one more receiver: the ⌈⌉ slots, of which a broker can have one.

    A broker "gives" to the pool by taking a slot, and the pool to a broker by taking it away; both
    copy nothing.  So a chain may end where a slot is free, or pass one on, whoever is fullest.
    """

    def __init__(self, layout: Layout, targets: Targets) -> None:
        self.id = BrokerId(max(layout.receivers, default=0) + 1)
        self.receivers: Sequence[BrokerId] = (*layout.receivers, self.id)
        slots = targets.slots(layout)
        self._layout, self._sharing = layout, targets.sharing
        self._used = {b for b in slots if layout.count[b] > targets.sure[b]}
        self.count = {b: count - (b in self._used) for b, count in layout.count.items()}
        self.count[self.id] = len(self._used)

    def cheapest(self, source: BrokerId, target: BrokerId) -> tuple[int, int] | None:
        if target == self.id:
            return (0, 0) if source in self._sharing and source not in self._used else None
        if source == self.id:
            return (0, 0) if target in self._used else None
        return self._layout.cheapest(source, target)

    def shift(self, unit: int, source: BrokerId, target: BrokerId) -> None:
        if target == self.id:
            self._used.add(source)
        elif source == self.id:
            self._used.remove(target)
        else:
            self._layout.shift(unit, source, target)
        self.count[source] -= 1
        self.count[target] += 1


def fill(layout: Layout) -> None:
    """Give what is still vacant to the emptiest broker that keeps racks, else to the emptiest."""
    for p, slot in layout.vacant():
        fitting = [
            (not layout.allows(p, slot, broker), layout.count[broker], broker)
            for broker in layout.receivers
            if broker not in layout.rows[p] and broker not in layout.barred.get(p, ())
        ]
        layout.shift(p, slot, min(fitting)[2])
