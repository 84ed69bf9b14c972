"""RecentCommits: which partitions were part of a committed transaction last.

A record of a complete transaction names no partitions, as Kafka's. If a log has lost a marker in an
unclean election, its leader asks which marker it was (`suspects`). A transaction that is not known
here to be committed is then aborted. Made by `state.apply` alone, from the log's records; those
that a cleaner has removed are missing. Pure. Source: docs/protocol.md §4.14.
"""

from __future__ import annotations

from plimsoll_core.ids import ProducerLife, TopicPartition
from plimsoll_core.transactions.records import TransactionStored

KEPT_MAX = 1_000
"""The most partitions that one shard remembers, of all of its transactional ids."""


class RecentCommits:
    """The partitions in which a producer's last transaction was committed; the least recent ones
    are forgotten."""

    __slots__ = ("_epochs",)

    def __init__(self) -> None:
        # By producer id and partition: the epoch of the committed transaction. Oldest first.
        self._epochs: dict[tuple[int, TopicPartition], int] = {}

    def applied(self, before: TransactionStored | None, after: TransactionStored) -> None:
        """Record the change of a transactional id; only the completion of a transaction counts."""
        if before is None or not before.status.is_ending or after.status.is_ending:
            return
        for partition in before.partitions[-KEPT_MAX:]:
            key = before.producer_id, partition
            self._epochs.pop(key, None)
            if before.commits:
                self._epochs[key] = before.producer_epoch
        for key in list(self._epochs)[: max(len(self._epochs) - KEPT_MAX, 0)]:
            del self._epochs[key]

    def has(self, producer: ProducerLife, partition: TopicPartition) -> bool:
        """Return True if the last transaction of this producer id in the partition is known to have
        been committed in this epoch."""
        return self._epochs.get((producer.producer_id, partition)) == producer.epoch
