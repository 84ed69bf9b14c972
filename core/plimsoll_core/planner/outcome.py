"""The planner's answer: moves, their cost, the loads that they lead to, and relaxed rules.

A plan is a value: equal requests give equal plans, and `plan_hash` names one, so that a user can
approve exactly what was shown.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Literal

import msgspec

from plimsoll_core.cluster.model import PartitionKey
from plimsoll_core.ids import BrokerId, TopicId
from plimsoll_core.planner.placement import Row


class Move(msgspec.Struct, frozen=True, kw_only=True):
    """One partition's replicas before and after; the first is the preferred leader."""

    partition: PartitionKey
    before: Row
    after: Row
    size_bytes: int | None = None

    @property
    def adding(self) -> Row:
        return tuple(broker for broker in self.after if broker not in self.before)

    @property
    def removing(self) -> Row:
        return tuple(broker for broker in self.before if broker not in self.after)

    @property
    def copied_bytes(self) -> int:
        """Return the bytes to copy, as far as sizes are known."""
        return len(self.adding) * (self.size_bytes or 0)


class Level(msgspec.Struct, frozen=True, kw_only=True):
    """One figure of one broker, before and after."""

    before: int = 0
    after: int = 0


class BrokerLoad(msgspec.Struct, frozen=True, kw_only=True):
    """A broker's load, with everything that was skipped; leaders are preferred leaders."""

    broker: BrokerId
    replicas: Level
    leaders: Level
    size_bytes: Level


class Relaxation(msgspec.Struct, frozen=True, kw_only=True):
    """A rule that this plan does not keep in full, and why it could not."""

    rule: Literal["ReplicaBalance", "LeaderBalance", "Racks", "DiskSpace"]
    message: str


class Skipped(msgspec.Struct, frozen=True, kw_only=True):
    """A topic that the goal speaks of and the plan leaves alone."""

    topic_id: TopicId
    topic: str
    reason: Literal["ExplicitPlacement"]
    message: str


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """A plan. `moves` copy or drop data; `reorders` change only preferred leaders.

    `lower_bound`: replicas that any plan for this goal must move if racks are ignored.
    `lowest_isr_margin`: the smallest len(isr) − min ISR of moving partitions on the way; None if
    nothing moves. `unknown_disks`: brokers that get data and have no disk figures."""

    moves: tuple[Move, ...]
    reorders: tuple[Move, ...]
    loads: tuple[BrokerLoad, ...]
    lower_bound: int
    lowest_isr_margin: int | None = None
    relaxations: tuple[Relaxation, ...] = ()
    skipped: tuple[Skipped, ...] = ()
    unknown_disks: tuple[BrokerId, ...] = ()

    @property
    def moved_replicas(self) -> int:
        return sum(len(move.adding) for move in self.moves)

    @property
    def moved_leaders(self) -> int:
        """Return the number of partitions with another preferred leader than before."""
        return sum(move.before[0] != move.after[0] for move in (*self.moves, *self.reorders))

    @property
    def copied_bytes(self) -> int:
        return sum(move.copied_bytes for move in self.moves)

    @property
    def unknown_sizes(self) -> int:
        """Return the number of moves that copy an unknown amount."""
        return sum(move.size_bytes is None and bool(move.adding) for move in self.moves)

    @property
    def nothing_to_do(self) -> bool:
        return not self.moves and not self.reorders


def plan_hash(plan: Plan) -> str:
    """Return a hash of the plan's changes, partition by partition. Sizes are excluded: they grow
    while the plan is read."""

    def rows(moves: Sequence[Move]) -> list[tuple[str, int, Row, Row]]:
        return sorted(
            (str(move.partition.topic_id), move.partition.index, move.before, move.after)
            for move in moves
        )

    content = msgspec.json.encode({"moves": rows(plan.moves), "reorders": rows(plan.reorders)})
    return f"sha256:{hashlib.sha256(content).hexdigest()}"
