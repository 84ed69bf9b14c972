"""Requests about topics: the operator's for those that objects declare, clients' for all others.

`messages.requests` lists them. Each topic of a client's request is answered independently: a
refusal of one does not affect the others. A broker sends EnsureInternalTopic only from metadata
version 2 on, so that no older controller gets it.
"""

from __future__ import annotations

from typing import Literal
from uuid import UUID

import msgspec

from plimsoll_core.cluster.model import TopicObject
from plimsoll_core.ids import BrokerId, MetadataOffset
from plimsoll_core.messages.base import Message
from plimsoll_core.messages.security import OnBehalf


class DeclareTopic(Message, frozen=True, kw_only=True):
    """Set a topic to the state that its Topic object declares: create, bind, grow, reconfigure or
    revive it.

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
    `removals_per_hour_max` topics an hour unless the deletion is `acknowledged`. `heir`: another
    object that declares the topic, and takes it over at once. `claimed`: True if an object of
    another namespace declares the topic without the right to take it over; nothing is removed while
    it does.
    """

    object: TopicObject
    server_now_ms: int
    grace_ms: int
    removals_per_hour_max: int
    acknowledged: bool = False
    heir: TopicObject | None = None
    claimed: bool = False


class DetachTopic(Message, frozen=True, kw_only=True):
    """Report that a namespace may no longer declare topics in this cluster. The topic stays,
    without an object."""

    object: TopicObject


ConfigOperation = Literal["Set", "Delete", "Append", "Subtract"]
"""The change of one config; the last two change the items of a list."""


class ConfigChange(msgspec.Struct, frozen=True, kw_only=True):
    """A change of one config of a topic. `value`: None if the client sent none. `otherwise`: the
    value in force on the forwarding broker, to which an append or subtract applies if the topic has
    no value of its own."""

    name: str
    operation: ConfigOperation = "Set"
    value: str | None = None
    otherwise: str = ""


class TopicConfigChanges(msgspec.Struct, frozen=True, kw_only=True):
    """A client's changes of one topic's configs. `replace`: True to remove the configs that are not
    named."""

    topic: str
    changes: tuple[ConfigChange, ...]
    replace: bool = False


class TopicGrowth(msgspec.Struct, frozen=True, kw_only=True):
    """The number of partitions that a topic should have. `assignment`: the replicas of the added
    partitions; None to let the controller choose."""

    topic: str
    partitions: int
    assignment: tuple[tuple[BrokerId, ...], ...] | None = None


class TopicChanged(msgspec.Struct, frozen=True, kw_only=True):
    """The result for one topic; `code` 0 is success. `reason`: the name of a `Reason`, or ""."""

    topic: str
    code: int = 0
    reason: str = ""
    message: str = ""


class AlterTopicConfigs(Message, frozen=True, kw_only=True):
    """A client's request to change configs of topics, forwarded by a broker.

    A request that is too large for one decision is continued as another one: `answered` has the
    results so far, `spreading` the topics with a new min ISR that some partitions do not have yet.
    """

    topics: tuple[TopicConfigChanges, ...]
    validate_only: bool = False
    answered: tuple[TopicChanged, ...] = ()
    spreading: tuple[UUID, ...] = ()
    behalf: OnBehalf | None = None


class AddPartitions(Message, frozen=True, kw_only=True):
    """A client's request to add partitions, forwarded by a broker. `answered`: results of the
    topics decided so far, if the controller continues a large request in several decisions."""

    topics: tuple[TopicGrowth, ...]
    validate_only: bool = False
    answered: tuple[TopicChanged, ...] = ()
    behalf: OnBehalf | None = None


TopicChange = AlterTopicConfigs | AddPartitions


class TopicsChanged(Message, frozen=True, kw_only=True):
    """The result for each topic. `end_offset`: the metadata offset from which the changes are
    visible."""

    topics: tuple[TopicChanged, ...]
    end_offset: MetadataOffset = MetadataOffset(0)


class EnsureInternalTopic(Message, frozen=True, kw_only=True):
    """Create an internal topic unless it exists. Repeating the request is harmless. Answered with
    `TopicsAnswer` in both cases."""

    name: str
    """The name of the topic, one of `cluster.internal_topics`."""
