"""Balances counts over brokers by shifting one unit at a time, directly or along a chain.

Called by the planner for replicas (a shift moves one) and for preferred leaderships (a shift
reorders one list). If no unit can go directly from an over-full broker to one that lacks, a
chain over→x→under is searched: the cheapest augmenting path. Later shifts may make earlier ones
needless; only `cancel` takes those back. Source: the protocol's rule for adding brokers; for
`level`, Harvey, Ladner, Lovász and Tamir, "Semi-matchings for bipartite graphs and load
balancing": if no path leads from a broker to one with two less, no outcome is more even; for
`cancel`, Klein, "A primal method for minimal cost flows": a flow is cheapest if its residual
network has no cycle of negative cost."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from plimsoll_core.ids import BrokerId


class Shifts(Protocol):
    """The interface to what is balanced: units (partitions) that brokers hold, and the count of
    each broker. A shift takes a unit from one broker and gives it to another.

    `receivers`: the brokers that may be given units. `count`: the units of each broker, including
    brokers that may only give.
    """

    receivers: Sequence[BrokerId]
    count: dict[BrokerId, int]

    def cheapest(self, source: BrokerId, target: BrokerId) -> tuple[int, int] | None:
        """Return (cost, unit) of the cheapest shift from `source` to `target`, or None if no unit
        can be shifted."""
        ...

    def shift(self, unit: int, source: BrokerId, target: BrokerId) -> None: ...


Find = Callable[[Shifts, BrokerId, Sequence[BrokerId]], set[BrokerId]]
"""The type of a search: it shifts one unit from `source` to the first reachable broker of `goals`,
directly or through other brokers, and returns an empty set. If no goal is reachable, it returns the
brokers from which none is."""


def settle(net: Shifts, targets: Mapping[BrokerId, int]) -> bool:
    """Shift units from brokers with more than their target (0 if they have none) to brokers with
    less. Return True if all targets are met, False if no chain of shifts leads further."""
    for find in (direct, chain):
        stuck: set[BrokerId] = set()
        while True:
            over = [
                (targets.get(broker, 0) - count, broker)
                for broker, count in net.count.items()
                if broker not in stuck and count > targets.get(broker, 0)
            ]
            under = sorted(
                (net.count[broker] - targets[broker], broker)
                for broker in net.receivers
                if net.count[broker] < targets[broker]
            )
            if not over or not under:
                break
            # A vacancy has no target and only gives: that is what the plan is for, so first.
            source = min(over, key=lambda each: (each[1] in targets, *each))[1]
            stuck |= find(net, source, [broker for _, broker in under])
    return all(count == targets.get(broker, 0) for broker, count in net.count.items())


def level(net: Shifts) -> None:
    """Shift units from fuller to emptier receivers, until no chain of shifts leads from a receiver
    to one that has at least two units less."""
    for find in (direct, chain):
        stuck: set[BrokerId] = set()
        while True:
            free = [broker for broker in net.receivers if broker not in stuck]
            if not free:
                break
            source = min(free, key=lambda broker: (-net.count[broker], broker))
            most = net.count[source] - 2
            goals = sorted(
                (net.count[broker], broker) for broker in net.receivers if net.count[broker] <= most
            )
            if not goals:
                break
            stuck |= find(net, source, [broker for _, broker in goals])


def cancel(net: Shifts) -> None:
    """Reduce the cost at equal counts: shift along cycles of negative total cost until there is
    none. If shifts do not obstruct each other, no other outcome with equally even counts then costs
    less."""
    while cycle := _negative_cycle(net):
        for source, target in cycle:
            # Chosen anew, as in a chain.  In a cycle no two shifts have a source or a target in
            # common, so none takes away what another needs, and each still costs as little.
            found = net.cheapest(source, target)
            assert found is not None, "a shift took away what another of its cycle needs"
            net.shift(found[1], source, target)


def direct(net: Shifts, source: BrokerId, goals: Sequence[BrokerId]) -> set[BrokerId]:
    for goal in goals:
        found = net.cheapest(source, goal)
        if found is not None:
            net.shift(found[1], source, goal)
            return set()
    return {source}


def chain(net: Shifts, source: BrokerId, goals: Sequence[BrokerId]) -> set[BrokerId]:
    """Shift one unit along the cheapest chain of shifts from `source` to a broker in `goals`, found
    by Dijkstra's algorithm. Return an empty set after a shift, otherwise the brokers from which no
    goal is reachable."""
    wanted = set(goals)
    best = {source: (0, 0)}
    came: dict[BrokerId, BrokerId] = {}
    done: set[BrokerId] = set()
    heap = [(0, 0, source)]
    while heap:
        cost, hops, at = heapq.heappop(heap)
        if at in done:
            continue
        if at in wanted:
            return set() if _follow(net, came, at) else {source}
        done.add(at)
        for target in net.receivers:
            found = None if target in done else net.cheapest(at, target)
            if found is None:
                continue
            further = (cost + max(0, found[0]), hops + 1)
            if target not in best or further < best[target]:
                best[target] = further
                came[target] = at
                heapq.heappush(heap, (*further, target))
    return done


def _follow(net: Shifts, came: Mapping[BrokerId, BrokerId], goal: BrokerId) -> bool:
    """Carry out the chain of shifts that `came` describes (each broker's predecessor), from `goal`
    backwards. Each unit is chosen again, since an earlier shift may have taken it. Return False if
    a shift has no unit left; the shifts before it stay done."""
    target = goal
    while target in came:
        source = came[target]
        found = net.cheapest(source, target)
        if found is None:
            return False
        net.shift(found[1], source, target)
        target = source
    return True


def _negative_cycle(net: Shifts) -> list[tuple[BrokerId, BrokerId]] | None:
    """Return the shifts (source, target) of a cycle of negative total cost, found by the algorithm
    of Bellman and Ford, or None if there is none.

    A chain that ends at a broker with one unit less than its first swaps the two counts, and so
    keeps them as even. A way back that shifts nothing and costs nothing makes a cycle of it.
    """
    ways = _ways(net)
    cost = dict.fromkeys(net.receivers, 0)
    came: dict[BrokerId, BrokerId] = {}
    at: BrokerId | None = None
    for _ in net.receivers:
        at = None
        for (source, target), (price, _) in ways.items():
            if cost[source] + price < cost[target]:
                cost[target] = cost[source] + price
                came[target] = source
                at = target
        if at is None:
            break
    if at is None:
        return None
    # Costs fell in as many rounds as there are brokers, so a cycle lies that many steps back.
    for _ in net.receivers:
        at = came[at]
    cycle = [(came[at], at)]
    while cycle[-1][0] != at:
        cycle.append((came[cycle[-1][0]], cycle[-1][0]))
    return [way for way in cycle if ways[way][1]]


def _ways(net: Shifts) -> dict[tuple[BrokerId, BrokerId], tuple[int, bool]]:
    """Return, for each pair (source, target), the least cost to get from one to the other, and True
    if that is a shift, False if it is the way back, which shifts nothing. Pairs without a way are
    left out."""
    ways: dict[tuple[BrokerId, BrokerId], tuple[int, bool]] = {}
    for source in net.receivers:
        for target in net.receivers:
            if source == target:
                continue
            found = net.cheapest(source, target)
            prices = [] if found is None else [(found[0], True)]
            if net.count[target] == net.count[source] + 1:
                prices.append((0, False))
            if prices:
                ways[source, target] = min(prices)
    return ways
