"""The words that the replica's rules share: batches as it sees them, and error codes.

Core code takes any object with these attributes; the wire's parsed header is such an
object.  Nothing here decides anything.
"""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple, Protocol


class Code(IntEnum):
    """Kafka's error codes that a replica answers with or reacts to."""

    NONE = 0
    OFFSET_OUT_OF_RANGE = 1
    CORRUPT_MESSAGE = 2
    UNKNOWN_TOPIC_OR_PARTITION = 3
    LEADER_NOT_AVAILABLE = 5
    NOT_LEADER_OR_FOLLOWER = 6
    REQUEST_TIMED_OUT = 7
    MESSAGE_TOO_LARGE = 10
    NOT_ENOUGH_REPLICAS = 19
    NOT_ENOUGH_REPLICAS_AFTER_APPEND = 20
    INVALID_REQUIRED_ACKS = 21
    CLUSTER_AUTHORIZATION_FAILED = 31
    INELIGIBLE_REPLICA = 107
    OUT_OF_ORDER_SEQUENCE_NUMBER = 45
    INVALID_PRODUCER_EPOCH = 47
    INVALID_TIMESTAMP = 32
    KAFKA_STORAGE_ERROR = 56
    FENCED_LEADER_EPOCH = 74
    UNKNOWN_LEADER_EPOCH = 75
    OFFSET_NOT_AVAILABLE = 78
    INVALID_RECORD = 87
    INVALID_UPDATE_VERSION = 95
    UNKNOWN_TOPIC_ID = 100
    INCONSISTENT_TOPIC_ID = 103
    NEW_LEADER_ELECTED = 108
    INVALID_REQUEST = 42
    POLICY_VIOLATION = 44


class BatchInfo(Protocol):
    """A record batch's header, as parsed by whoever holds the bytes."""

    @property
    def base_offset(self) -> int: ...
    @property
    def length(self) -> int: ...
    @property
    def leader_epoch(self) -> int: ...
    @property
    def last_offset_delta(self) -> int: ...
    @property
    def max_timestamp(self) -> int: ...
    @property
    def producer_id(self) -> int: ...
    @property
    def producer_epoch(self) -> int: ...
    @property
    def base_sequence(self) -> int: ...


class Append(NamedTuple):
    """Stamp the batch with these and write it."""

    base_offset: int
    leader_epoch: int


class Duplicate(NamedTuple):
    """The batch is in the log already; answer with its offsets once they are committed."""

    base_offset: int
    last_offset: int


class FollowerFetch(NamedTuple):
    """A follower's question for one partition."""

    broker_id: int
    broker_epoch: int
    leader_epoch: int | None
    offset: int
    last_fetched_epoch: int | None
    log_start: int
    acknowledged_ms: int | None = None
    """When the reply was made that this fetch acknowledges: what came before it on its way."""


class EndOffset(NamedTuple):
    """Where a term ends in a log (exclusive).  `epoch` may be older than the one asked for."""

    epoch: int
    end_offset: int
