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
    """Carry out a plan. Refused if a partition differs from what the plan found.

    `moves` are numbered from 0. Without moves, or if it was cancelled before, the Rebalance has
    ended. `noted`: how many moves earlier turns have committed."""

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
    """Bounds on the concurrent moves of a Rebalance. A move counts at each broker that gives, gets,
    drops or is copied from; `max_bytes` None: no bound."""

    concurrent_moves_per_broker: int = CONCURRENT_MOVES_PER_BROKER
    max_bytes: int | None = None


class RunRebalance(Message, frozen=True, kw_only=True):
    """A Rebalance object as it is now: go on with what was begun, pause it, or roll it back.

    `wall_ms` is the asker's clock, for what people read.
    """

    object: RebalanceObject
    limits: MoveLimits = MoveLimits()
    bytes_per_second: int | None = None
    paused: bool = False
    cancelled: bool = False
    wall_ms: int = 0


class RebalanceObjectGone(Message, frozen=True, kw_only=True):
    """A Rebalance's object is proven absent: roll back what still moves, then forget it."""

    object: RebalanceObject
    wall_ms: int = 0


class RebalanceState(Message, frozen=True, kw_only=True):
    """The progress of a Rebalance.  `reason` and `message`: what it waits for, if anything.

    `phase` None: not begun, or forgotten.  Beginning: its plan has to be given once more.
    """

    phase: RebalancePhase | None
    reason: str = ""
    message: str = ""


RebalanceRequest = BeginRebalance | RunRebalance | RebalanceObjectGone
