"""What a follower does with its leader's replies: where to cut, what to append, when to wait.

Called by `replica.Replica` and by the broker's fetcher.  A log is cut only where leader epochs
prove that it diverged - never to the high watermark (KIP-101, 279, 320, 595).
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum
from typing import NamedTuple

from plimsoll_core.errors import Code
from plimsoll_core.replica.context import LogView
from plimsoll_core.replica.values import BatchInfo, EndOffset


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


class Reset(NamedTuple):
    """How an out-of-range follower starts again: cut there, or discard all and start there."""

    offset: int
    discard: bool


def position(leader_epoch: int, log: LogView) -> FetchPosition:
    end = log.log_end_offset
    return FetchPosition(leader_epoch, end, log.epochs.epoch_of_last(end))


def truncation(log: LogView, leader_end: EndOffset) -> int | None:
    """Where to cut after a diverging reply.  Several rounds may be needed, each with less log.

    None: nothing of what is here is the leader's.  Cut to below its own start the log would be
    empty, hold nothing of what the leader has before that, and look complete: it begins again
    where the leader's does (`begin_again`), as after OFFSET_OUT_OF_RANGE.
    """
    offset = _agreed_end(log, leader_end)
    return None if offset < log.log_start_offset else offset


def _agreed_end(log: LogView, leader_end: EndOffset) -> int:
    end = log.log_end_offset
    mine = log.epochs.end_offset_for(leader_end.epoch, end)
    if mine is None:
        return min(leader_end.end_offset, end)
    if mine[0] == leader_end.epoch:
        return min(mine[1], leader_end.end_offset, end)
    # The leader's term is unknown here: what is here after the older term cannot be the leader's.
    return min(mine[1], end)


def appendable(batches: Iterable[BatchInfo], leader_epoch: int, log: LogView) -> int | None:
    """How many leading batches may be appended; None when the reply does not fit the log.

    A reply that was parked while its leader lost and regained the partition may carry batches of
    a term newer than the follower's: those wait until the follower knows that term (KAFKA-18723).
    A leader's log may start in the middle of a batch, for clients delete records and not batches:
    an empty log takes the batch that holds its start.
    """
    expected = log.log_end_offset
    newest = log.epochs.latest or 0
    count = 0
    for batch in batches:
        if batch.leader_epoch > leader_epoch:
            break
        # A log has no holes: what begins elsewhere is not what its leader wrote there.
        fits = batch.base_offset == expected
        if not count and log.log_start_offset == expected:
            fits = batch.base_offset <= expected <= batch.base_offset + batch.last_offset_delta
        if not fits or batch.leader_epoch < newest or batch.last_offset_delta < 0:
            return None
        newest = batch.leader_epoch
        expected = batch.base_offset + batch.last_offset_delta + 1
        count += 1
    return count


def on_error(code: int) -> ErrorAction:
    if code == Code.FENCED_LEADER_EPOCH:
        return ErrorAction.STOP
    if code == Code.OFFSET_OUT_OF_RANGE:
        return ErrorAction.ASK_OFFSETS
    return ErrorAction.BACK_OFF


def reset(log: LogView, leader_start: int, leader_end: int) -> Reset | None:
    """After OFFSET_OUT_OF_RANGE: None means that the offset is fine after all; try it again."""
    if leader_end < log.log_start_offset:
        # Cut to the leader's end it would hold nothing of what the leader has, and look complete.
        return begin_again(leader_start)
    if leader_end < log.log_end_offset:
        return Reset(leader_end, discard=False)
    if leader_start > log.log_end_offset:
        return begin_again(leader_start)
    return None


def begin_again(leader_start: int) -> Reset:
    """With nothing, where the leader's log begins."""
    return Reset(leader_start, discard=True)
