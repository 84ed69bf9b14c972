"""The words that the replica's rules share: batches and logs as it sees them.

Core code takes any object with these attributes; the wire's parsed header is such an
object.  Nothing here decides anything.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol


class BatchInfo(Protocol):
    """A record batch's header, as the broker parsed it."""

    @property
    def base_offset(self) -> int: ...
    @property
    def length(self) -> int: ...
    @property
    def leader_epoch(self) -> int: ...
    @property
    def last_offset_delta(self) -> int: ...
    @property
    def count(self) -> int: ...
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
    """The time of the reply that this fetch acknowledges."""


class EndOffset(NamedTuple):
    """The end of a leader epoch in a log (exclusive).  `epoch` may be older than the requested
    one."""

    epoch: int
    end_offset: int
