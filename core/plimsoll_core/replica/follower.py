"""A follower's handling of its leader's replies: which batches it appends, and when it waits.

Called by `replica.Replica` and by the broker's fetcher.  `truncation` says where it cuts its log.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum
from typing import NamedTuple

from plimsoll_core.errors import Code
from plimsoll_core.replica.replica_context import LogView
from plimsoll_core.replica.replica_values import BatchInfo


class FetchPosition(NamedTuple):
    """What a follower asks for, and by what it knows a reply for its own."""

    leader_epoch: int
    fetch_offset: int
    last_fetched_epoch: int | None


class ErrorAction(Enum):
    """What a refused fetch makes a follower do."""

    STOP = "wait for newer metadata"
    BACK_OFF = "try again later"
    ASK_OFFSETS = "ask the leader where its log begins and ends"


def position(leader_epoch: int, log: LogView) -> FetchPosition:
    """A log that is not complete names no last record: in a recovery any log that holds a record is
    more complete, and no leader goes on with it."""
    end = log.log_end_offset
    last = None if log.incomplete else log.epochs.epoch_of_last(end)
    return FetchPosition(leader_epoch, end, last)


def appendable(batches: Iterable[BatchInfo], leader_epoch: int, log: LogView) -> int | None:
    """How many leading batches may be appended; None when the reply does not fit the log.

    A reply that was parked while its leader lost and regained the partition may carry batches of
    a term newer than the follower's: those wait until the follower knows that term (KAFKA-18723).
    A leader's log may start in the middle of a batch, for clients delete records and not batches:
    an empty log takes the batch that holds its start.  Only of a topic that is or was compacted may
    there be nothing between two batches.
    """
    expected = log.log_end_offset
    newest = log.epochs.latest or 0
    count = 0
    for batch in batches:
        if batch.leader_epoch > leader_epoch:
            break
        # What begins elsewhere is not what its leader wrote there, unless a cleaner made a hole.
        fits = batch.base_offset == expected or (log.holes and batch.base_offset > expected)
        if not count and log.log_start_offset == expected:
            fits = (
                fits or batch.base_offset <= expected <= batch.base_offset + batch.last_offset_delta
            )
        if not fits or batch.leader_epoch < newest or batch.last_offset_delta < 0:
            return None
        newest = batch.leader_epoch
        expected = batch.base_offset + batch.last_offset_delta + 1
        count += 1
    return count


def shows_compaction(batches: Iterable[BatchInfo], log_end_offset: int) -> bool:
    """Whether something is missing from what would be appended to a log that ends there."""
    for batch in batches:
        if batch.base_offset > log_end_offset or batch.count <= batch.last_offset_delta:
            return True
        log_end_offset = batch.base_offset + batch.last_offset_delta + 1
    return False


def on_error(code: int) -> ErrorAction:
    if code == Code.FENCED_LEADER_EPOCH:
        return ErrorAction.STOP
    if code == Code.OFFSET_OUT_OF_RANGE:
        return ErrorAction.ASK_OFFSETS
    return ErrorAction.BACK_OFF
