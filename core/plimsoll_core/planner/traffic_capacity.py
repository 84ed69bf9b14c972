"""The traffic that brokers can carry, by what their pools declare. Called by the planner.

A plan never brings a broker above its capacity of bytes in or out, nor a broker that is above it
further up. It counts the traffic that was measured; what is unknown counts as 0.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import msgspec

from plimsoll_core.errors import Reason, Refusal
from plimsoll_core.ids import BrokerId
from plimsoll_core.phrasing import bytes_text
from plimsoll_core.planner.outcome import BrokerLoad, Plan


class TrafficCapacity(msgspec.Struct, frozen=True, kw_only=True):
    """The most bytes per second that a broker's replicas may write, and that its leaders may send
    to consumers and followers; None if that is not declared."""

    bytes_in: int | None = None
    bytes_out: int | None = None


Capacities = Mapping[BrokerId, TrafficCapacity]


def too_much_traffic(plan: Plan, capacities: Capacities) -> Refusal | None:
    """Refuse a plan that brings a broker above its capacity, or further above it. The sentence
    names the broker with the lowest id."""
    for load in plan.loads:
        for words, after, most in _exceeded(load, capacities.get(load.broker)):
            return Refusal(
                reason=Reason.TrafficCapacity,
                message=(
                    f"The move is refused: after it, broker {load.broker} would {words} "
                    f"{bytes_text(after)} a second, more than the capacity that its pool "
                    f"declares, {bytes_text(most)} a second. Add brokers, or raise "
                    "pools[].capacity of the LogCluster."
                ),
            )
    return None


def _exceeded(load: BrokerLoad, capacity: TrafficCapacity | None) -> Iterator[tuple[str, int, int]]:
    """Yield a verb, the bytes after the plan, and the capacity that they exceed."""
    if capacity is None:
        return
    for words, level, most in (
        ("write", load.bytes_in, capacity.bytes_in),
        ("send", load.bytes_out, capacity.bytes_out),
    ):
        if most is not None and level.after > max(most, level.before):
            yield words, level.after, most
