"""The number of replicas that each broker is to have, and the fewest moves to it, racks kept.

Called for every goal that moves data.  `targets_of` computes the numbers, `spread` makes the moves
in the order of docs/protocol.md §2.5 ("add brokers", "remove brokers"): direct moves, then
augmenting chains, then balance is relaxed, and racks only when a vacancy cannot be filled
otherwise.  Last, if asked for, copies that were not needed are taken back.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from plimsoll_core.ids import BrokerId
from plimsoll_core.planner.augment import cancel, level, settle
from plimsoll_core.planner.move_costs import Layout


@dataclass(frozen=True, slots=True, kw_only=True)
class Targets:
    """The number of replicas that each receiver is to have: `sure`, and one more for `extra` of the
    brokers in `sharing`.

    For the brokers in `sharing`, `sure` is ⌊R/n⌋: R replicas over n brokers. The others have more
    than that, which cannot be moved.
    """

    sure: Mapping[BrokerId, int]
    sharing: frozenset[BrokerId]
    extra: int

    def slots(self, layout: Layout) -> list[BrokerId]:
        """Return the brokers that get one replica more: those of `sharing` that have the most
        now."""
        fullest = sorted(self.sharing, key=lambda broker: (-layout.count[broker], broker))
        return fullest[: self.extra]


def targets_of(layout: Layout) -> Targets:
    """Return the number of replicas that each receiver is to have, ⌊R/n⌋ or ⌈R/n⌉. A broker with
    more replicas than that which cannot be moved keeps these, and the others share the rest."""
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
    """Return the least number of moves that reach the targets, if racks are ignored: the sum over
    all brokers of the replicas above their target."""
    slots = targets.slots(layout)
    return sum(
        max(0, count - targets.sure.get(broker, 0) - (broker in slots))
        for broker, count in layout.count.items()
    )


def spread(layout: Layout, *, fewest_copies: bool = False) -> int:
    """Move replicas until the brokers are balanced. Return the lower bound on the number of moves.

    `fewest_copies`: afterwards undo each copy that an equally even outcome does not need. That is
    exact without racks, and not done with racks, where one shift can forbid another. It is not set
    where the copies themselves are wanted, as by the placement formula or a named target.
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
    """A layout with the right to one replica more (a slot, see `Targets.slots`) as one more
    receiver.

    A shift from a broker to the pool gives the broker a slot; a shift from the pool to a broker
    takes its slot away. Both copy nothing. So a chain may end at a free slot, or take it from
    another broker, and it need not be the broker that was fullest at first that keeps a slot.
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
    """Fill the vacancies that are left, each with the broker of the fewest replicas that keeps the
    rack rule, or if none keeps it with the broker of the fewest replicas."""
    for p, slot in layout.vacant():
        fitting = [
            (not layout.allows(p, slot, broker), layout.count[broker], broker)
            for broker in layout.receivers
            if broker not in layout.rows[p] and broker not in layout.barred.get(p, ())
        ]
        layout.shift(p, slot, min(fitting)[2])
