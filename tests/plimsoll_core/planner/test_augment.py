"""Shifting along chains: what happens when one shift takes away what the next one needs."""

from collections.abc import Sequence

from plimsoll_core.planner.augment import cancel, level, settle

A, B, C, D = range(4)


class Net:
    """Units that can go only where `ways` says; each shift uses its way up, and `spoils` others.

    Units of replicas spoil each other through racks: a partition whose one replica goes to a rack
    cannot have its other replica there too.
    """

    def __init__(
        self,
        count: Sequence[int],
        ways: dict[tuple[int, int], int],
        spoils: dict[tuple[int, int], tuple[int, int]] | None = None,
    ) -> None:
        self.receivers: Sequence[int] = tuple(range(len(count)))
        self.count = dict(enumerate(count))
        self.ways = dict(ways)
        self.spoils = spoils or {}
        self.shifts: list[tuple[int, int]] = []

    def cheapest(self, source: int, target: int) -> tuple[int, int] | None:
        cost = self.ways.get((source, target))
        return None if cost is None else (cost, 10 * source + target)

    def shift(self, unit: int, source: int, target: int) -> None:
        assert unit == 10 * source + target
        del self.ways[source, target]
        self.ways.pop(self.spoils.get((source, target), (-1, -1)), None)
        self.count[source] -= 1
        self.count[target] += 1
        self.shifts.append((source, target))


def test_chain_is_shifted_from_its_end() -> None:
    """over→x→under: no broker of the chain ever has more than before."""
    net = Net([2, 1, 1, 0], {(A, B): 1, (B, C): 1, (C, D): 1})
    level(net)
    assert net.shifts == [(C, D), (B, C), (A, B)]
    assert list(net.count.values()) == [1, 1, 1, 1]


def test_cheapest_chain_is_taken() -> None:
    net = Net([2, 1, 1, 0], {(A, B): 5, (B, D): 5, (A, C): 1, (C, D): 1})
    level(net)
    assert net.shifts == [(C, D), (A, C)]


def test_broken_chain_ends_without_loss() -> None:
    """ "an earlier shift may have taken it": what was shifted stays, and the source is stuck."""
    ways = {(A, B): 1, (B, C): 1, (C, D): 1}
    net = Net([2, 1, 1, 0], ways, spoils={(C, D): (A, B)})
    level(net)
    assert net.shifts == [(C, D), (B, C)]
    assert list(net.count.values()) == [2, 0, 1, 1]


def test_settle_returns_whether_all_brokers_reached_their_targets() -> None:
    """`settle` says whether all got to their targets: the caller reports what could not be."""
    ways = {(A, B): 1, (B, C): 1, (C, D): 1}
    targets = dict.fromkeys((A, B, C, D), 1)
    assert settle(Net([2, 1, 1, 0], ways), targets)
    assert not settle(Net([2, 1, 1, 0], ways, spoils={(C, D): (A, B)}), targets)
    assert not settle(Net([2, 1, 1, 0], {(A, B): 1}), targets)


def test_negative_cycles_are_shifted_until_none_remains() -> None:
    """A cycle changes no count; one that costs nothing, or more, is left alone."""
    ways = {(A, B): 1, (B, C): -1, (C, A): -1, (C, D): 0, (D, C): 0}
    net = Net([3, 3, 3, 3], ways)
    cancel(net)
    assert sorted(net.shifts) == [(A, B), (B, C), (C, A)]
    assert list(net.count.values()) == [3, 3, 3, 3]


def test_negative_chain_to_smaller_broker_swaps_counts() -> None:
    """Both outcomes are as even; towards a broker with as many, or two less, it would not be."""
    net = Net([2, 1, 1], {(A, B): 1, (B, C): -2})
    cancel(net)
    assert sorted(net.shifts) == [(A, B), (B, C)]
    assert list(net.count.values()) == [1, 1, 2]
    for count in ([1, 1, 1], [1, 1, 2]):
        net = Net(count, {(A, B): 1, (B, C): -2})
        cancel(net)
        assert net.shifts == []
