"""The planner's answer: moves, their cost, the resulting loads, and relaxed rules.

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
    """One partition's replicas before and after the plan; the first of each is the preferred
    leader. `size_bytes` is the size of one replica, None if unknown."""

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
        """Return the number of bytes that the move copies to new replicas, 0 if the size is
        unknown."""
        return len(self.adding) * (self.size_bytes or 0)


class Level(msgspec.Struct, frozen=True, kw_only=True):
    """One figure of one broker, before and after the plan."""

    before: int = 0
    after: int = 0


class BrokerLoad(msgspec.Struct, frozen=True, kw_only=True):
    """The replicas, preferred leaders, bytes, and traffic in bytes per second of one broker before
    and after the plan. Partitions that the plan skips are included. `bytes_in` is what its replicas
    write, `bytes_out` what its leaders send to consumers and followers."""

    broker: BrokerId
    replicas: Level
    leaders: Level
    size_bytes: Level
    bytes_in: Level = Level()
    bytes_out: Level = Level()


class Relaxation(msgspec.Struct, frozen=True, kw_only=True):
    """A rule that this plan does not keep in full, with a sentence that says why."""

    rule: Literal["ReplicaBalance", "LeaderBalance", "LoadBalance", "Racks", "DiskSpace"]
    message: str


class Skipped(msgspec.Struct, frozen=True, kw_only=True):
    """A topic that the goal includes and the plan leaves as it is, with the reason."""

    topic_id: TopicId
    topic: str
    reason: Literal["ExplicitPlacement"]
    message: str


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """A plan. `moves` copy or drop data; `reorders` change only preferred leaders.

    `loads` are the brokers' loads before and after. `lower_bound` is the number of replicas that
    every plan for this goal has to move if racks are ignored. `lowest_isr_margin` is the least
    value of ISR size minus min ISR of a moving partition during its move, None if nothing moves.
    `unknown_disks` are brokers that get replicas and of which no disk figures are known.
    `why` are sentences that state the reasons of the plan, where its goal does not.
    """

    moves: tuple[Move, ...]
    reorders: tuple[Move, ...]
    loads: tuple[BrokerLoad, ...]
    lower_bound: int
    lowest_isr_margin: int | None = None
    relaxations: tuple[Relaxation, ...] = ()
    skipped: tuple[Skipped, ...] = ()
    unknown_disks: tuple[BrokerId, ...] = ()
    why: tuple[str, ...] = ()

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
    def nothing_to_do(self) -> bool:
        return not self.moves and not self.reorders


def plan_hash(plan: Plan) -> str:
    """Return a hash of the changes of all partitions, by which a user approves the plan. Sizes are
    excluded, since they grow while the user reads the plan."""

    def rows(moves: Sequence[Move]) -> list[tuple[str, int, Row, Row]]:
        return sorted(
            (str(move.partition.topic_id), move.partition.index, move.before, move.after)
            for move in moves
        )

    content = msgspec.json.encode({"moves": rows(plan.moves), "reorders": rows(plan.reorders)})
    return f"sha256:{hashlib.sha256(content).hexdigest()}"
