"""The fewest copies that lead to even counts, by a textbook minimum-cost flow: slow, and sure."""

from collections import deque
from collections.abc import Sequence


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


def fewest_copies(rows: Sequence[tuple[int, ...]], members: Sequence[int]) -> int:
    """Over all placements on these brokers that are even and keep each partition's factor.

    Every member gets ⌊R/n⌋ for sure (that is worth any number of copies), and one more at most.
    """
    replicas = sum(len(row) for row in rows)
    low, extra = divmod(replicas, len(members))
    nodes = {broker: len(rows) + n for n, broker in enumerate(sorted(members))}
    source, sink, extras = (len(rows) + len(nodes) + n for n in range(3))
    network = _Network(extras + 1)
    for p, row in enumerate(rows):
        network.add(source, p, len(row), 0)
        for broker, node in nodes.items():
            network.add(p, node, 1, 0 if broker in row else 1)
    worth = replicas + 1
    for node in nodes.values():
        network.add(node, sink, low, -worth)
        network.add(node, extras, 1, 0)
    network.add(extras, sink, extra, 0)
    cost = 0
    for _ in range(replicas):
        found = network.cheapest_path(source, sink)
        assert found is not None, "an even outcome always exists"
        cost += found[0]
        for number in found[1]:
            network.edges[number][1] -= 1
            network.edges[number ^ 1][1] += 1
    return cost + worth * low * len(members)
