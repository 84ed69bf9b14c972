"""The operator's requests about topics that objects declare.  Part of `messages.requests`."""

from __future__ import annotations

from uuid import UUID

import msgspec

from plimsoll_core.cluster.model import TopicObject
from plimsoll_core.ids import BrokerId
from plimsoll_core.messages.base import Message


class DeclareTopic(Message, frozen=True, kw_only=True):
    """A Topic object as it should be: create, bind, grow, reconfigure or revive the topic.

    `assignment` is given for `strategy == "Explicit"` only.  Values are resolved: no defaults left
    open.  `adopt`: the undeclared topic that this object takes over, by its id.
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
    """An object is proven absent (never merely not seen).  Times are the API server's.

    The topic becomes pending for `grace_ms`; when that has passed it is removed, but not more than
    `removals_per_hour_max` an hour.  `heir`: another object that declares the topic and
    takes it over at once.  `claimed`: one declares it that may not without more, being of another
    namespace: nothing is removed as long as it does.
    """

    object: TopicObject
    server_now_ms: int
    grace_ms: int
    removals_per_hour_max: int
    acknowledged: bool = False
    heir: TopicObject | None = None
    claimed: bool = False


class DetachTopic(Message, frozen=True, kw_only=True):
    """The namespace may no longer declare topics here: the topic stays, without an object."""

    object: TopicObject
