"""A leader's checks of a fetch: its leader epoch, its offset, and whether the logs have diverged.

Called by `replica.Replica` for each fetch of a follower or a consumer. The leader epoch is checked
first, also for ListOffsets and OffsetForLeaderEpoch. The checks read the log's offsets and leader
epochs. `follower.truncation_offset` is the follower's half. Source: KIP-320, docs/protocol.md §4.7.
"""

from __future__ import annotations

from plimsoll_core.errors import Code
from plimsoll_core.replica.replica_context import LogView
from plimsoll_core.replica.replica_values import EndOffset, FollowerFetch


def check_leader_epoch(leader_epoch: int | None, known: int) -> Code:
    """Return FENCED_LEADER_EPOCH or UNKNOWN_LEADER_EPOCH if a request's leader epoch is older or
    newer than `known`, the replica's own. Return NONE for the same epoch, and for a request without
    one."""
    if leader_epoch is not None:
        if leader_epoch < known:
            return Code.FENCED_LEADER_EPOCH
        if leader_epoch > known:
            return Code.UNKNOWN_LEADER_EPOCH
    return Code.NONE


UNKNOWN_END = -1
"""The end offset that tells a follower to begin again with an empty log, since no offset of its log
is known to agree; Kafka's UNDEFINED_EPOCH_OFFSET."""


def check_follower(log: LogView, fetch: FollowerFetch, *, complete: bool) -> Code | EndOffset:
    """Check the offset and the last epoch of a follower's fetch. Return NONE if the follower may
    read, the error, or the end offset of an epoch to which the follower has to truncate.

    A follower with a last epoch that ended at or before this log's start gets UNKNOWN_END and
    begins again. This log does not know the last record of that epoch, so the follower's log may
    hold records that were never committed. The follower loses nothing: it shares no record at or
    after the start, and the records below it are deleted.

    A follower that names no last epoch holds no record (a power cut may have taken them all). It
    gets OFFSET_OUT_OF_RANGE and begins at this log's start; otherwise the records before its offset
    would be missing in its log. The exception is a follower that is `complete`, that is in the ISR
    or the ELR: it has deleted committed records and was truncated to its start. It may be elected,
    and must keep that start.
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
    """Return NONE if a fetch may read from `offset`. Return OFFSET_OUT_OF_RANGE if the offset is
    outside this log. Return an `EndOffset` if the reader's log has diverged: the end, in this log,
    of the epoch that it read last, or of the newest epoch before that."""
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
