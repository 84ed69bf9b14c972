"""Traffic: counters of the data path since the broker's start.

`CleaningStats`: the results and the backlog of log compaction.
"""

from __future__ import annotations

from collections import Counter

from plimsoll_process.durations import Durations


class CleaningStats:
    """The results of log compaction since the broker's start, and its backlog, for the metrics. The
    byte counts, rounds, failures and time never decrease. The backlog is set at each look for due
    logs."""

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


class Traffic:
    """Counters of the data path since the broker's start, for the metrics: bytes and records of
    clients (`bytes_in`, `bytes_out`, `records_in`), bytes replicated from leaders and to followers,
    bytes copied under a rate limit (`moved_in`), and events. They never decrease."""

    def __init__(self) -> None:
        self.bytes_in = self.bytes_out = self.replicated_in = self.replicated_out = 0
        self.moved_in = self.unleased_refusals = self.room_again = self.records_in = 0
        self.truncations = self.truncated_records = self.isr_expands = 0
        # Time that loading the logs took, in this lifetime.
        self.load_s = 0.0
        self.cleaning = CleaningStats()
        # Partitions of a Produce or Fetch answered with an error, by API and code.
        self.errors: Counter[tuple[str, int]] = Counter()
        self.flushes = Durations()
