"""The data path's counters since the start."""

from __future__ import annotations

from plimsoll_broker.replication.cleaning_stats import CleaningStats


class Traffic:
    """Only grows; the metrics read it."""

    __slots__ = (
        "bytes_in",
        "bytes_out",
        "cleaning",
        "isr_expands",
        "isr_shrinks",
        "moved_in",
        "replicated_in",
        "replicated_out",
        "room_again",
        "unleased_refusals",
    )

    def __init__(self) -> None:
        self.bytes_in = self.bytes_out = self.replicated_in = self.replicated_out = 0
        self.moved_in = self.unleased_refusals = self.room_again = 0
        self.cleaning = CleaningStats()
        self.isr_expands: dict[str, int] = {}
        self.isr_shrinks: dict[str, int] = {}
