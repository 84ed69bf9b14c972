"""Translates the errors of a coordinator's log into those that its clients expect.

The shell calls it with the replica's code, before an append and when a wait for the commit ends.
Source: Kafka's `CoordinatorOperationExceptionHelper`.
"""

from __future__ import annotations

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
    """Return the error code that a coordinator's client gets for the partition replica's error
    code."""
    return _TOLD.get(code, Code.UNKNOWN_SERVER_ERROR)
