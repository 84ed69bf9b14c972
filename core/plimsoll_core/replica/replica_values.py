"""The values that pass between a replica's rules and its caller: batch headers, fetches, answers.

`BatchInfo` is a protocol: a parsed batch header has these attributes. This module decides nothing.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

TRANSACTIONAL = 0x10
"""Bit of a batch's attributes: it belongs to a transaction."""


class BatchInfo(Protocol):
    """The header fields of a record batch that the replica's rules read."""

    @property
    def base_offset(self) -> int: ...
    @property
    def length(self) -> int: ...
    @property
    def leader_epoch(self) -> int: ...
    @property
    def attributes(self) -> int: ...
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
    """Permission to write a batch: its base offset and the leader epoch to stamp on it."""

    base_offset: int
    leader_epoch: int


class Duplicate(NamedTuple):
    """The offsets of a batch that is already in the log. A retry of the batch is answered with them
    once they are committed."""

    base_offset: int
    last_offset: int


class FollowerFetch(NamedTuple):
    """A follower's fetch of one partition. `offset`: the follower's log end. `leader_epoch`: None
    if the fetch states none. `last_fetched_epoch`: the leader epoch of the follower's last batch;
    None if it holds no record, or an incomplete log. `log_start`: its log start offset."""

    broker_id: int
    broker_epoch: int
    leader_epoch: int | None
    offset: int
    last_fetched_epoch: int | None
    log_start: int
    acknowledged_ms: int | None = None
    """The time when the leader sent the reply that this fetch acknowledges, by the leader's clock
    in ms; None if the fetch acknowledges none."""
    had_all_ms: int | None = None
    """A time at which the leader's log had no record at or above `offset`, by the leader's clock in
    ms; None if none is known."""


class EndOffset(NamedTuple):
    """A leader epoch and the offset at which it ends in a log (exclusive). `epoch` may be older
    than the one that was asked for."""

    epoch: int
    end_offset: int
