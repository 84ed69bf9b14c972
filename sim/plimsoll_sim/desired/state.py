"""What an administrator has applied to the simulated cluster, as every operator reads it."""

from __future__ import annotations

from dataclasses import dataclass, field

from plimsoll_core.cluster.model import ReassignmentObject, RebalanceObject, TopicObject
from plimsoll_core.ids import BrokerId
from plimsoll_core.messages.reassignments import RunReassignment
from plimsoll_core.messages.requests import DeclareTopic, Request
from plimsoll_operator.api.rebalance import Rebalance


@dataclass
class DesiredState:
    """Custom resources, and requests of clients that an operator passes on."""

    members: tuple[BrokerId, ...] = ()
    """The LogCluster's brokers."""
    topics: dict[str, DeclareTopic] = field(default_factory=dict)
    """Topics by the names of their objects."""
    gone: dict[str, TopicObject] = field(default_factory=dict)
    """Topic objects that were deleted, by uid."""
    moves: dict[str, RunReassignment] = field(default_factory=dict)
    """Reassignments by uid."""
    gone_moves: dict[str, ReassignmentObject] = field(default_factory=dict)
    """Reassignment objects that were deleted, by uid."""
    rebalances: dict[str, Rebalance] = field(default_factory=dict)
    """Rebalances by uid."""
    gone_rebalances: dict[str, RebalanceObject] = field(default_factory=dict)
    """Rebalance objects that were deleted, by uid."""
    orders: list[Request] = field(default_factory=list)
    """Requests that the next operator to reconcile makes once."""
    revision: str = ""
    """Which revision of its pod template every broker should run."""
