"""A follower's rules: which batches it appends, where it truncates, when it starts over.

Called by `replica.Replica` and by the broker's fetcher. A log is truncated only where leader epochs
prove that it diverged, never to the high watermark (KIP-101, 279, 320, 595). `fetch_checks` is the
leader's half: it finds that a fetch comes from a diverged log. A compacted log may not be truncated
below `CompactedCopy.least_cut` (docs/protocol.md §10.4).
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum
from typing import NamedTuple

from plimsoll_core.errors import Code
from plimsoll_core.replica.replica_context import LogView
from plimsoll_core.replica.replica_values import BatchInfo, EndOffset


class FetchPosition(NamedTuple):
    """The leader epoch, offset and last epoch in a follower's fetch. A reply is used only if it
    answers the follower's present position."""

    leader_epoch: int
    fetch_offset: int
    last_fetched_epoch: int | None


class ErrorAction(Enum):
    """A follower's reaction to an error in the reply to its fetch."""

    STOP = "wait for newer metadata"
    BACK_OFF = "try again later"
    ASK_OFFSETS = "ask the leader where its log begins and ends"


def position(leader_epoch: int, log: LogView) -> FetchPosition:
    """Return the position of the follower's next fetch: its log end and the epoch of its last
    batch.

    An incomplete log states no epoch: in a recovery any log with a record then counts as more
    complete, and the leader has the follower start from an empty log.
    """
    end = log.log_end_offset
    last = None if log.incomplete else log.epochs.epoch_of_last(end)
    return FetchPosition(leader_epoch, end, last)


def appendable(batches: Iterable[BatchInfo], leader_epoch: int, log: LogView) -> int | None:
    """Return how many leading batches of a leader's reply may be appended, or None if the reply
    does not fit the log, so that none may be.

    A reply that was parked while its leader lost and regained the partition may carry batches of a
    leader epoch newer than the follower's: these and later ones are not counted, and fetched again
    when the follower knows that epoch (KAFKA-18723). A leader's log may start in the middle of a
    batch, because clients delete records and not batches: an empty log takes the batch that holds
    its start. Only a compacted topic may have gaps between batches.
    """
    expected = log.log_end_offset
    newest = log.epochs.latest or 0
    count = 0
    for batch in batches:
        if batch.leader_epoch > leader_epoch:
            break
        # A batch at another offset is not what its leader wrote, unless a cleaner made a hole.
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
    """Return True if the leader's log was compacted there: the batches of a reply, appended at
    `log_end_offset`, have a gap of offsets before or within them."""
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


class Reset(NamedTuple):
    """The place where a follower's log continues after OFFSET_OUT_OF_RANGE or an unresolved
    divergence. It is truncated to `offset` or, if `discard`, emptied and begun at `offset`."""

    offset: int
    discard: bool


def truncation_offset(log: LogView, leader_end: EndOffset, least: int | None = None) -> int | None:
    """Return the offset to truncate to after a diverging reply. It may take several rounds of fetch
    and truncation. Return None if the offset is below `least` (`CompactedCopy.least_cut`; else the
    log's start): the rest would not be a copy of the leader's log. Truncated below its own start
    the log would be empty, lack the leader's records before that, and look complete; a compacted
    one would lack the records that superseded the removed ones. After None the follower begins
    again at the leader's log start (`begin_again`), as after OFFSET_OUT_OF_RANGE."""
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
    """Return where the follower's log continues after OFFSET_OUT_OF_RANGE: truncated to
    `leader_end` (the leader's log end), or emptied and begun at `leader_start` (its log start).
    Return None if the follower's log end is valid after all, so that the fetch should be repeated.
    `least`: as in `truncation_offset`."""
    if leader_end < (log.log_start_offset if least is None else least):
        # Cut to the leader's end it would not hold what the leader has, and look complete.
        return begin_again(leader_start)
    if leader_end < log.log_end_offset:
        return Reset(leader_end, discard=False)
    if leader_start > log.log_end_offset:
        return begin_again(leader_start)
    if leader_start < log.log_end_offset and log.epochs.epoch_of_last(log.log_end_offset) is None:
        # It holds nothing, and it is unknown of which history.
        return begin_again(leader_start)
    return None


def begin_again(leader_start: int) -> Reset:
    """Return the restart of a follower with an empty log that begins at the leader's log start."""
    return Reset(leader_start, discard=True)


class CompactedCopy:
    """Keeps the lowest offset to which a replica may truncate a compacted log, and decides when it
    must copy the log anew.

    Every replica has one; it has an effect only if the topic is or was compacted. A cleaner removes
    a record because a later one has its key. If truncation removed that later record, another
    leader might not have either. `superseded_below`: the offset below which all those later records
    lie. `must_begin_again`: True if the leader changed before they were copied, so that the
    follower has to empty its log and copy it anew.
    """

    __slots__ = ("_log", "must_begin_again", "superseded_below")

    def __init__(self, log: LogView, high_watermark: int) -> None:
        self._log = log
        # Records that supersede the missing ones lie below this offset: no cleaner goes beyond the
        # high watermark, here or on the leader.
        self.superseded_below = high_watermark
        # True if the leader changed before those were copied: the new leader may not have them.
        self.must_begin_again = False

    @property
    def least_cut(self) -> int:
        """Return the lowest offset to which the log may be truncated. A follower that would have to
        truncate further begins again with an empty log."""
        start = self._log.log_start_offset
        return max(start, self.superseded_below) if self._log.holes else start

    def committed(self, high_watermark: int) -> None:
        """Raise `superseded_below` to a new high watermark. Records below it may have superseded
        records that this log lacks."""
        if high_watermark > self.superseded_below:
            self.superseded_below = high_watermark

    def new_term(self) -> None:
        """Record that there is a new leader. Set `must_begin_again` if the log has holes and ends
        before the records that superseded the missing ones, since the new leader may not have
        those."""
        behind = self.superseded_below > self._log.log_end_offset
        self.must_begin_again = self._log.holes and behind

    def ends_here(self) -> None:
        """Record that the log is whole as far as it reaches: it was truncated or emptied, or this
        replica leads with it."""
        self.superseded_below = min(self.superseded_below, self._log.log_end_offset)
        self.must_begin_again = False
