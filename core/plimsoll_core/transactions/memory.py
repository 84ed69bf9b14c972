"""The memory of transactional ids on a broker, and the principals to which it is charged.

A transactional id belongs to the principal that began it, for as long as it exists; its records
name the principal. `TransactionMemory` is the budget of all shards of a broker: a new id and each
further partition of a transaction are admitted before they are written, and the contents of a log
are only counted. Bytes are estimates from above, measured with CPython 3.11. Source:
docs/security.md, "What one principal may hold".
"""

from __future__ import annotations

from collections import Counter

from plimsoll_core.quotas.fair_pool import FairPool
from plimsoll_core.transactions.records import TransactionStored

ID_BYTES = 1_536
"""Bytes charged for a transactional id: its name, state, deadlines and markers."""
PARTITION_BYTES = 256
"""Bytes charged for each partition of a transaction: in the state, and among the markers."""
BYTES_ASSUMED = 2**25
"""The budget in bytes of a broker without a stated memory: 32 MiB."""


def charged_bytes(stored: TransactionStored) -> int:
    """Return the bytes charged for an id in this state."""
    return ID_BYTES + 4 * len(stored.transactional_id) + PARTITION_BYTES * len(stored.partitions)


class TransactionMemory:
    """Bounds the memory of all transactional ids that one broker coordinates. `budget`: in
    bytes."""

    __slots__ = ("pool",)

    def __init__(self, budget: int = BYTES_ASSUMED) -> None:
        self.pool = FairPool(budget)

    def admits(self, principal: str, size: int) -> bool:
        """Return True if the principal may hold `size` bytes more; nothing is reserved. Otherwise
        count a refusal and return False."""
        if size <= 0 or self.pool.admits(principal, size):
            return True
        self.pool.refused += 1
        return False


class ShardBytes:
    """The part of a broker's memory of transactional ids that one shard uses. `of_broker`: the
    memory of all shards; None for one of this shard alone."""

    __slots__ = ("_closed", "_held", "of_broker")

    def __init__(self, of_broker: TransactionMemory | None = None) -> None:
        self.of_broker = TransactionMemory() if of_broker is None else of_broker
        self._held: Counter[str] = Counter()
        self._closed = False

    def replace(self, before: TransactionStored | None, after: TransactionStored | None) -> None:
        """Charge an id's owner for its state `after`, and no more for the state `before`."""
        if self._closed:
            return
        if before is not None:
            self._give_back(before.owner, charged_bytes(before))
        if after is not None:
            size = charged_bytes(after)
            self._held[after.owner] += size
            self.of_broker.pool.take(after.owner, size)

    def close(self) -> None:
        """Release all memory that the shard holds. Later changes are ignored."""
        self._closed = True
        for principal, size in list(self._held.items()):
            self._give_back(principal, size)

    def _give_back(self, principal: str, size: int) -> None:
        self.of_broker.pool.give_back(principal, size)
        self._held[principal] -= size
        if not self._held[principal]:
            del self._held[principal]
