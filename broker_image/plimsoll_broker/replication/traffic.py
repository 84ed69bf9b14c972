"""The data path's counters since the start."""

from __future__ import annotations

from collections import Counter

from plimsoll_broker.replication.cleaning_stats import CleaningStats
from plimsoll_process.durations import Durations


class Traffic:
    """Only grows; the metrics read it."""

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
        # How long loading the logs took, of this lifetime.
        self.load_s = 0.0
        self.cleaning = CleaningStats()
        # Partitions of a Produce or Fetch that were answered with an error: by API and code.
        self.errors: Counter[tuple[str, int]] = Counter()
        self.flushes = Durations()
