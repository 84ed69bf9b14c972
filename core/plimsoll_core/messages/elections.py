"""Requests for elections and their answers.  Part of `messages.requests`."""

from __future__ import annotations

from typing import Literal

import msgspec

from plimsoll_core.cluster.model import TopicObject
from plimsoll_core.ids import BrokerId, LeaderEpoch
from plimsoll_core.messages.base import Message
from plimsoll_core.messages.security import OnBehalf


class PartitionName(msgspec.Struct, frozen=True, kw_only=True):
    """A partition as clients name it."""

    topic: str
    index: int


class ElectionAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """The result of one election; `code` 0: `leader` leads with this epoch."""

    topic: str
    index: int
    code: int = 0
    reason: str = ""
    message: str = ""
    leader: BrokerId | None = None
    leader_epoch: LeaderEpoch = LeaderEpoch(0)


ElectionKind = Literal["Preferred", "Unclean"]


class ElectLeaders(Message, frozen=True, kw_only=True):
    """Elect leaders, for a client. Forwarded by a broker.

    `partitions`: None for all that need an election. `needed_only`: omit partitions that need none
    from the answer. `answered`: results of earlier slices of the same request."""

    kind: ElectionKind
    partitions: tuple[PartitionName, ...] | None = None
    needed_only: bool = False
    answered: tuple[ElectionAnswer, ...] = ()
    behalf: OnBehalf | None = None


class NamedLeader(msgspec.Struct, frozen=True, kw_only=True):
    """A named leader for a partition, although it may lack records; void in another leader
    epoch."""

    partition: int
    leader: BrokerId
    at_leader_epoch: LeaderEpoch


class NameLeaders(Message, frozen=True, kw_only=True):
    """A Topic object names leaders for partitions without one.

    Asked as often as the operator looks at the object.  Nothing is answered where there is nothing
    to do any more.  `answered`: what earlier slices of this very request came to.
    """

    object: TopicObject
    leaders: tuple[NamedLeader, ...]
    answered: tuple[ElectionAnswer, ...] = ()


class ElectionsAnswer(Message, frozen=True, kw_only=True):
    partitions: tuple[ElectionAnswer, ...]
