"""Traffic: the data path's counters since the start."""

from __future__ import annotations

from collections import Counter

from plimsoll_broker.replication.cleaning_stats import CleaningStats
from plimsoll_process.durations import Durations


class Traffic:
    """Counters that only grow; the metrics read them."""

    __slots__ = (
        "bytes_in",
        "bytes_out",
        "cleaning",
        "errors",
        "flushes",
        "isr_expands",
        "load_s",
        "moved_in",
        "records_in",
        "replicated_in",
        "replicated_out",
        "room_again",
        "truncated_records",
        "truncations",
        "unleased_refusals",
    )

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
