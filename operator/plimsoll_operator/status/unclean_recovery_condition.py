"""The condition that says that acknowledged records may be lost: shown for a day.

An unclean election is over in a moment, and its Event is forgotten within the hour; what it may
have cost stays.  The condition outlives a change of controllers: the next one goes on with what it
finds shown.
"""

from __future__ import annotations

from collections.abc import Iterable

from plimsoll_core.cluster.model import ClusterImage, Recovery
from plimsoll_core.cluster.records import Record
from plimsoll_operator.api.conditions import condition, milliseconds, timestamp
from plimsoll_operator.api.meta import Condition
from plimsoll_operator.status.commit_effects import unclean_elections
from plimsoll_operator.status.occurrence import Occurrence
from plimsoll_operator.status.partition_health import margin

TYPE = "UncleanRecovery"
SHOWN_MS = 86_400_000


class UncleanRecovery:
    """`begin` with each term of a controller, `update` after each commit.  Wall-clock times."""

    def __init__(self) -> None:
        self._until_ms = 0
        self._partitions = 0
        self._text = ""

    def begin(self, image: ClusterImage, shown: Iterable[Condition], now_ms: int) -> None:
        """What was shown goes on; what was elected and never shown is known by its recovery."""
        if self._text:
            return
        for one in shown:
            if one.type == TYPE and one.status == "True":
                self._until_ms = _shown_since_ms(one, now_ms) + SHOWN_MS
                self._text = one.message
        unfinished = sum(
            p.recovery is Recovery.RECOVERING and margin(p) < 0 for p in image.partitions.values()
        )
        if unfinished and not self._text:
            self._until_ms = now_ms + SHOWN_MS
            self._text = (
                f"{unfinished} partitions got a leader that may lack acknowledged records before "
                "this controller took over; the causes stand in the metadata log."
            )

    def update(
        self, records: Iterable[Record], happened: Iterable[Occurrence], now_ms: int
    ) -> None:
        """`happened`: what `records` mean to a reader."""
        elected = unclean_elections(records)
        if not elected:
            return
        self._partitions += elected
        self._until_ms = now_ms + SHOWN_MS
        last = [one.message for one in happened if one.unclean][-1]
        self._text = (
            f"{self._partitions} partitions got a leader that may lack acknowledged records, the "
            f"last at {timestamp(now_ms)}. {last}"
        )

    def condition(self, now_ms: int) -> Condition:
        if now_ms < self._until_ms:
            return condition(TYPE, True, "RecordsMayBeLost", self._text)
        text = "No partition got a leader that may lack acknowledged records in the last day."
        return condition(TYPE, False, "NothingLost", text)


def _shown_since_ms(shown: Condition, now_ms: int) -> int:
    try:
        return milliseconds(shown.last_transition_time)
    except ValueError:
        return now_ms
