"""Replicas in the making: the cheapest of the moves between two brokers."""

from plimsoll_core.planner.replica_layout import LOOK_AT_MOST, Layout, Opening


def test_returning_replica_is_found_behind_free_moves() -> None:
    """The least cost is exact, however long a queue is; only of equals just a few are compared."""
    many = LOOK_AT_MOST + 1
    home = [*[(0, 1)] * many, (1, 3)]
    rows = [*[[0, 2] for _ in range(many)], [0, 3]]
    layout = Layout(
        Opening(
            rows=rows,
            home=home,
            leaders=[row[0] for row in home],
            topics=[0] * len(home),
            free=[True] * len(home),
            receivers=range(4),
        )
    )
    assert layout.copies() == many + 1
    assert layout.cheapest(0, 1) == (-1, many)
    layout.shift(many, 0, 1)
    assert layout.copies() == many
    assert layout.cheapest(0, 1) == (0, 0)
