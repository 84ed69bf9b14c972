"""Balances preferred leaders over brokers by the order of replica lists; no data moves.

Called after replicas have their places, and alone for the goal PreferredLeaders. It is a bipartite
flow from partitions to their replicas, as shifts between brokers along augmenting chains.
Capacities are ⌊P/n⌋ and ⌈P/n⌉ where these can be met, and as even as possible elsewhere."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice

from plimsoll_core.ids import BrokerId
from plimsoll_core.planner.augment import level
from plimsoll_core.planner.placement import Row

LOOK_AT_MOST = 16
"""The most equally cheap partitions for which the leaders per topic and broker are compared."""


@dataclass(slots=True, kw_only=True)
class Seats:
    """The starting state of a `Leadership`. Each list but `receivers` has an entry for each
    partition.

    `rows`: the replicas in the plan so far, which the `Leadership` reorders in place. `first`: the
    preferred leader before the plan. `topics`: the number of the topic. `free`: True if the order
    of replicas may change. `receivers`: the usable brokers, which may get leaderships.
    """

    rows: list[list[BrokerId]]
    first: Sequence[BrokerId]
    topics: Sequence[int]
    free: Sequence[bool]
    receivers: Sequence[BrokerId]


class Leadership:
    """The preferred leaders of a plan in the making, as `augment.Shifts`: a unit is a partition,
    and a shift makes another of its replicas the first. A preferred leader on an unusable broker
    stays: it leads again when the broker returns."""

    def __init__(self, seats: Seats) -> None:
        self.receivers = seats.receivers
        self.count = dict.fromkeys(seats.receivers, 0)
        self._seats = seats
        self._usable = frozenset(seats.receivers)
        self._order = [tuple(row) for row in seats.rows]
        self._crowd: dict[tuple[int, BrokerId], int] = {}
        # (source, target) → partitions that can go that way, by what it costs.
        self._ways: dict[int, dict[tuple[BrokerId, BrokerId], dict[int, None]]] = {
            -1: {},
            0: {},
            1: {},
        }
        for p, row in enumerate(seats.rows):
            self._sit(p, row[0])

    def cheapest(self, source: BrokerId, target: BrokerId) -> tuple[int, int] | None:
        for cost, ways in self._ways.items():
            found = min(
                islice(ways.get((source, target), ()), LOOK_AT_MOST),
                key=lambda p: (self._crowding(p, source, target), p),
                default=None,
            )
            if found is not None:
                return cost, found
        return None

    def _crowding(self, p: int, source: BrokerId, target: BrokerId) -> int:
        topic = self._seats.topics[p]
        return self._crowd.get((topic, target), 0) - self._crowd.get((topic, source), 0)

    def shift(self, unit: int, source: BrokerId, target: BrokerId) -> None:
        self._rise(unit, source)
        others = [broker for broker in self._order[unit] if broker != target]
        self._seats.rows[unit][:] = [target, *others]
        self._sit(unit, target)

    def succeed(self, p: int, home: Row) -> None:
        """Choose a new preferred leader for partition `p` if the one before the plan is no longer a
        replica: the replica with the fewest leaderships among those on usable brokers that had a
        copy before the plan (`home`). If there is none, leave the order as it is."""
        row = self._seats.rows[p]
        if self._seats.first[p] in row:
            return
        heirs = [broker for broker in row if broker in home and broker in self._usable]
        if not heirs:
            return
        burden = {broker: self.count[broker] - (broker == row[0]) for broker in heirs}
        heir = min(heirs, key=lambda broker: burden[broker])
        if heir != row[0]:
            self.shift(p, row[0], heir)

    def even_out(self) -> None:
        level(self)

    def _sit(self, p: int, leader: BrokerId) -> None:
        if leader not in self._usable:
            return
        self.count[leader] += 1
        spot = (self._seats.topics[p], leader)
        self._crowd[spot] = self._crowd.get(spot, 0) + 1
        for target, ways in self._targets(p, leader):
            ways.setdefault((leader, target), {})[p] = None

    def _rise(self, p: int, leader: BrokerId) -> None:
        if leader not in self._usable:
            return
        self.count[leader] -= 1
        self._crowd[self._seats.topics[p], leader] -= 1
        for target, ways in self._targets(p, leader):
            del ways[leader, target][p]

    def _targets(
        self, p: int, leader: BrokerId
    ) -> list[tuple[BrokerId, dict[tuple[BrokerId, BrokerId], dict[int, None]]]]:
        if not self._seats.free[p]:
            return []
        first = self._seats.first[p]
        return [
            (broker, self._ways[1 if first == leader else -1 if broker == first else 0])
            for broker in self._seats.rows[p]
            if broker != leader and broker in self._usable
        ]
