"""The offset at which a follower truncates its log, and where it begins again.

Called by `replica.Replica` and by the broker's fetcher.  A log is cut only where leader epochs
prove that it diverged - never to the high watermark (KIP-101, 279, 320, 595).  `divergence` is the
leader's half: it finds that a fetch asks from a diverged log.
"""

from __future__ import annotations

from typing import NamedTuple

from plimsoll_core.replica.replica_context import LogView
from plimsoll_core.replica.replica_values import EndOffset


class Reset(NamedTuple):
    """How an out-of-range follower starts again: cut there, or discard all and start there."""

    offset: int
    discard: bool


def truncation_offset(log: LogView, leader_end: EndOffset, least: int | None = None) -> int | None:
    """Where to cut after a diverging reply.  Several rounds may be needed, each with less log.

    None: below `least` (`CompactedCopy.least_cut`; else the log's start) what is left would not be
    what the leader has.  Cut to below its own start the log would be empty, hold nothing of what
    the leader has before that, and look complete; a compacted one would lack what was superseded by
    what is cut.  It begins again where the leader's does (`begin_again`), as after
    OFFSET_OUT_OF_RANGE.
    """
    offset = _agreed_end(log, leader_end)
    return None if offset < (log.log_start_offset if least is None else least) else offset


def _agreed_end(log: LogView, leader_end: EndOffset) -> int:
    end = log.log_end_offset
    mine = log.epochs.end_offset_for(leader_end.epoch, end)
    if mine is None:
        return min(leader_end.end_offset, end)
    if mine[0] == leader_end.epoch:
        return min(mine[1], leader_end.end_offset, end)
    # The leader's term is unknown here: what is here after the older term cannot be the leader's.
    return min(mine[1], end)


def reset(
    log: LogView, leader_start: int, leader_end: int, least: int | None = None
) -> Reset | None:
    """After OFFSET_OUT_OF_RANGE: None means that the offset is fine after all; try it again."""
    if leader_end < (log.log_start_offset if least is None else least):
        # Cut to the leader's end it would not hold what the leader has, and look complete.
        return begin_again(leader_start)
    if leader_end < log.log_end_offset:
        return Reset(leader_end, discard=False)
    if leader_start > log.log_end_offset:
        return begin_again(leader_start)
    if leader_start < log.log_end_offset and log.epochs.epoch_of_last(log.log_end_offset) is None:
        # It holds nothing, and nobody knows of which history that is.
        return begin_again(leader_start)
    return None


def begin_again(leader_start: int) -> Reset:
    """With nothing, where the leader's log begins."""
    return Reset(leader_start, discard=True)
