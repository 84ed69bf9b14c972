"""The inputs of each decision about groups: one shard's state, the time and the cluster.

`groups.step` passes a `GroupTurn` for each operation to the rules. Rules read `state` and may write
`soft`. `SoftState` is lost at a failover: a successor begins with an empty one and sets every
deadline again. Decisions write it in ways that are right whether or not their records reach the log
(`CoordinatorOutcome`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from plimsoll_core.cluster.model import ClusterImage
from plimsoll_core.coordination.deadlines import Deadlines
from plimsoll_core.groups.classic_group import ClassicGroup
from plimsoll_core.groups.membership import (
    EndJoining,
    EndPending,
    EndSession,
    EndSyncing,
    StoreEmptiness,
    WakeGroup,
)
from plimsoll_core.groups.memory import SeatsCharged
from plimsoll_core.groups.settings import GroupSettings
from plimsoll_core.groups.state import GroupsState


class ExpiryDue(NamedTuple):
    """A deadline: check a group for offsets that are too old."""

    group_id: str


DeadlineKey = (
    ExpiryDue | EndSession | EndPending | EndJoining | EndSyncing | WakeGroup | StoreEmptiness
)
"""The key of a deadline; `groups.step` makes an operation of each that is due."""


class SoftState:
    """The state of one shard's groups that is not in the log. It is lost when this coordinator
    ends."""

    __slots__ = ("charged", "classic", "deadlines", "rebalances", "seats")

    def __init__(self) -> None:
        # When something is to be looked at again, by `DeadlineKey`, on the monotonic clock.
        self.deadlines = Deadlines()
        # Groups that have members or expect some, by id.
        self.classic: dict[str, ClassicGroup] = {}
        # Members and pending ids of all of them.
        self.seats = 0
        # The charged seats of each of these groups (`groups.step`).
        self.charged: dict[str, SeatsCharged] = {}
        # Number of rebalances that began, for the metrics.
        self.rebalances = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupTurn:
    """The inputs of one operation: the shard's state, the settings, the metadata and the time."""

    state: GroupsState
    """The committed state; rules read it and never write it."""
    soft: SoftState
    settings: GroupSettings
    image: ClusterImage
    """The newest metadata that the broker has applied."""
    image_is_fresh: bool
    """True if `image` has all metadata that were committed when this shard became active. Only then
    does a topic that is missing from `image` not exist."""
    now_ms: int
    """Monotonic time in milliseconds, for deadlines."""
    wall_ms: int
    """Milliseconds since 1970, for records."""
    believed_ms: int | None
    """`wall_ms` for decisions about age; None while the wall clock is not trusted."""
    record_bytes_max: int = 2**20
    """The most bytes of a record, key and value together."""

    def has_partition(self, topic: str, index: int) -> bool:
        """Return True if the broker's newest metadata contain the partition."""
        return self.image.partition_named(topic, index) is not None
