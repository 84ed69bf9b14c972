"""Requests for elections and their answers. `messages.requests` lists them."""

from __future__ import annotations

from typing import Literal

import msgspec

from plimsoll_core.cluster.model import TopicObject
from plimsoll_core.ids import BrokerId, LeaderEpoch
from plimsoll_core.messages.base import Message
from plimsoll_core.messages.security import OnBehalf


class PartitionName(msgspec.Struct, frozen=True, kw_only=True):
    """A partition by its topic's name and its index."""

    topic: str
    index: int


class ElectionAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """The result of an election for one partition. If `code` is 0, `leader` leads in
    `leader_epoch`; otherwise `reason` and `message` say why there was none."""

    topic: str
    index: int
    code: int = 0
    reason: str = ""
    message: str = ""
    leader: BrokerId | None = None
    leader_epoch: LeaderEpoch = LeaderEpoch(0)


ElectionKind = Literal["Preferred", "Unclean"]


class ElectLeaders(Message, frozen=True, kw_only=True):
    """A client's request to elect leaders, forwarded by a broker.

    `partitions`: None for all that need an election. `needed_only`: True to omit partitions that
    need none from the answer. `answered`: results of the partitions decided so far, if the
    controller continues a large request in several decisions.
    """

    kind: ElectionKind
    partitions: tuple[PartitionName, ...] | None = None
    needed_only: bool = False
    answered: tuple[ElectionAnswer, ...] = ()
    behalf: OnBehalf | None = None


class NamedLeader(msgspec.Struct, frozen=True, kw_only=True):
    """A leader that a person names for a partition, although it may lack records. It has no effect
    unless the partition is still in `at_leader_epoch`."""

    partition: int
    leader: BrokerId
    at_leader_epoch: LeaderEpoch


class NameLeaders(Message, frozen=True, kw_only=True):
    """Elect the leaders that a Topic object names for partitions without one.

    The operator sends this at each reconcile of the object. The answer leaves out partitions that
    need no election. `answered`: results of the partitions decided so far, if the controller
    continues a large request in several decisions.
    """

    object: TopicObject
    leaders: tuple[NamedLeader, ...]
    answered: tuple[ElectionAnswer, ...] = ()


class ElectionsAnswer(Message, frozen=True, kw_only=True):
    partitions: tuple[ElectionAnswer, ...]
