"""The outcome of a coordinator's decision: the only way in which a handler's request is answered.

A rule returns a `CoordinatorOutcome` and writes nothing durable. The shell appends and applies
`records`. It sends each reply only when all records written of the group so far are committed, also
a reply that only reads, so that no failover can undo what a client was told. `at_once` is for
replies that depend on the request alone. `told` translates the errors of a coordinator's log into
those that its clients expect. Sources: docs/protocol.md §5.8; Kafka's
`CoordinatorOperationExceptionHelper`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, NamedTuple, TypeVar

from plimsoll_core.errors import Code

_TOLD: dict[Code, Code] = {
    Code.NONE: Code.NONE,
    # Written or not: the client finds the coordinator again and asks again.
    Code.UNKNOWN_TOPIC_OR_PARTITION: Code.COORDINATOR_NOT_AVAILABLE,
    Code.REQUEST_TIMED_OUT: Code.COORDINATOR_NOT_AVAILABLE,
    Code.NOT_ENOUGH_REPLICAS: Code.COORDINATOR_NOT_AVAILABLE,
    Code.NOT_ENOUGH_REPLICAS_AFTER_APPEND: Code.COORDINATOR_NOT_AVAILABLE,
    # The group is another broker's by now.
    Code.NOT_LEADER_OR_FOLLOWER: Code.NOT_COORDINATOR,
    Code.KAFKA_STORAGE_ERROR: Code.NOT_COORDINATOR,
    Code.MESSAGE_TOO_LARGE: Code.UNKNOWN_SERVER_ERROR,
}


def told(code: Code) -> Code:
    """Translate the error code of the partition's replica for an append or its commit into the code
    that a coordinator's client gets; UNKNOWN_SERVER_ERROR for a code without a translation."""
    return _TOLD.get(code, Code.UNKNOWN_SERVER_ERROR)


RecordT = TypeVar("RecordT")
OperationT = TypeVar("OperationT")


@dataclass(frozen=True, slots=True)
class RefusedAsWhole:
    """The refusal of a whole request: one error code for everything that it names, and a
    sentence."""

    code: Code
    message: str = ""


class Reply(NamedTuple):
    """An answer to the client's request with `token`: either the request being decided, or one that
    was parked earlier."""

    token: object
    """Identifies the request to the group shard. Rules only store, compare and return it."""
    answer: object
    """A value of the operation's own answer type, or `RefusedAsWhole`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CoordinatorOutcome(Generic[RecordT, OperationT]):
    """The effects of one operation, in the order in which the shell carries them out.

    Whatever a rule changes in soft state (the state that is not in the log) must hold whether
    `records` get into the log or not: a change that depends on their commit belongs into `then`.
    """

    key: str | None
    """The group or transactional id that the replies are about: they wait for its last record. With
    None they wait for the shard's last record."""

    records: tuple[RecordT, ...] = ()
    """Records to append together or not at all, before anything else; applied at their place in the
    log."""

    at_once: tuple[Reply, ...] = ()
    """Replies to send at once, after the append."""

    replies: tuple[Reply, ...] = ()
    """Replies to send when the shard's high watermark has passed the last record of `key`. If the
    append or the wait fails, each is sent with the error code instead."""

    then: Callable[[Code], OperationT] | None = None
    """Builds the operation that the group shard submits once it knows whether `records` are
    committed. The code is NONE if they are; after an error they may or may not be committed."""

    parked: bool = False
    """True if a later operation answers the present request: its token is kept in soft state."""


def refused(token: object, code: Code, message: str = "") -> Reply:
    """Return a reply that refuses everything the request named."""
    return Reply(token, RefusedAsWhole(code, message))


def refuse(key: str, token: object, code: Code, message: str = "") -> CoordinatorOutcome[Any, Any]:
    """Return an outcome without records that refuses the request. The refusal is sent once all
    records of `key` so far are committed."""
    return CoordinatorOutcome(key=key, replies=(refused(token, code, message),))
