"""The condition UncleanRecovery of a LogCluster: acknowledged records may be lost, or are lost.
Shown for a day.

An unclean election takes a moment and its Event expires within the hour, but its damage stays. The
condition and its gauges outlive the controller that committed the election: the next controller
restores the condition that is shown, and finds later elections in the metadata log. The reason
distinguishes possible, certain and no loss.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from uuid import UUID

from plimsoll_core.cluster.model import ClusterImage, Recovery
from plimsoll_core.cluster.records import Record
from plimsoll_core.phrasing import counted, first_few
from plimsoll_operator.api.conditions import condition, milliseconds, timestamp
from plimsoll_operator.api.meta import Condition
from plimsoll_operator.metalog.codec import decode_records
from plimsoll_operator.metalog.interface import OpenedLog
from plimsoll_operator.status.cluster_counts import margin
from plimsoll_operator.status.commit_counters import (
    certain_losses,
    partitions_elected,
    unclean_elections,
)
from plimsoll_operator.status.events import Occurrence

TYPE = "UncleanRecovery"
SHOWN_MS = 86_400_000
MAY_LACK = "may lack acknowledged records"
LACKS = "lacks records that another replica held"
_SHOWN = re.compile(r"(\d+) partitions? got a leader that (?:may lack|lacks)")
_CERTAIN = re.compile(r"(\d+) of them certainly do")
_LAST = re.compile(r"the last at (\S+Z)")
_MARK = b'"recovery: '
"""Prefix of the cause of an unclean election, as encoded in a batch."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UncleanElections:
    """Unclean elections of the last day. `partitions` is their number, one per partition.

    `certain` counts those of them that elected a leader that lacks records which another replica
    had reported. `last_ms` is the wall-clock time of the last one in milliseconds since 1970, 0 if
    there is none.
    """

    partitions: int = 0
    certain: int = 0
    last_ms: int = 0


class UncleanRecovery:
    """Counts the unclean elections of one cluster, and renders the condition. Call `begin` with
    each term and `update` after each commit. Times are wall-clock times."""

    def __init__(self) -> None:
        self._until_ms = 0
        self._known = UncleanElections()
        self._text = ""

    def begin(
        self,
        image: ClusterImage,
        shown: Iterable[Condition],
        now_ms: int,
        log: OpenedLog | None = None,
    ) -> None:
        """Restore the elections from the condition in `shown`, which an earlier term wrote, and add
        the elections in `log` (as the term opened it) that were committed later. If the condition
        and the log have none, count one for each partition that is led, still recovering and under
        min ISR. One without a leader proves no recent election: its mark stays until its ISR next
        grows, so it may be of long ago, and a stop of all brokers (before a restore of the
        metadata, or a hibernation) alone put it under min ISR. Do nothing if this object knows
        elections of an earlier term already."""
        if self._text:
            return
        for one in shown:
            if one.type == TYPE and one.status == "True":
                self._restore(one, now_ms)
        if log is not None:
            self._read(log, image, now_ms)
        unfinished = [
            p
            for p in image.partitions.values()
            if p.leader is not None and p.recovery is Recovery.RECOVERING and margin(p) < 0
        ]
        if unfinished and not self._text:
            self._add(len(unfinished), 0, now_ms)
            names = first_few(sorted(_name(image, p.topic_id, p.index) for p in unfinished))
            self._tell(
                "An earlier controller elected these leaders, which may lack committed records: "
                f"partitions {names}. `kubectl plimsoll why TOPIC PARTITION` shows the causes."
            )

    def update(
        self, records: Iterable[Record], happened: Iterable[Occurrence], now_ms: int
    ) -> None:
        """Add the unclean elections in `records`; do nothing if there is none. `happened` are the
        Events that report these records; with such an election, at least one must be `unclean`."""
        records = tuple(records)
        elected = unclean_elections(records)
        if not elected:
            return
        self._add(elected, certain_losses(records), now_ms)
        last = [one.message for one in happened if one.unclean][-1]
        self._tell(last)

    def condition(self, now_ms: int) -> Condition:
        if now_ms < self._until_ms:
            reason = "RecordsLost" if self._known.certain else "RecordsMayBeLost"
            return condition(TYPE, True, reason, self._text)
        text = f"No partition got a leader that {MAY_LACK} in the last day."
        return condition(TYPE, False, "NothingLost", text)

    def elections(self, now_ms: int) -> UncleanElections:
        """Return the number and time of the unclean elections, for metrics; all 0 if the last one
        is more than a day old."""
        return self._known if now_ms < self._until_ms else UncleanElections()

    def _restore(self, shown: Condition, now_ms: int) -> None:
        """Add the elections that a shown condition reports. If its message has no count, assume one
        partition; if it has no time, use the time at which the condition changed."""
        since_ms = _milliseconds(shown.last_transition_time, now_ms)
        last, count = _LAST.search(shown.message), _SHOWN.match(shown.message)
        last_ms = since_ms if last is None else _milliseconds(last[1], since_ms)
        some = _CERTAIN.search(shown.message)
        partitions = 1 if count is None else int(count[1])
        certain = partitions if LACKS in shown.message else int(some[1]) if some else 0
        self._add(partitions, certain, last_ms)
        self._text = shown.message

    def _read(self, log: OpenedLog, image: ClusterImage, now_ms: int) -> None:
        """Add the elections in the log that were committed after the last one shown. Times are
        compared to the second, since the condition shows them so."""
        shown_ms, found, certain, last_ms, cause = self._known.last_ms, 0, 0, 0, ""
        names: dict[str, None] = {}
        for batch in log.batches:
            at_ms = batch.written_ms // 1_000 * 1_000
            if at_ms <= max(shown_ms, now_ms - SHOWN_MS) or _MARK not in batch.records_json:
                continue
            records = decode_records(batch)
            if elected := unclean_elections(records):
                found += elected
                certain += certain_losses(records)
                keys = partitions_elected(records)
                names |= dict.fromkeys(_name(image, one.topic_id, one.index) for one in keys)
                last_ms = batch.written_ms
                cause = next(one.cause for one in reversed(records) if unclean_elections((one,)))
        if found:
            self._add(found, certain, last_ms)
            self._tell(
                "An earlier controller elected these leaders: partitions "
                f"{first_few(list(names))}. The last election had this cause: {cause}; `kubectl "
                "plimsoll why TOPIC PARTITION` shows the others."
            )

    def _add(self, partitions: int, certain: int, at_ms: int) -> None:
        known = self._known
        self._known = UncleanElections(
            partitions=known.partitions + partitions,
            certain=known.certain + certain,
            last_ms=max(known.last_ms, at_ms),
        )
        self._until_ms = self._known.last_ms + SHOWN_MS

    def _tell(self, what: str) -> None:
        known = self._known
        loss = LACKS if known.certain == known.partitions else MAY_LACK
        some = (
            f" {known.certain} of them certainly do."
            if 0 < known.certain < known.partitions
            else ""
        )
        self._text = (
            f"{counted(known.partitions, 'partition')} got a leader that {loss}, the last at "
            f"{timestamp(known.last_ms)}.{some} {what}"
        )


def _name(image: ClusterImage, topic_id: UUID, index: int) -> str:
    topic = image.topics.get(topic_id)
    return f"{topic_id if topic is None else topic.name}-{index}"


def _milliseconds(stamp: str, otherwise: int) -> int:
    try:
        return milliseconds(stamp)
    except ValueError:
        return otherwise
