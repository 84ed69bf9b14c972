"""CleanedTransactions: which batches of a log belong to aborted transactions, and which markers are
not needed any more.

Called by the round for a log with transactions. Cleaning ends below the last stable offset, so each
transaction that it meets has ended, although its marker may lie behind the part that is cleaned.
Records of aborted transactions are removed. A marker goes a delete horizon after a round that found
no record of its transaction before it, as Kafka's `CleanedTransactionMetadata` has it: a follower
that has copied the records and is behind still gets the marker.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable
from operator import attrgetter
from pathlib import Path

from plimsoll_broker.storage.disk import Disk
from plimsoll_broker.storage.index import AbortedTransaction, decode_transactions
from plimsoll_broker.storage.segment import INDEX_SUFFIXES, file_name
from plimsoll_wire.batches import BatchHeader


class CleanedTransactions:
    """The aborted transactions of a log, from the index files of its segments `bases`, and the
    transactions that the round has met so far. The segment that is written to has to be among them:
    it may hold the marker of a transaction in an earlier one."""

    def __init__(self, disk: Disk, directory: Path, bases: Iterable[int]) -> None:
        self._by_segment = {
            base: decode_transactions(disk.read(directory / file_name(base, INDEX_SUFFIXES[-1])))
            for base in bases
        }
        self._aborted: dict[int, list[AbortedTransaction]] = {}
        for entries in self._by_segment.values():
            for each in entries:
                self._aborted.setdefault(each.producer_id, []).append(each)
        # The ids of producers with a record after their last marker so far.
        self._begun: set[int] = set()

    def is_aborted(self, header: BatchHeader) -> bool:
        """Return True if the batch holds records of an aborted transaction."""
        if header.is_control or not header.is_transactional:
            return False
        known, offset = self._aborted.get(header.producer_id, []), header.base_offset
        # A producer's transactions follow one another.
        at = bisect_left(known, offset, key=attrgetter("last_offset"))
        return at < len(known) and known[at].first_offset <= offset

    def met(self, header: BatchHeader) -> bool:
        """Take note of the next batch, in the log's order, as it was before this round. Return True
        if it is a marker without a record of its transaction before it."""
        if header.is_control:
            begun = header.producer_id in self._begun
            self._begun.discard(header.producer_id)
            return not begun
        if header.is_transactional and header.count:
            self._begun.add(header.producer_id)
        return False

    def left_in(self, bases: Iterable[int], end: int) -> list[AbortedTransaction]:
        """Return the transactions that the index of a cleaned segment still needs: those of the
        segments `bases` with a marker at or above the round's end. Of the others no record is
        left, and a reader that is told of one would leave out records behind its marker once that
        is gone."""
        found = (each for base in bases for each in self._by_segment.get(base, ()))
        return [each for each in found if each.last_offset >= end]
