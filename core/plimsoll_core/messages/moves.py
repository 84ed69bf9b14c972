"""Requests of clients and objects for moves of replicas, and their answers.

`messages.requests` lists them among the requests and answers. A client names targets partition by
partition and gets a result for each; an object's moves are accepted or refused as a whole. A
Rebalance's plan is not made within a decision of the controller, since it takes seconds in a large
cluster. The first request commits the plan, and later ones continue it at each reconcile.
"""

from __future__ import annotations

from uuid import UUID

import msgspec

from plimsoll_core.cluster.model import (
    MovePhase,
    ReassignmentObject,
    RebalanceMode,
    RebalanceMove,
    RebalanceObject,
    RebalancePhase,
)
from plimsoll_core.ids import BrokerEpoch, BrokerId, PartitionEpoch
from plimsoll_core.messages.base import Message
from plimsoll_core.messages.security import OnBehalf

CONCURRENT_MOVES_PER_BROKER = 5

# --- for clients -------------------------------------------------------------------------------


class PartitionTarget(msgspec.Struct, frozen=True, kw_only=True):
    """The replicas that a client wants for a partition, the preferred leader first; None cancels
    its move."""

    topic: str
    index: int
    replicas: tuple[BrokerId, ...] | None


class TargetAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a move for one partition. If `code` is 0, `partition_epoch` is the one after
    the change. `reason`: the name of a `Reason`, or empty."""

    topic: str
    index: int
    code: int = 0
    reason: str = ""
    message: str = ""
    partition_epoch: PartitionEpoch = PartitionEpoch(0)


class AlterReassignments(Message, frozen=True, kw_only=True):
    """A client's request to move partitions, forwarded by a broker.

    `forced`: True to cancel even if the remaining replicas may lack acknowledged records.
    `answered`: results of the partitions decided so far, if the controller continues a large
    request in several decisions.
    """

    targets: tuple[PartitionTarget, ...]
    allow_factor_change: bool = True
    forced: bool = False
    answered: tuple[TargetAnswer, ...] = ()
    behalf: OnBehalf | None = None


class ReassignmentsAnswer(Message, frozen=True, kw_only=True):
    partitions: tuple[TargetAnswer, ...]


# --- for objects -------------------------------------------------------------------------------


class TopicMove(msgspec.Struct, frozen=True, kw_only=True):
    """One entry of a Reassignment, with exactly one of `replicas` (the new ones, the preferred
    leader first), `replication_factor` and `away_from` (brokers that are to lose their replicas).
    `partitions`: None for the whole topic. `replan`: True to choose another broker for a target
    that does not come back."""

    topic: str
    partitions: tuple[int, ...] | None = None
    replicas: tuple[BrokerId, ...] | None = None
    replication_factor: int | None = None
    away_from: tuple[BrokerId, ...] | None = None
    replan: bool = False


class RunReassignment(Message, frozen=True, kw_only=True):
    """Bring the moves of a Reassignment object to its present state: begin, continue, pause or roll
    back.

    Sent at each reconcile of the object; if nothing is to be done, no record is written. `wall_ms`:
    the operator's clock, only for display. `waited_ms`: the age of the object in ms.
    `bytes_per_second`: the object's own rate limit; None for the default (`LimitMovement`).
    """

    object: ReassignmentObject
    moves: tuple[TopicMove, ...]
    waited_ms: int = 0
    bytes_per_second: int | None = None
    paused: bool = False
    cancelled: bool = False
    wall_ms: int = 0


class ReassignmentObjectGone(Message, frozen=True, kw_only=True):
    """Report that a Reassignment object is proven absent: roll back its unfinished moves, then
    forget it."""

    object: ReassignmentObject
    wall_ms: int = 0


class ReassignmentState(Message, frozen=True, kw_only=True):
    """The progress of a Reassignment. `reason` and `message`: the condition that its moves wait
    for, empty if there is none. `phase`: None if it has not begun, or was forgotten."""

    phase: MovePhase | None
    reason: str = ""
    message: str = ""


class LimitMovement(Message, frozen=True, kw_only=True):
    """Set the default rate limit, in bytes per second, at which a broker copies replicas that are
    moved to it."""

    bytes_per_second: int


# --- from brokers ------------------------------------------------------------------------------


class FollowerLag(msgspec.Struct, frozen=True, kw_only=True):
    """How many records of its leader's log a follower lacks; None if it has not fetched in this
    leader epoch."""

    broker_id: BrokerId
    records: int | None


class CopySize(msgspec.Struct, frozen=True, kw_only=True):
    """The size in bytes of a partition's log on one broker. If that broker leads the partition:
    `behind`, the followers that lack records; `bytes_in` and `bytes_out`, the bytes that producers
    wrote and consumers read there since the broker began to host it."""

    topic_id: UUID
    index: int
    size: int
    behind: tuple[FollowerLag, ...] = ()
    bytes_in: int | None = None
    bytes_out: int | None = None


class ReportCopies(Message, frozen=True, kw_only=True):
    """A broker's report on the progress of moves. Sent at intervals by leaders of moving partitions
    and by brokers with replicas being added. No safety rule depends on it.

    `sizes`: size and traffic of a few other partitions that the broker leads, in rotation, from
    which plans are made.
    """

    broker_id: BrokerId
    broker_epoch: BrokerEpoch
    copies: tuple[CopySize, ...]
    sizes: tuple[CopySize, ...] = ()


class BeginRebalance(Message, frozen=True, kw_only=True):
    """Commit a Rebalance's plan. Refused if a partition has changed since the plan was made.

    `moves` are numbered from 0. A Rebalance without moves, or cancelled before it began, ends at
    once. `noted`: the number of moves, from the first on, that earlier decisions on this request
    have committed. `by_itself`: True if the operator made the Rebalance and no person approved it.
    """

    object: RebalanceObject
    mode: RebalanceMode
    brokers: tuple[BrokerId, ...] = ()
    plan_hash: str
    moves: tuple[RebalanceMove, ...]
    waves: int = 0
    bytes_per_second: int | None = None
    cancelled: bool = False
    wall_ms: int = 0
    noted: int = 0
    by_itself: bool = False


class MoveLimits(msgspec.Struct, frozen=True, kw_only=True):
    """Bounds on the moves of a Rebalance that run at the same time. A move counts for each broker
    that gains or loses a replica or is copied from. `max_bytes`: on the bytes that these moves copy
    in all; None for no bound."""

    concurrent_moves_per_broker: int = CONCURRENT_MOVES_PER_BROKER
    max_bytes: int | None = None


class RunRebalance(Message, frozen=True, kw_only=True):
    """Bring a Rebalance to the state of its object: continue, pause or roll back.

    `bytes_per_second`: the object's own rate limit; None for the default (`LimitMovement`).
    `wall_ms`: the operator's clock, only for display. `by_itself`: as in `BeginRebalance`.
    """

    object: RebalanceObject
    limits: MoveLimits = MoveLimits()
    bytes_per_second: int | None = None
    paused: bool = False
    cancelled: bool = False
    wall_ms: int = 0
    by_itself: bool = False


class RebalanceObjectGone(Message, frozen=True, kw_only=True):
    """Report that a Rebalance object is proven absent: roll back its unfinished moves, then forget
    it."""

    object: RebalanceObject
    wall_ms: int = 0


class RebalanceState(Message, frozen=True, kw_only=True):
    """The progress of a Rebalance. `reason` and `message`: the condition that it waits for, empty
    if there is none. `phase`: None if it has not begun, or was forgotten; Beginning while its plan
    is not committed completely, so that the operator sends the plan again."""

    phase: RebalancePhase | None
    reason: str = ""
    message: str = ""


RebalanceRequest = BeginRebalance | RunRebalance | RebalanceObjectGone
