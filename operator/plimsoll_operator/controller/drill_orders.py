"""The drill order that is in force in a cluster: given by a reconciler, sent with every answer.

It is kept in memory and ends by itself, as does the fault in the broker: a controller that dies
takes it along.
"""

from __future__ import annotations

from collections.abc import Callable

from msgspec.structs import replace

from plimsoll_core.messages.drills import DrillOrder


class DrillOrders:
    """At most one order at a time. `now_ms`: the controller's clock, in milliseconds."""

    def __init__(self, now_ms: Callable[[], int]) -> None:
        self._now_ms = now_ms
        self._order: DrillOrder | None = None
        self._until_ms = 0

    @property
    def live(self) -> DrillOrder | None:
        """Return the order with the time that is left; None if there is none or it has ended."""
        left_ms = self._until_ms - self._now_ms()
        if self._order is None or left_ms <= 0:
            return None
        return replace(self._order, left_ms=left_ms)

    def give(self, order: DrillOrder) -> None:
        """Put the order in force for its `left_ms`, in place of an earlier one."""
        self._order, self._until_ms = order, self._now_ms() + order.left_ms

    def withdraw(self) -> None:
        """Send the order no more. A broker that has begun to obey it ends the fault by itself."""
        self._order = None
