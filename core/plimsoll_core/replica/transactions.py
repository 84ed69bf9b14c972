"""Decides up to where a log's transactions are decided: the last stable offset (LSO).

`Transactions` belongs to one log's `producer_states.ProducerStates`, which tells it of each
transactional batch and each end marker in the log's order. `replica.Replica` asks for the LSO. A
transaction is *open* from its first record to its marker. It is *decided* once its marker is
committed: before, another leader may lack the marker. Readers of committed records
(isolation level 1) read up to the first record of a transaction that is not decided. Pure: no
bytes, no clock. Source: KIP-98; Kafka's `ProducerStateManager`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import NamedTuple


class EndedTransaction(NamedTuple):
    """A transaction and its end marker. `first_offset`: its first record; `last_offset`: the
    marker. `stable_offset`: the first offset that belongs to another open transaction at that
    place, or the offset behind the marker; Kafka stores it with an aborted transaction."""

    producer_id: int
    first_offset: int
    last_offset: int
    stable_offset: int


class Transactions:
    """The transactions of one log that are not decided. `open`: by producer id the offset of the
    first record, in order of these offsets. `ended`: those with a marker in the log that may not be
    committed, in order of the markers. `decided_end`: markers below this offset are known to be
    committed."""

    __slots__ = ("decided_end", "ended", "open")

    def __init__(self) -> None:
        self.decided_end = 0
        self.open: dict[int, int] = {}
        self.ended: deque[EndedTransaction] = deque()

    def __bool__(self) -> bool:
        return bool(self.open or self.ended)

    def begin(self, producer_id: int, first_offset: int) -> None:
        """Record a transactional batch; it opens a transaction unless the producer has one."""
        self.open.setdefault(producer_id, first_offset)

    def end(self, producer_id: int, marker_offset: int) -> EndedTransaction | None:
        """Record a marker, and return the transaction that it ends; None if none is open."""
        first = self.open.pop(producer_id, None)
        if first is None:
            return None
        stable = next(iter(self.open.values()), marker_offset + 1)
        ended = EndedTransaction(producer_id, first, marker_offset, stable)
        if marker_offset >= self.decided_end:
            self.ended.append(ended)
        return ended

    def committed(self, high_watermark: int) -> None:
        """Forget the ended transactions with a committed marker: they are decided."""
        self.decided_end = max(self.decided_end, high_watermark)
        while self.ended and self.ended[0].last_offset < high_watermark:
            self.ended.popleft()

    def cut(self, log_end: int) -> None:
        """Record that the log ends here: a marker that is written behind is not committed yet."""
        self.decided_end = min(self.decided_end, log_end)

    def first_undecided(self, high_watermark: int) -> int | None:
        """Return the first offset of all transactions that are open, or have a marker at or above
        the high watermark. Return None if there is none."""
        first = next(iter(self.open.values()), None)
        for each in self.ended:
            if each.last_offset >= high_watermark and (first is None or each.first_offset < first):
                first = each.first_offset
        return first

    def restore(self, opened: Iterable[tuple[int, int]], ended: Iterable[EndedTransaction]) -> None:
        """Replace all transactions. `opened`: producer ids and first offsets, in any order."""
        self.open = dict(sorted(opened, key=lambda each: each[1]))
        undecided = (each for each in ended if each.last_offset >= self.decided_end)
        self.ended = deque(sorted(undecided, key=lambda each: each.last_offset))

    def clear(self) -> None:
        self.open.clear()
        self.ended.clear()
        self.decided_end = 0


def last_stable_offset(high_watermark: int, log_start: int, transactions: Transactions) -> int:
    """Return the end of the records that a reader of committed records may read: the high
    watermark, or the first record of an undecided transaction. If deletion has removed that record,
    the log start: the transaction's other records are not decided either."""
    first = transactions.first_undecided(high_watermark)
    return high_watermark if first is None else min(high_watermark, max(first, log_start))
