"""The records of `__transaction_state` as values: all of transactional ids that outlives a broker.

`plimsoll_wire.transaction_records` encodes them in Kafka's own bytes, `transactions.state.apply`
applies them. Rules make them; they never change. Times are the wall clock's, in milliseconds since
1970. Source: KIP-98; Kafka's `TransactionLogValue`.
"""

from __future__ import annotations

from enum import IntEnum

import msgspec

from plimsoll_core.ids import ProducerLife, TopicPartition


class Status(IntEnum):
    """The state of a transactional id, with Kafka's numbers. Dead and PrepareEpochFence stand in
    records of no release; this one reads and never writes them."""

    EMPTY = 0
    ONGOING = 1
    PREPARE_COMMIT = 2
    PREPARE_ABORT = 3
    COMPLETE_COMMIT = 4
    COMPLETE_ABORT = 5
    DEAD = 6
    PREPARE_EPOCH_FENCE = 7

    @property
    def kafka_name(self) -> str:
        """The state's name in Kafka's tools, such as PrepareCommit."""
        return "".join(word.capitalize() for word in self.name.split("_"))

    @property
    def is_ending(self) -> bool:
        """True if the transaction's end is decided and its markers are being written."""
        return self in (Status.PREPARE_COMMIT, Status.PREPARE_ABORT)

    @property
    def is_idle(self) -> bool:
        """True if the id has no transaction."""
        return self in (Status.EMPTY, Status.COMPLETE_COMMIT, Status.COMPLETE_ABORT, Status.DEAD)


class TransactionStored(msgspec.Struct, frozen=True, kw_only=True):
    """A transactional id, with its producer and its transaction as of one change."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    last_producer_epoch: int = -1
    """The epoch before the last one that a producer asked for itself; -1 if there is none. Kafka
    forgets it at a failover."""
    previous_producer_id: int = -1
    timeout_ms: int
    status: Status
    partitions: tuple[TopicPartition, ...] = ()
    """The transaction's partitions in order of their names; empty without a transaction."""
    update_ms: int
    start_ms: int = -1
    """The time when the transaction began; -1 without a transaction."""
    owner: str = ""
    """The principal to which the id is charged; empty in a record of Kafka's."""

    @property
    def producer(self) -> ProducerLife:
        return ProducerLife(self.producer_id, self.producer_epoch)

    @property
    def producer_ids(self) -> tuple[int, ...]:
        """The present producer id, and the one before it if that was used up."""
        own, before = self.producer_id, self.previous_producer_id
        return (own,) if before in (-1, own) else (own, before)

    @property
    def commits(self) -> bool:
        return self.status in (Status.PREPARE_COMMIT, Status.COMPLETE_COMMIT)


class TransactionForgotten(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The tombstone of a transactional id: it was not used for long."""

    transactional_id: str


TransactionRecord = TransactionStored | TransactionForgotten
