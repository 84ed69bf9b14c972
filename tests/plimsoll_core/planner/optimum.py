"""The fewest copies that lead to even counts, by a textbook minimum-cost flow: slow, and sure."""

from collections import deque
from collections.abc import Collection, Sequence


class _Network:
    def __init__(self, nodes: int) -> None:
        self.adjacent: list[list[int]] = [[] for _ in range(nodes)]
        self.edges: list[list[int]] = []  # head, capacity, cost; the reverse is at index ^ 1

    def add(self, tail: int, head: int, capacity: int, cost: int) -> None:
        self.adjacent[tail].append(len(self.edges))
        self.edges.append([head, capacity, cost])
        self.adjacent[head].append(len(self.edges))
        self.edges.append([tail, 0, -cost])

    def cheapest_path(self, source: int, sink: int) -> tuple[int, list[int]] | None:
        """(cost, edges) by Bellman and Ford with a queue."""
        cost = {source: 0}
        came: dict[int, int] = {}
        queue = deque([source])
        while queue:
            at = queue.popleft()
            for number in self.adjacent[at]:
                head, capacity, price = self.edges[number]
                if capacity and (head not in cost or cost[at] + price < cost[head]):
                    cost[head] = cost[at] + price
                    came[head] = number
                    queue.append(head)
        if sink not in cost:
            return None
        path, at = [], sink
        while at != source:
            path.append(came[at])
            at = self.edges[came[at] ^ 1][0]
        return cost[sink], path


def optimum(
    rows: Sequence[tuple[int, ...]], members: Sequence[int], pinned: Collection[int] = ()
) -> tuple[int, int]:
    """(squares, copies): the least sum of squared counts, and with it the fewest copies.

    Over all placements on these brokers that keep each partition's factor; the partitions at
    `pinned` stay where they are, also on other brokers.  Counts with the least sum of squares are
    even if any are: then every member has ⌊R/n⌋ or ⌈R/n⌉.
    """
    choices = [
        {broker: int(broker not in row) for broker in members if p not in pinned or broker in row}
        for p, row in enumerate(rows)
    ]
    factors = [
        len(choice) if p in pinned else len(row)
        for p, (row, choice) in enumerate(zip(rows, choices, strict=True))
    ]
    nodes = {broker: len(rows) + n for n, broker in enumerate(sorted(members))}
    source, sink = len(rows) + len(nodes), len(rows) + len(nodes) + 1
    network, replicas = _Network(sink + 1), sum(factors)
    worth = replicas + 1  # one square less is worth any number of copies
    for p, choice in enumerate(choices):
        network.add(source, p, factors[p], 0)
        for broker, copies in choice.items():
            network.add(p, nodes[broker], 1, copies)
    for broker, node in nodes.items():
        for count in range(sum(broker in choice for choice in choices)):
            network.add(node, sink, 1, worth * (2 * count + 1))  # (count + 1)² - count²
    cost = 0
    for _ in range(replicas):
        found = network.cheapest_path(source, sink)
        assert found is not None, "more replicas than members"
        cost += found[0]
        for number in found[1]:
            network.edges[number][1] -= 1
            network.edges[number ^ 1][1] += 1
    squares, copies = divmod(cost, worth)
    return squares, copies
