"""Requests of clients and objects for moves of replicas, and their answers.

Part of `messages`, which lists them among the requests and answers.  A client names targets
partition by partition and hears about each; an object's moves are taken or refused as a whole.
"""

from __future__ import annotations

from uuid import UUID

import msgspec

from plimsoll_core.cluster.model import MovePhase, ReassignmentObject
from plimsoll_core.ids import BrokerEpoch, BrokerId, PartitionEpoch
from plimsoll_core.messages.base import Message
from plimsoll_core.messages.security import OnBehalf

# --- for clients -------------------------------------------------------------------------------


class PartitionTarget(msgspec.Struct, frozen=True, kw_only=True):
    """The wanted replicas of a partition, the preferred leader first; None cancels a move."""

    topic: str
    index: int
    replicas: tuple[BrokerId, ...] | None


class TargetAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """The result for one target; `code` 0 is success, and `partition_epoch` that of the change.
    `reason`: a `Reason`'s name or ""."""

    topic: str
    index: int
    code: int = 0
    reason: str = ""
    message: str = ""
    partition_epoch: PartitionEpoch = PartitionEpoch(0)


class AlterReassignments(Message, frozen=True, kw_only=True):
    """Move partitions, for a client. Forwarded by a broker.

    `forced`: cancel even if the remaining replicas may lack acknowledged records. `answered`:
    results of earlier turns of the same request."""

    targets: tuple[PartitionTarget, ...]
    allow_factor_change: bool = True
    forced: bool = False
    answered: tuple[TargetAnswer, ...] = ()
    behalf: OnBehalf | None = None


class ReassignmentsAnswer(Message, frozen=True, kw_only=True):
    partitions: tuple[TargetAnswer, ...]


# --- for objects -------------------------------------------------------------------------------


class TopicMove(msgspec.Struct, frozen=True, kw_only=True):
    """One entry of a Reassignment, with exactly one of `replicas`, `replication_factor` and
    `away_from`. `partitions`: None for the whole topic. `replan`: replace a target that stays
    away."""

    topic: str
    partitions: tuple[int, ...] | None = None
    replicas: tuple[BrokerId, ...] | None = None
    replication_factor: int | None = None
    away_from: tuple[BrokerId, ...] | None = None
    replan: bool = False


class RunReassignment(Message, frozen=True, kw_only=True):
    """A Reassignment object as it is now: begin, go on, pause or roll back.

    Sent at each reconcile of the object; what holds already adds nothing.  `wall_ms` is
    the asker's clock, for what people read; `waited_ms` is how old the object is.
    """

    object: ReassignmentObject
    moves: tuple[TopicMove, ...]
    waited_ms: int = 0
    bytes_per_second: int | None = None
    paused: bool = False
    cancelled: bool = False
    wall_ms: int = 0


class ReassignmentObjectGone(Message, frozen=True, kw_only=True):
    """A Reassignment's object is proven absent: roll back what still moves, then forget it."""

    object: ReassignmentObject
    wall_ms: int = 0


class ReassignmentState(Message, frozen=True, kw_only=True):
    """The progress of an object's moves.  `reason` and `message`: what they wait for, if anything.

    `phase` None: not begun, or forgotten.
    """

    phase: MovePhase | None
    reason: str = ""
    message: str = ""


class LimitMovement(Message, frozen=True, kw_only=True):
    """Set the default rate limit of a broker for replicas that are moved to it."""

    bytes_per_second: int


# --- from brokers ------------------------------------------------------------------------------


class FollowerLag(msgspec.Struct, frozen=True, kw_only=True):
    """The records that a follower lacks of its leader's log; None: it has not fetched in this
    term."""

    broker_id: BrokerId
    records: int | None


class CopySize(msgspec.Struct, frozen=True, kw_only=True):
    """The bytes of a partition on one broker.  `behind`: as its leader, the followers with logs
    that end before its own."""

    topic_id: UUID
    index: int
    size: int
    behind: tuple[FollowerLag, ...] = ()


class ReportCopies(Message, frozen=True, kw_only=True):
    """Progress of moves, for status only; decisions ignore it. Sent at intervals by leaders of
    moving partitions and by added replicas.

    `sizes`: of a part of the partitions that the broker leads, in turn, so that plans can state
    bytes; with the followers that lag."""

    broker_id: BrokerId
    broker_epoch: BrokerEpoch
    copies: tuple[CopySize, ...]
    sizes: tuple[CopySize, ...] = ()
