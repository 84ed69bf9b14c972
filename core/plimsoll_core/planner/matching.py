"""Assigns the newly computed rows to partitions so that most replicas stay where they are.

An assignment of the greatest total overlap, exact: the primal-dual method for small integer
weights.  Weights are at most the replication factor, so there are that many rounds; in each, as
much as possible flows over the edges that are tight (Dinic), then the duals of what is reachable
move by one.  Partitions with equal replica sets, and rows with equal sets, are one node each.
"""

from __future__ import annotations

from collections.abc import Sequence

from plimsoll_core.ids import BrokerId
from plimsoll_core.planner.placement import Row

Replicas = frozenset[BrokerId]


def permute(current: Sequence[Row], rows: Sequence[Row]) -> list[Row]:
    """Return `rows` in the order in which they have most brokers in common with `current`, position
    by position. Both have the same length."""
    holders: dict[Replicas, list[int]] = {}
    for position, row in enumerate(current):
        holders.setdefault(frozenset(row), []).append(position)
    offers: dict[Replicas, list[Row]] = {}
    for row in rows:
        offers.setdefault(frozenset(row), []).append(row)
    lefts, rights = list(holders), list(offers)
    transport = _Transport(
        supply=[len(holders[replicas]) for replicas in lefts],
        demand=[len(offers[replicas]) for replicas in rights],
        gain=_overlaps(lefts, rights),
    )
    transport.solve()
    result: list[Row] = [()] * len(current)
    for left, flows in enumerate(transport.flow):
        given: list[Row] = []
        for right, amount in sorted(flows.items()):
            stack = offers[rights[right]]
            given += stack[:amount]
            del stack[:amount]
        _hand_out(current, holders[lefts[left]], given, result)
    return result


def _hand_out(
    current: Sequence[Row], positions: Sequence[int], rows: Sequence[Row], result: list[Row]
) -> None:
    """Assign rows to the partitions at `positions`, which all have the same replicas: first rows
    equal to the present one, then rows with the same leader, then the rest. Write them to
    `result`."""
    for length in (None, 1, 0):
        waiting: dict[Row, list[int]] = {}
        for position in reversed(positions):
            waiting.setdefault(current[position][:length], []).append(position)
        unused = []
        for row in rows:
            fitting = waiting.get(row[:length])
            if fitting:
                result[fitting.pop()] = row
            else:
                unused.append(row)
        rows = unused
        positions = sorted(position for left in waiting.values() for position in left)


def _overlaps(lefts: Sequence[Replicas], rights: Sequence[Replicas]) -> list[dict[int, int]]:
    """Return for each set in `lefts` the sets in `rights` that have brokers in common with it, by
    their position, with the number of these brokers."""
    holding: dict[BrokerId, list[int]] = {}
    for right, replicas in enumerate(rights):
        for broker in sorted(replicas):
            holding.setdefault(broker, []).append(right)
    shared = []
    for replicas in lefts:
        counts: dict[int, int] = {}
        for broker in sorted(replicas):
            for right in holding.get(broker, ()):
                counts[right] = counts.get(right, 0) + 1
        shared.append(counts)
    return shared


class _Transport:
    """A transport problem: `supply` of each left node, `demand` of each right node, and
    `gain[left][right]` for each unit that goes from one to the other (0 if absent). `solve` uses
    supply and demand up, and sets `flow[left][right]` to a solution with the greatest total
    gain."""

    def __init__(self, *, supply: list[int], demand: list[int], gain: list[dict[int, int]]) -> None:
        self.supply, self.demand = supply, demand
        self.flow: list[dict[int, int]] = [{} for _ in supply]
        self.back: list[dict[int, None]] = [{} for _ in demand]
        self._gain = gain
        self._rounds = max((max(gains.values(), default=0) for gains in gain), default=0)
        self._left_dual = [self._rounds] * len(supply)
        self._right_dual = [0] * len(demand)

    def solve(self) -> None:
        for _ in range(self._rounds):
            tight = self._tight()
            while True:
                left_depth, right_depth, found = self._depths(tight)
                if not found:
                    break
                _Phase(self, tight, left_depth, right_depth).run()
            for left in left_depth:
                self._left_dual[left] -= 1
            for right in right_depth:
                self._right_dual[right] += 1
        self._give_the_rest()

    def push(self, left: int, right: int, amount: int) -> None:
        self.flow[left][right] = self.flow[left].get(right, 0) + amount
        if self.flow[left][right]:
            self.back[right][left] = None
        else:
            del self.flow[left][right], self.back[right][left]

    def _give_the_rest(self) -> None:
        """Assign the remaining supply and demand in any order, since these nodes have no broker in
        common."""
        right = 0
        for left, amount in enumerate(self.supply):
            while amount:
                some = min(amount, self.demand[right])
                if some == 0:
                    right += 1
                    continue
                self.push(left, right, some)
                self.demand[right] -= some
                amount -= some

    def _tight(self) -> list[list[int]]:
        duals = self._right_dual
        return [
            [right for right, gain in gains.items() if dual + duals[right] == gain]
            for dual, gains in zip(self._left_dual, self._gain, strict=True)
        ]

    def _depths(self, tight: list[list[int]]) -> tuple[dict[int, int], dict[int, int], bool]:
        """Return the depths of the left and the right nodes in a breadth-first search over tight
        edges from all nodes with supply, and True if a demand was reached. The search ends at the
        nearest demands."""
        lefts = [left for left, amount in enumerate(self.supply) if amount]
        left_depth, right_depth = dict.fromkeys(lefts, 0), dict[int, int]()
        found, depth = False, 0
        while lefts and not found:
            depth += 1
            rights = []
            for left in lefts:
                for right in tight[left]:
                    if right not in right_depth:
                        right_depth[right] = depth
                        rights.append(right)
                        found = found or self.demand[right] > 0
            lefts = []
            for right in rights:
                for left in self.back[right]:
                    if left not in left_depth:
                        left_depth[left] = depth
                        lefts.append(left)
        return left_depth, right_depth, found


class _Phase:
    """Sends as much as possible along the shortest paths from supply to demand: a depth-first
    search along growing depths, which tries each dead end once (one phase of Dinic's algorithm)."""

    def __init__(
        self,
        transport: _Transport,
        tight: list[list[int]],
        left_depth: dict[int, int],
        right_depth: dict[int, int],
    ) -> None:
        self._transport = transport
        self._left_depth, self._right_depth = left_depth, right_depth
        self._forth = {left: list(reversed(tight[left])) for left in left_depth}
        self._back = {right: list(reversed(transport.back[right])) for right in right_depth}

    def run(self) -> None:
        supply, demand = self._transport.supply, self._transport.demand
        for start in [left for left, amount in enumerate(supply) if amount]:
            while supply[start] and (path := self._path(start)):
                lefts, rights = path
                returns = list(zip(lefts[1:], rights, strict=False))
                amount = min(supply[start], demand[rights[-1]])
                amount = min([amount, *(self._transport.flow[le][r] for le, r in returns)])
                for left, right in zip(lefts, rights, strict=True):
                    self._transport.push(left, right, amount)
                for left, right in returns:
                    self._transport.push(left, right, -amount)
                supply[start] -= amount
                demand[rights[-1]] -= amount

    def _path(self, start: int) -> tuple[list[int], list[int]] | None:
        lefts, rights = [start], list[int]()
        while lefts:
            if len(lefts) > len(rights):
                right = self._next_right(lefts[-1])
                if right is None:
                    lefts.pop()
                    if rights:
                        self._back[rights[-1]].pop()
                    continue
                rights.append(right)
                if self._transport.demand[right]:
                    return lefts, rights
            else:
                left = self._next_left(rights[-1])
                if left is None:
                    rights.pop()
                    self._forth[lefts[-1]].pop()
                else:
                    lefts.append(left)
        return None

    def _next_right(self, left: int) -> int | None:
        ways, depth = self._forth[left], self._left_depth[left] + 1
        while ways and self._right_depth.get(ways[-1]) != depth:
            ways.pop()
        return ways[-1] if ways else None

    def _next_left(self, right: int) -> int | None:
        ways, depth = self._back[right], self._right_depth[right]
        while ways and (
            self._left_depth.get(ways[-1]) != depth or right not in self._transport.flow[ways[-1]]
        ):
            ways.pop()
        return ways[-1] if ways else None
