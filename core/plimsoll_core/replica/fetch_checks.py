"""A leader's checks of a fetch: its leader epoch, its offset, and whether the logs diverged.

Called by `replica.Replica` for each fetch of a follower or a consumer; the leader epoch is checked
first, also for ListOffsets and OffsetForLeaderEpoch.  It reads the log's offsets and leader epochs.
`follower.truncation_offset` is the follower's half.  Source: KIP-320, docs/protocol.md §4.7.
"""

from __future__ import annotations

from plimsoll_core.errors import Code
from plimsoll_core.replica.replica_context import LogView
from plimsoll_core.replica.replica_values import EndOffset, FollowerFetch


def check_leader_epoch(leader_epoch: int | None, known: int) -> Code:
    """Return the error of a wrong leader epoch, which is checked before anything else. A request
    without an epoch passes."""
    if leader_epoch is not None:
        if leader_epoch < known:
            return Code.FENCED_LEADER_EPOCH
        if leader_epoch > known:
            return Code.UNKNOWN_LEADER_EPOCH
    return Code.NONE


UNKNOWN_END = -1
"""Kafka's UNDEFINED_EPOCH_OFFSET: a follower's log ends nowhere below it, so it begins again."""


def check_follower(log: LogView, fetch: FollowerFetch, *, complete: bool) -> Code | EndOffset:
    """Check a follower's position, beyond `check_position`.

    A follower with a last epoch that ended before everything here begins again.  This log knows
    that the epoch ended at or before its start, but not with which record: a log that ends there
    may hold what was never committed.  Nothing at or after the start can be the same, and what is
    below it is deleted, so the follower loses nothing.

    A follower that names no last epoch holds no record (a power cut may have taken them all), and
    agrees with any log: it begins where this one does, or what lies before would be missing there.
    The exception is a `complete` follower, in the ISR or the ELR: it deleted committed records, and
    was truncated to its start; it may be elected, and must keep that start.
    """
    offset, last_fetched_epoch = fetch.offset, fetch.last_fetched_epoch
    if last_fetched_epoch is None and offset > log.log_start_offset and not complete:
        return Code.OFFSET_OUT_OF_RANGE
    if last_fetched_epoch is not None and _ended_before(log, last_fetched_epoch):
        return EndOffset(last_fetched_epoch, UNKNOWN_END)
    return check_position(log, offset, last_fetched_epoch)


def _ended_before(log: LogView, epoch: int) -> bool:
    oldest = log.epochs.oldest
    return log.log_start_offset > 0 and oldest is not None and epoch < oldest


def check_position(log: LogView, offset: int, last_fetched_epoch: int | None) -> Code | EndOffset:
    """NONE: it may be read from `offset`.  OFFSET_OUT_OF_RANGE: the log is elsewhere.  An
    `EndOffset`: of the epoch that the asker read last, where this log ends it."""
    end = log.log_end_offset
    if offset < log.log_start_offset:
        return Code.OFFSET_OUT_OF_RANGE
    if last_fetched_epoch is not None and last_fetched_epoch != log.epochs.latest:
        known = log.epochs.end_offset_for(last_fetched_epoch, end)
        if known is None:
            return Code.OFFSET_OUT_OF_RANGE
        if known[0] < last_fetched_epoch or known[1] < offset:
            return EndOffset(*known)
    elif last_fetched_epoch is not None and offset > end:
        return EndOffset(last_fetched_epoch, end)
    return Code.OFFSET_OUT_OF_RANGE if offset > end else Code.NONE
