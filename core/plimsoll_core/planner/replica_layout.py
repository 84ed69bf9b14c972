"""The number of replicas that each broker is to have, and the fewest moves to it, racks kept.

Called for every goal that moves data. `targets_of` computes the numbers, `spread` makes the moves
in the order of docs/protocol.md §2.5 ("add brokers", "remove brokers"): direct moves, then
augmenting chains, then balance is relaxed, and racks only when a vacancy cannot be filled
otherwise. Last, if asked for, copies that were not needed are taken back.

`Layout` decides which moves a plan in the making allows, and which of them costs least. A replica
that has to be moved or added stands in its partition's row as a vacancy: a broker id below zero. It
counts as a broker that holds the replica and must give it away. So draining, moving off and growing
are the same task: to fill vacancies. `Layout` never relaxes a rack rule; `fill` does when there is
no other way.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field

from plimsoll_core.ids import BrokerId
from plimsoll_core.planner.augment import cancel, level, settle
from plimsoll_core.planner.placement import Row

ARRIVED = BrokerId(-1)
"""The key of a broker's queue of partitions that the plan newly gives to it. Its other queues have
the partition's leader as key."""
SAVING, EXCHANGING = BrokerId(-2), BrokerId(-3)
"""The queues of partitions of which the target holds a copy already, though it is not in the row:
the source holds none yet, so that one copy less is made, or holds one as well."""
LOOK_AT_MOST = 32
"""The most equally cheap partitions for which the spread of their topics is compared."""


def vacancy(slot: int) -> BrokerId:
    """Return the id, below zero, that stands in a row for the vacant replica at position `slot`."""
    return BrokerId(-1 - slot)


@dataclass(slots=True, kw_only=True)
class Opening:
    """The starting state of a `Layout`. Each list but `receivers` has an entry for each partition.

    `rows`: the replicas in the plan so far, which the `Layout` changes in place; `home`: those of
    today. `leaders`: the brokers from which new replicas are copied. `topics`: the number of the
    topic. `free`: True if replicas that are not vacant may move too. `receivers`: the brokers that
    may get replicas. `need`: the number of distinct racks to keep, empty if racks are ignored.
    `barred`: the brokers to which a partition may not go. `racks`: None if racks are ignored.
    """

    rows: list[list[BrokerId]]
    home: Sequence[Row]
    leaders: Sequence[BrokerId]
    topics: Sequence[int]
    free: Sequence[bool]
    receivers: Sequence[BrokerId]
    racks: Mapping[BrokerId, str] | None = None
    need: Sequence[int] = ()
    barred: Mapping[int, AbstractSet[BrokerId]] = field(default_factory=dict)


class Layout:
    """The replicas of a plan in the making, as `augment.Shifts`: a unit is a partition, and a shift
    moves its replica from one broker to another.

    Replicas that may leave a broker wait in queues. For each pair (source, target) it is remembered
    how far each queue was searched in vain. When a row changes, its partition is appended to its
    queues again, so that nothing is examined twice without a reason.
    """

    def __init__(self, opening: Opening) -> None:
        self.rows = opening.rows
        self.receivers = opening.receivers
        self.racks = opening.racks
        self.barred = opening.barred
        self.count: dict[BrokerId, int] = dict.fromkeys(opening.receivers, 0)
        self._opening = opening
        self._held: dict[BrokerId, dict[int, None]] = {}
        self._queues: dict[BrokerId, dict[BrokerId, list[int]]] = {}
        # (source, target, SAVING or EXCHANGING) → partitions.
        self._returns: dict[tuple[BrokerId, BrokerId, BrokerId], list[int]] = {}
        self._fronts: dict[tuple[BrokerId, BrokerId, BrokerId], int] = {}
        self._copies: dict[tuple[BrokerId, BrokerId], int] = {}
        self._crowd: dict[tuple[int, BrokerId], int] = {}
        for p, row in enumerate(self.rows):
            for broker in row:
                self._put(p, broker)
            self._queue(p)

    def movable(self, broker: BrokerId) -> int:
        return len(self._held.get(broker, ()))

    def vacant(self) -> list[tuple[int, BrokerId]]:
        """Return the vacancies that no broker has filled yet, as pairs of partition and vacancy
        id."""
        return sorted(
            (p, broker) for broker, held in self._held.items() if broker < 0 for p in held
        )

    def copies(self) -> int:
        """Return the number of replicas that have to be copied: those on brokers that had none of
        the partition, and vacancies."""
        return sum(self._copies.values())

    # --- what may move -------------------------------------------------------------------------

    def allows(self, p: int, source: BrokerId, target: BrokerId) -> bool:
        row = self.rows[p]
        if target in row or target in self.barred.get(p, ()):
            return False
        return self.racks is None or self._keeps_racks(p, source, target)

    def _keeps_racks(self, p: int, source: BrokerId, target: BrokerId) -> bool:
        """Return True if the partition can still have its number of racks after the shift. Each
        vacancy can add a rack; brokers without a rack add none."""
        racks, need = self.racks, self._opening.need[p]
        assert racks is not None
        rack = racks[target]
        if need <= 1 or racks.get(source) == rack:
            return True
        seen, vacancies = {rack}, 0
        for broker in self.rows[p]:
            if broker < 0:
                vacancies += broker != source
            elif broker != source and broker in racks:
                seen.add(racks[broker])
        return len(seen) + vacancies >= need

    def cheapest(self, source: BrokerId, target: BrokerId) -> tuple[int, int] | None:
        """Return (cost, partition) of the cheapest shift from `source` to `target`, or None. The
        cost is 1 if it makes one copy more, 0 if the replica is copied anyway, and -1 if it returns
        to a broker that has it. Among equals, replicas that do not lead go first, then those with
        the fewest copies from their leader to `target`, then those of the topic with more replicas
        on `source` and fewer on `target`."""
        for cost, group in ((-1, SAVING), (0, EXCHANGING)):
            returns = self._returns.get((source, target, group), [])
            if back := self._fitting(returns, source, target, group):
                return cost, min(back)
        queues = self._queues.get(source, {})
        order = sorted(
            (leader != ARRIVED, leader == source, self._copies.get((leader, target), 0), leader)
            for leader in queues
        )
        for *_, leader in order:
            if fitting := self._fitting(queues[leader], source, target, leader):
                best = min(fitting, key=lambda p: (self._crowding(p, source, target), p))
                return int(leader != ARRIVED), best
        return None

    def _fitting(
        self, queue: list[int], source: BrokerId, target: BrokerId, group: BrokerId
    ) -> list[int]:
        """Return the next partitions of the queue that may be shifted, at most `LOOK_AT_MOST`, and
        skip those before them in later searches for this pair of brokers. `group` is the key of the
        queue."""
        held, way = self._held.get(source, {}), (source, target, group)
        front, end = self._fronts.get(way, 0), len(queue)
        while front < end:
            p = queue[front]
            if p in held and self.allows(p, source, target):
                break
            front += 1
        self._fronts[way] = front
        few = queue[front : front + LOOK_AT_MOST]
        return [p for p in few if p in held and self.allows(p, source, target)]

    def _crowding(self, p: int, source: BrokerId, target: BrokerId) -> int:
        topic = self._opening.topics[p]
        return self._crowd.get((topic, target), 0) - self._crowd.get((topic, source), 0)

    # --- moving --------------------------------------------------------------------------------

    def shift(self, unit: int, source: BrokerId, target: BrokerId) -> None:
        row, topic = self.rows[unit], self._opening.topics[unit]
        self._crowd[topic, source] -= 1
        self.count[source] -= 1
        del self._held[source][unit]
        if source not in self._opening.home[unit]:
            self._copies[self._opening.leaders[unit], source] -= 1
        row[row.index(source)] = target
        self._put(unit, target)
        self._queue(unit)

    def _put(self, p: int, broker: BrokerId) -> None:
        opening = self._opening
        topic, leader, at_home = opening.topics[p], opening.leaders[p], broker in opening.home[p]
        self._crowd[topic, broker] = self._crowd.get((topic, broker), 0) + 1
        if broker >= 0 and broker not in self.count:
            return  # not usable: what it holds is neither counted nor moved
        self.count[broker] = self.count.get(broker, 0) + 1
        if opening.free[p] or not at_home:
            self._held.setdefault(broker, {})[p] = None
        if not at_home:
            self._copies[leader, broker] = self._copies.get((leader, broker), 0) + 1

    def _queue(self, p: int) -> None:
        """Append a partition with a new or changed row to its queues, since a shift that was not
        possible may be now."""
        row, home = self.rows[p], self._opening.home[p]
        for broker in row:
            if p in self._held.get(broker, ()):
                known = broker < 0 or broker in home
                group = self._opening.leaders[p] if known else ARRIVED
                self._queues.setdefault(broker, {}).setdefault(group, []).append(p)
                returning = EXCHANGING if broker in home else SAVING
                for target in home:
                    if target not in row and target in self.count:
                        self._returns.setdefault((broker, target, returning), []).append(p)


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
    """Fill the vacancies and move replicas until the brokers are balanced. Return the lower bound
    on the number of moves.

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
    """A layout in which the right to one replica more (a slot, see `Targets.slots`) counts as one
    more receiver.

    A shift from a broker to the pool gives the broker a slot; a shift from the pool to a broker
    takes its slot away. Both copy nothing. So a chain may end at a free slot, or take a slot from
    another broker, and the broker that keeps a slot need not be the one that was fullest at first.
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
