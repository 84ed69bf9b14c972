"""How far a compacted log may be cut: not below what superseded records that it does not hold.

Called by `replica.Replica`.  Compaction drops a record because of a later one of its key.  After an
unclean election the later one may be cut, while the new leader still has the earlier one: then the
replica discards its log and copies anew.  So does one that a change of leaders finds in the midst
of copying a cleaned log.  A clean election cuts nothing that was committed, so nothing is below
what is said here.  Source: docs/protocol.md §10.4; Kafka keeps the difference.
"""

from __future__ import annotations

from plimsoll_core.replica.replica_context import LogView


class CompactedCopy:
    """One replica's.  Kept for every log; it counts for those of topics that were compacted."""

    __slots__ = ("_log", "must_begin_again", "superseded_below")

    def __init__(self, log: LogView, high_watermark: int) -> None:
        self._log = log
        # What supersedes a record that is missing here lies below this: a cleaner here goes no
        # further than the high watermark, nor does the leader's.
        self.superseded_below = high_watermark
        # A term began while part of that was still to be copied: another leader may not have it.
        self.must_begin_again = False

    @property
    def least_cut(self) -> int:
        """The lowest offset that the log may be cut to; below it, it begins again."""
        start = self._log.log_start_offset
        return max(start, self.superseded_below) if self._log.holes else start

    def committed(self, high_watermark: int) -> None:
        """This replica, as leader or follower, knows so much for committed."""
        if high_watermark > self.superseded_below:
            self.superseded_below = high_watermark

    def new_term(self) -> None:
        """Of another leader."""
        behind = self.superseded_below > self._log.log_end_offset
        self.must_begin_again = self._log.holes and behind

    def cut(self) -> None:
        """The log was cut, or begins again."""
        self.superseded_below = min(self.superseded_below, self._log.log_end_offset)
        self.must_begin_again = False
