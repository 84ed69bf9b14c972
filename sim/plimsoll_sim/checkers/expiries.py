"""Checks the expiry of committed offsets: none is removed before its time, nor while its group has
members.

`GroupChecker` passes every record that it replays in a leader's log. This module uses the time at
which it first saw a record, not the times in the records, which come from the brokers' wall clocks.
A step of a clock that is too small for brokers to notice (`WallClock`) would remove offsets too
early; in runs that test the retention of offsets, clocks do not make such steps.
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
"""A group, with either a partition and its committed offset, or (None and) the number of its
generation."""


class OffsetsKept(NamedTuple):
    """How long brokers keep offsets that are not committed again. `drawn`: True if the run tests
    expiry, so that the time of every tombstone is checked. `turn_ms`: the longest time between a
    decision and the step after which its record is seen, which is the longest turn of a broker's
    event loop."""

    ms: int
    drawn: bool
    turn_ms: int


class ExpiryChecker:
    """Checks the tombstones that no client requested. `expired`: number of offsets that have
    expired."""

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
        """Record when a stored offset or generation was first seen. Not called for tombstones that
        no client requested."""
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
        """Check that an offset may expire now: this tombstone for it was requested by no client.
        `state`: the groups as of the log's records below it."""
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
