"""The replicas that brokers have memory and descriptors for, as they report it. Called by the
planner.

A plan never brings a broker above its number of replicas, nor a broker that is above it further up.
A broker that has not reported its number is not bounded.
"""

from __future__ import annotations

from collections.abc import Mapping

from plimsoll_core.errors import Reason, Refusal
from plimsoll_core.ids import BrokerId
from plimsoll_core.planner.outcome import Plan


def too_many_replicas(plan: Plan, most: Mapping[BrokerId, int]) -> Refusal | None:
    """Refuse a plan that brings a broker above its number of replicas `most`, or further above it.
    The sentence names the broker with the lowest id."""
    for load in plan.loads:
        after = load.replicas.after
        if load.broker in most and after > max(most[load.broker], load.replicas.before):
            return beyond_memory(load.broker, after, most[load.broker])
    return None


def beyond_memory(broker: BrokerId, after: int, most: int) -> Refusal:
    """Return the refusal of a move after which a broker would have `after` replicas."""
    return Refusal(
        reason=Reason.ReplicaCapacity,
        message=(
            f"The move is refused: after it, broker {broker} would have {after} replicas, and it "
            f"has memory and file descriptors for at most {most}. Add brokers, delete topics, or "
            "give the brokers more memory."
        ),
    )
