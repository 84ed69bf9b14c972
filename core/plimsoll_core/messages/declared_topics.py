"""The operator's requests about topics that objects declare.  Part of `messages.requests`."""

from __future__ import annotations

from uuid import UUID

import msgspec

from plimsoll_core.cluster.model import TopicObject
from plimsoll_core.ids import BrokerId
from plimsoll_core.messages.base import Message


class DeclareTopic(Message, frozen=True, kw_only=True):
    """Make a topic what its Topic object states: create, bind, grow, reconfigure or revive it.

    All values are resolved, without defaults left open. `assignment`: only if `strategy` is
    "Explicit". `adopt`: the id of the topic without an object that this object takes over.
    """

    object: TopicObject
    topic_name: str
    partitions: int
    replication_factor: int
    min_isr: int
    strategy: str = "RoundRobin"
    assignment: tuple[tuple[BrokerId, ...], ...] | None = None
    configs: dict[str, str] = msgspec.field(default_factory=dict)
    deletion_policy: str = "Delete"
    adopt: UUID | None = None


class TopicObjectGone(Message, frozen=True, kw_only=True):
    """Report that a Topic object has been deleted. The operator has proof; that it does not see the
    object is not enough. Times are the API server's.

    The topic becomes pending for `grace_ms` and is then removed, but at most
    `removals_per_hour_max` topics an hour. `heir`: another object that declares the topic, and
    takes it over at once. `claimed`: True if an object of another namespace declares the topic
    without the right to take it over; nothing is removed while it does.
    """

    object: TopicObject
    server_now_ms: int
    grace_ms: int
    removals_per_hour_max: int
    acknowledged: bool = False
    heir: TopicObject | None = None
    claimed: bool = False


class DetachTopic(Message, frozen=True, kw_only=True):
    """The namespace may no longer declare topics in this cluster: the topic stays, without an
    object."""

    object: TopicObject
