"""What the cleaner has done, and what waits for it.

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
        # Of segments that were looked through, and of what is left of them.
        self.bytes_read = self.bytes_written = 0
        # Rounds that came to their end, those that failed, and how long all of them took.
        self.rounds = self.failures = self.spent_ms = 0
        # Logs that are to be cleaned, what of them was never cleaned, and the greatest share of
        # one of them that was not.
        self.due_logs = self.due_bytes = 0
        self.dirtiest = 0.0
        # Logs of which a segment is damaged.
        self.uncleanable_logs = 0
        # Whether the processor time of the work is the broker's own, where Linux divides it among
        # sessions.
        self.in_brokers_share = False
