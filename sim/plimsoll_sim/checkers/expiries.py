"""Expiry of committed offsets: none goes before its time, nor while its group has members.

Fed by `GroupChecker` with every tombstone that it replays in a log that is led.  It compares the
times in the records, which are those of the brokers' wall clocks: in runs that draw a retention of
offsets no clock steps.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from plimsoll_core.cluster.model import PartitionKey
from plimsoll_core.groups.records import OffsetForgotten
from plimsoll_core.groups.state import GroupsState
from plimsoll_sim.checkers.cleaned_groups import LogPlaceOfRecord
from plimsoll_sim.engine.determinism import EPOCH_NS
from plimsoll_sim.oracle.committed import MetadataGhost
from plimsoll_sim.oracle.partition_ghost import Violation


class OffsetsKept(NamedTuple):
    """For how long brokers keep offsets that nobody commits again.  `drawn`: the run is about it,
    so the time of every tombstone is looked at."""

    ms: int
    drawn: bool


class ExpiryChecker:
    """`expired`: how many offsets did."""

    def __init__(self, ghost: MetadataGhost, now_us: Callable[[], int], kept: OffsetsKept) -> None:
        self._ghost = ghost
        self._now_us = now_us
        self._kept = kept
        # Tombstones that were looked at, where they stand.
        self._seen: dict[tuple[PartitionKey, LogPlaceOfRecord], None] = {}
        self.expired = 0

    def forgotten(
        self,
        key: PartitionKey,
        place: LogPlaceOfRecord,
        state: GroupsState,
        record: OffsetForgotten,
    ) -> None:
        """No client asked for this tombstone; `state`: of the log's records below it."""
        group = state.groups.get(record.group_id)
        if not self._kept.drawn or group is None or (key, place) in self._seen:
            return
        self._seen[key, place] = None
        committed = group.offsets.get(record.topic, {}).get(record.partition)
        if committed is None or committed.topic_id not in self._ghost.image.topics:
            return
        now_ms = (EPOCH_NS // 1_000 + self._now_us()) // 1_000
        told = f"{record.group_id}: {committed.offset} of {record.topic}-{record.partition}"
        stored = group.stored
        if stored is not None and stored.members:
            raise Violation("KeptLongEnough", f"{told} expires, and the group has members")
        since_ms = max(committed.commit_ms, -1 if stored is None else stored.state_ms)
        if now_ms - since_ms < self._kept.ms:
            raise Violation(
                "KeptLongEnough",
                f"{told} expires after {now_ms - since_ms} ms, not {self._kept.ms}",
            )
        self.expired += 1
