"""A Rebalance object's requests to the controller, and their answers.

Part of `messages`, which lists them among the requests and answers.  A plan is made outside the
controller's turn, since it takes seconds in a large cluster; what is asked here is to commit it,
and then, at each reconcile, to go on with it.
"""

from __future__ import annotations

import msgspec

from plimsoll_core.cluster.model import (
    RebalanceMode,
    RebalanceMove,
    RebalanceObject,
    RebalancePhase,
)
from plimsoll_core.ids import BrokerId
from plimsoll_core.messages.base import Message

CONCURRENT_MOVES_PER_BROKER = 5


class BeginRebalance(Message, frozen=True, kw_only=True):
    """Commit a Rebalance's plan. Refused if a partition has changed since the plan was made.

    `moves` are numbered from 0. A Rebalance without moves, or cancelled before it began, ends at
    once. `noted`: the number of moves that earlier slices of this request have committed.
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


class MoveLimits(msgspec.Struct, frozen=True, kw_only=True):
    """Bounds on the moves of a Rebalance that run at a time. A move counts for each broker that
    gains or loses a replica or is copied from. `max_bytes`: None for no bound."""

    concurrent_moves_per_broker: int = CONCURRENT_MOVES_PER_BROKER
    max_bytes: int | None = None


class RunRebalance(Message, frozen=True, kw_only=True):
    """Bring a Rebalance to the state of its object: continue, pause or roll back.

    `wall_ms`: the operator's clock, only for display.
    """

    object: RebalanceObject
    limits: MoveLimits = MoveLimits()
    bytes_per_second: int | None = None
    paused: bool = False
    cancelled: bool = False
    wall_ms: int = 0


class RebalanceObjectGone(Message, frozen=True, kw_only=True):
    """A Rebalance object is proven absent: roll back its unfinished moves, then forget it."""

    object: RebalanceObject
    wall_ms: int = 0


class RebalanceState(Message, frozen=True, kw_only=True):
    """The progress of a Rebalance. `reason` and `message`: what it waits for, empty if nothing.

    `phase`: None if it has not begun, or was forgotten. Beginning: its plan is not committed
    completely; the operator sends it again.
    """

    phase: RebalancePhase | None
    reason: str = ""
    message: str = ""


RebalanceRequest = BeginRebalance | RunRebalance | RebalanceObjectGone
