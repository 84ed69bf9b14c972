"""Expiry of committed offsets: none goes before its time, nor while its group has members.

Fed by `GroupChecker` with every record that it replays in a log that is led.  It goes by when it
saw a record first, and not by the times in the records, which are those of the brokers' wall
clocks.  A step that is too small for brokers to notice (`WallClock`) would let offsets go too
early: in runs that draw a retention of offsets no clock makes one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from plimsoll_core.cluster.model import PartitionKey
from plimsoll_core.groups.records import (
    GroupRecord,
    GroupStored,
    OffsetCommitted,
    OffsetForgotten,
)
from plimsoll_core.groups.state import GroupsState
from plimsoll_sim.checkers.cleaned_groups import LogPlaceOfRecord
from plimsoll_sim.oracle.committed import MetadataGhost
from plimsoll_sim.oracle.partition_ghost import Violation

_Said = tuple[str, tuple[str, int] | None, int]
"""A group with either a partition and its offset, or the number of its generation."""


class OffsetsKept(NamedTuple):
    """How long brokers keep offsets that are not committed again. `drawn`: the run tests expiry,
    so the time of every tombstone is checked. `turn_ms`: the longest time between a decision and
    the step after which its record is seen, which is the longest turn of a broker's loop."""

    ms: int
    drawn: bool
    turn_ms: int


class ExpiryChecker:
    """`expired`: the number of offsets that expired."""

    def __init__(self, ghost: MetadataGhost, now_us: Callable[[], int], kept: OffsetsKept) -> None:
        self._ghost = ghost
        self._now_us = now_us
        self._kept = kept
        # Records that were looked at, where they stand.
        self._seen: dict[tuple[PartitionKey, LogPlaceOfRecord], None] = {}
        # The time at which the last such record was first seen, in milliseconds since the run
        # began.
        self._said_ms: dict[tuple[PartitionKey, _Said], int] = {}
        self.expired = 0

    def saw(self, key: PartitionKey, place: LogPlaceOfRecord, record: GroupRecord) -> None:
        """Note any record but a tombstone that no client asked for."""
        if not self._kept.drawn or (key, place) in self._seen:
            return
        self._seen[key, place] = None
        match record:
            case OffsetCommitted():
                at = record.topic, record.partition
                self._said_ms[key, (record.group_id, at, record.offset)] = self._now_us() // 1_000
            case GroupStored():
                self._said_ms[key, (record.group_id, None, record.generation)] = (
                    self._now_us() // 1_000
                )

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
        told = f"{record.group_id}: {committed.offset} of {record.topic}-{record.partition}"
        stored = group.stored
        if stored is not None and stored.members:
            raise Violation("KeptLongEnough", f"{told} expires, and the group has members")
        at = record.topic, record.partition
        since_ms = self._said_ms.get((key, (record.group_id, at, committed.offset)), 0)
        if stored is not None:
            emptied = key, (record.group_id, None, stored.generation)
            since_ms = max(since_ms, self._said_ms.get(emptied, 0))
        kept_ms = self._now_us() // 1_000 - since_ms
        # A record is seen a moment after its timestamp.
        if kept_ms + self._kept.turn_ms < self._kept.ms:
            raise Violation(
                "KeptLongEnough", f"{told} expires after {kept_ms} ms, not {self._kept.ms}"
            )
        self.expired += 1
