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
    """Return NONE if `broker_epoch` is the registered epoch of a broker's process.

    Return NOT_LEADER_OR_FOLLOWER if it is older: that process has been replaced. Return
    UNKNOWN_LEADER_EPOCH if it is newer, or the broker is not registered: its registration may be in
    metadata that has not arrived yet, so the caller tries again. `registered`: the broker in the
    image, None if it is not there.
    """
    if registered is None or broker_epoch > registered.broker_epoch:
        return Code.UNKNOWN_LEADER_EPOCH
    if broker_epoch < registered.broker_epoch:
        return Code.NOT_LEADER_OR_FOLLOWER
    return Code.NONE


class LogView(Protocol):
    """A replica's view of its log. Only the broker's `LogWriter` writes records to the log and
    truncates it. The replica itself writes only to `epochs`: `Replica.apply` records a leader epoch
    that begins or is forgotten without a record."""

    log_start_offset: int
    log_end_offset: int
    epochs: EpochCache
    producers: ProducerStates
    superseding_lost: bool
    """True if this log lost records for which a cleaner had removed older ones of the same key: it
    holds no record of those keys, while another log with the same end may hold them."""

    @property
    def incomplete(self) -> bool:
        """True if records are missing from the log: `superseding_lost` is True, or files that the
        log had are gone."""

    @property
    def holes(self) -> bool:
        """True if offsets between two batches may be unused: the topic is or was compacted."""

    @property
    def countable_end(self) -> int:
        """Return the offset below which records count for acknowledgements
        (`commit.countable_end`): the log end, unless a flush is due."""


class ReplicaContext:
    """The state that all replicas of a broker share; the broker replaces its fields. `brokers`: the
    registered brokers in the newest metadata. `lag_time_max_ms`: the lag limit,
    `replica.lag.time.max.ms`."""

    __slots__ = ("broker_id", "brokers", "lag_time_max_ms")

    def __init__(self, broker_id: BrokerId, lag_time_max_ms: int = 30_000) -> None:
        self.broker_id = broker_id
        self.brokers: Map[BrokerId, Broker] = Map()
        self.lag_time_max_ms = lag_time_max_ms

    def lifetime(self, broker_id: BrokerId, broker_epoch: int) -> Code:
        """Return NONE if a fetch comes from the registered process of the broker (KIP-903),
        otherwise the error of `check_lifetime`."""
        return check_lifetime(self.brokers.get(broker_id), broker_epoch)
