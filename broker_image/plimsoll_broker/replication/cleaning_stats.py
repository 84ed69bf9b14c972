"""CleaningStats: the cleaner's results and backlog.

Written by `log_cleaner`, read by the metrics.
"""

from __future__ import annotations


class CleaningStats:
    """The first five only grow; the others are as of the cleaner's last look."""

    __slots__ = (
        "bytes_read",
        "bytes_written",
        "dirtiest",
        "due_bytes",
        "due_logs",
        "failures",
        "in_brokers_share",
        "rounds",
        "spent_ms",
        "uncleanable_logs",
    )

    def __init__(self) -> None:
        # Bytes of segments that were read, and of what was left of them.
        self.bytes_read = self.bytes_written = 0
        # Rounds that completed, rounds that failed, and the time that all of them took.
        self.rounds = self.failures = self.spent_ms = 0
        # Logs due for cleaning, their bytes that were never cleaned, and the greatest such share of
        # one log.
        self.due_logs = self.due_bytes = 0
        self.dirtiest = 0.0
        # Logs with a damaged segment.
        self.uncleanable_logs = 0
        # True if the work uses the broker's own processor time, where Linux divides it among
        # sessions.
        self.in_brokers_share = False
