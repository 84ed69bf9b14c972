"""A replica's surroundings: its log, and the state that all replicas of a broker share."""

from __future__ import annotations

from typing import Protocol

from immutables import Map

from plimsoll_core.cluster.model import Broker
from plimsoll_core.errors import Code
from plimsoll_core.ids import BrokerId
from plimsoll_core.replica.leader_epochs import EpochCache
from plimsoll_core.replica.producer_states import ProducerStates


def check_lifetime(registered: Broker | None, broker_epoch: int) -> Code:
    """NOT_LEADER_OR_FOLLOWER: that lifetime is over.  UNKNOWN_LEADER_EPOCH: nothing is known of it
    here; it may begin in metadata that has not arrived yet, so the asker tries again.  An epoch
    that is not committed proves nothing, however high it is.

    `registered`: the broker as in the image.
    """
    if registered is None or broker_epoch > registered.broker_epoch:
        return Code.UNKNOWN_LEADER_EPOCH
    if broker_epoch < registered.broker_epoch:
        return Code.NOT_LEADER_OR_FOLLOWER
    return Code.NONE


class LogView(Protocol):
    """A replica's view of its log.  The broker's `LogWriter` alone writes records to it and
    truncates it.  The only thing that the replica writes itself is `epochs`: `Replica.apply`
    records a leader epoch that begins or is forgotten without a record."""

    log_start_offset: int
    log_end_offset: int
    epochs: EpochCache
    producers: ProducerStates
    superseding_lost: bool
    """True if records that superseded cleaned ones are lost: nothing is left of those keys, and
    another log that ends there has them."""

    @property
    def incomplete(self) -> bool:
        """True if it is not a copy of anything: `superseding_lost`, or files are gone that it began
        with."""

    @property
    def holes(self) -> bool:
        """True if there may be nothing between two batches: the topic is or was compacted."""

    @property
    def countable_end(self) -> int:
        """Return the end of the part that counts as written (`commit.countable_end`): the log's
        end, unless a flush is due."""


class ReplicaContext:
    """The state that all replicas of a broker share; the broker replaces its fields."""

    __slots__ = ("broker_id", "brokers", "lag_time_max_ms")

    def __init__(self, broker_id: BrokerId, lag_time_max_ms: int = 30_000) -> None:
        self.broker_id = broker_id
        self.brokers: Map[BrokerId, Broker] = Map()
        self.lag_time_max_ms = lag_time_max_ms

    def lifetime(self, broker_id: BrokerId, broker_epoch: int) -> Code:
        """Check that a fetch is of the registered broker epoch (KIP-903)."""
        return check_lifetime(self.brokers.get(broker_id), broker_epoch)
