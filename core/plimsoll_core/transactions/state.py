"""The durable state of the transactional ids of one partition of `__transaction_state`.

It equals a replay of that partition's log: `apply` is its only writer, called for each record that
a decision makes, with the offset that the record will have, and for each record that a load reads.
`apply` never refuses, since the log's content *is* the state. Decisions only read it.
"""

from __future__ import annotations

from sys import intern
from typing import NamedTuple, assert_never

from msgspec.structs import replace

from plimsoll_core.transactions.memory import ShardBytes, TransactionMemory
from plimsoll_core.transactions.recent_commits import RecentCommits
from plimsoll_core.transactions.records import (
    TransactionForgotten,
    TransactionRecord,
    TransactionStored,
)


class KnownId(NamedTuple):
    """A transactional id's state. `written_to`: one past its last record in the log."""

    stored: TransactionStored
    written_to: int


class TransactionsState:
    """All transactional ids of one partition of `__transaction_state`. `memory`: the broker's
    budget that they share; None for a budget of their own."""

    __slots__ = ("_gone", "_names", "end", "ids", "memory", "recent_commits")

    def __init__(self, memory: TransactionMemory | None = None) -> None:
        self.memory = ShardBytes(memory)
        # In the order in which they were first written.
        self.ids: dict[str, KnownId] = {}
        # One past the last record that was applied.
        self.end = 0
        # Ids that exist no more: one past each one's last record, until that is committed.
        self._gone: dict[str, int] = {}
        # The id that has a producer id now, or had it before its present one.
        self._names: dict[int, str] = {}
        self.recent_commits = RecentCommits()

    def find(self, transactional_id: str) -> TransactionStored | None:
        known = self.ids.get(transactional_id)
        return None if known is None else known.stored

    def name_of(self, producer_id: int) -> str | None:
        """Return the transactional id that has this producer id, or had it last; None if no id of
        this partition is known to."""
        return self._names.get(producer_id)

    def _renamed(self, before: TransactionStored | None, after: TransactionStored | None) -> None:
        """Record the producer ids of an id's new state."""
        former = () if before is None else before.producer_ids
        present = () if after is None else after.producer_ids
        if former == present:
            return
        for producer_id in former:
            self._names.pop(producer_id, None)
        if after is not None:
            self._names.update(dict.fromkeys(present, after.transactional_id))

    def written_to(self, transactional_id: str | None) -> int:
        """Return the end offset of the id's last record, or of all ids' if it is None; 0 for an id
        without records. Replies about an id wait until the high watermark reaches this offset."""
        if transactional_id is None:
            return self.end
        known = self.ids.get(transactional_id)
        return self._gone.get(transactional_id, 0) if known is None else known.written_to

    def committed(self, high_watermark: int) -> None:
        """Forget the end offsets of forgotten ids at or below the new high watermark, since replies
        about them need not wait any more."""
        if self._gone:
            self._gone = {name: end for name, end in self._gone.items() if end > high_watermark}


def apply(state: TransactionsState, record: TransactionRecord, offset: int) -> None:
    """Apply a record to the state. `offset`: its offset in the log."""
    name = record.transactional_id
    before = state.find(name)
    skip(state, offset)
    match record:
        case TransactionStored():
            # An id that has an owner keeps it: a record of Kafka's names none.
            owner = intern(record.owner or (before.owner if before is not None else ""))
            stored = record if owner is record.owner else replace(record, owner=owner)
            state.ids[name] = KnownId(stored, offset + 1)
            state._renamed(before, stored)
            state.recent_commits.applied(before, stored)
            state.memory.replace(before, stored)
            state._gone.pop(name, None)
        case TransactionForgotten():
            state.ids.pop(name, None)
            state._renamed(before, None)
            state.memory.replace(before, None)
            state._gone[name] = offset + 1
        case _:
            assert_never(record)


def skip(state: TransactionsState, offset: int) -> None:
    """Note that the log has a record at `offset`, also one of an unknown kind."""
    state.end = max(state.end, offset + 1)
