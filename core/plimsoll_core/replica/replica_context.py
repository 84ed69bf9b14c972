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
    """What a replica reads of its log.  The shell's driver alone writes records to it and cuts it.
    Where a leader epoch begins or is forgotten without a record, `Replica.apply` says: that, and
    nothing else, it writes itself, to `epochs`."""

    log_start_offset: int
    log_end_offset: int
    epochs: EpochCache
    producers: ProducerStates
    superseding_lost: bool
    """Whether what superseded records that a cleaner took of it is gone: nothing is left of those
    keys, and whoever else ends there has the records."""

    @property
    def incomplete(self) -> bool:
        """Whether it is not a copy of anything: `superseding_lost`, or files are gone that it began
        with."""

    @property
    def holes(self) -> bool:
        """Whether there may be nothing between two batches: the topic is or was compacted."""

    @property
    def countable_end(self) -> int:
        """How much of it may be acknowledged (`countable_end`); its end, unless a flush is due."""


class ReplicaContext:
    """What every replica of a broker sees in common; the broker's shell replaces its fields."""

    __slots__ = ("broker_id", "brokers", "lag_time_max_ms")

    def __init__(self, broker_id: BrokerId, lag_time_max_ms: int = 30_000) -> None:
        self.broker_id = broker_id
        self.brokers: Map[BrokerId, Broker] = Map()
        self.lag_time_max_ms = lag_time_max_ms

    def lifetime(self, broker_id: BrokerId, broker_epoch: int) -> Code:
        """Whether a fetch is of the lifetime in which that broker is registered (KIP-903)."""
        return check_lifetime(self.brokers.get(broker_id), broker_epoch)
