"""Explicit replicas of a Topic's placement: if they are allowed, and which they are. Pure.

Called by `topic_declaration`. The controller refuses unknown brokers and racks.
"""

from __future__ import annotations

from plimsoll_core.errors import Reason, Refusal
from plimsoll_core.ids import BrokerId
from plimsoll_operator.api.topic import Placement

Assignment = tuple[tuple[BrokerId, ...], ...]


def explicit_assignment(
    placement: Placement, partitions: int | None
) -> Assignment | Refusal | None:
    if placement.strategy != "Explicit":
        if placement.assignment:
            return invalid_placement("placement.assignment belongs to strategy Explicit.")
        return None
    entries = sorted(placement.assignment or (), key=lambda entry: entry.partition)
    if not entries:
        return invalid_placement("Strategy Explicit needs placement.assignment.")
    wanted = partitions if partitions is not None else len(entries)
    if [entry.partition for entry in entries] != list(range(wanted)):
        return invalid_placement(
            f"placement.assignment must list every partition from 0 to {wanted - 1} once."
        )
    for entry in entries:
        if len(set(entry.replicas)) != len(entry.replicas):
            return invalid_placement(f"Partition {entry.partition} lists a broker twice.")
        if len(entry.replicas) != len(entries[0].replicas):
            return invalid_placement(
                f"Partition {entry.partition} lists {len(entry.replicas)} replicas, partition 0 "
                f"lists {len(entries[0].replicas)}; all must list the same number."
            )
    return tuple(tuple(BrokerId(b) for b in entry.replicas) for entry in entries)


def invalid_placement(message: str) -> Refusal:
    return Refusal(reason=Reason.PlacementInvalid, message=message)
