"""Checks cleaned logs of groups: a replay gives the state that coordinators wrote (G10,
CompactedSame).

`GroupChecker` reports every record that it reads in a leader's log, before a cleaner can remove it.
The replica checker calls `check` for every log of which a cleaner replaced segments.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from plimsoll_broker.replication.hosted_partitions import Hosted
from plimsoll_broker.storage.log import Log
from plimsoll_core.cluster.model import PartitionKey
from plimsoll_core.cluster.topic_names import GROUP_OFFSETS
from plimsoll_core.groups.records import GroupRecord, TransactionMarked
from plimsoll_core.groups.state import GroupsState, apply, mark
from plimsoll_sim.oracle.partition_ghost import Copy, PartitionGhost, Violation
from plimsoll_wire.batches import HEADER_SIZE, iter_headers
from plimsoll_wire.coordinator_records import decode_group_record, decode_marker, in_batch
from plimsoll_wire.record_sets import iter_records
from plimsoll_wire.versioned_fields import UnknownKeyedRecord


class LogPlaceOfRecord(NamedTuple):
    """The offset of a record in a log, and the leader epoch of its batch."""

    offset: int
    epoch: int


GroupEntry = GroupRecord | TransactionMarked
"""What a log of groups holds: their records, and the end markers of transactions."""


def replay(state: GroupsState, entry: GroupEntry, offset: int) -> list[str]:
    """Apply a record or a marker at its offset. Return the groups that it is about."""
    if isinstance(entry, TransactionMarked):
        return list(dict.fromkeys(one.group_id for one in mark(state, entry, offset)))
    apply(state, entry, offset)
    return [entry.group_id]


def group_records(log: Log, start: int, end: int) -> Iterator[tuple[LogPlaceOfRecord, GroupEntry]]:
    """Yield the records in [start, end) that this release knows, and the markers, in log order."""
    offset = start
    while offset < end:
        data = bytes(log.read(offset, 2**30, end))
        at = 0
        for header in iter_headers(data):
            body = data[at + HEADER_SIZE : at + header.length]
            at += header.length
            marker = decode_marker(header, body) if header.is_control else None
            if marker is not None and header.base_offset >= start:
                yield LogPlaceOfRecord(header.base_offset, header.leader_epoch), marker
            for place, key, value in () if header.is_control else iter_records(header, body):
                record = decode_group_record(key, value)
                if place >= start and not isinstance(record, UnknownKeyedRecord):
                    yield LogPlaceOfRecord(place, header.leader_epoch), in_batch(header, record)
            offset = header.next_offset
        if not data:
            return


class UncleanedRecords:
    """The coordinators' records as they were written, including those that a cleaner has removed
    since."""

    def __init__(self) -> None:
        self._records: dict[PartitionKey, dict[LogPlaceOfRecord, GroupEntry]] = {}

    def saw(self, key: PartitionKey, place: LogPlaceOfRecord, record: GroupEntry) -> None:
        """Store one record of a leader's log. Called for each record as soon as it is written."""
        known = self._records.setdefault(key, {}).setdefault(place, record)
        if known != record:
            raise Violation("CompactedSame", f"{key}: {place} is {record}, written was {known}")

    def check(self, ghost: PartitionGhost, copy: Copy, hosted: Hosted) -> None:
        """Check G10: each group's state in the log is the same as if no record had been cleaned,
        unless a partially copied log was elected uncleanly (10.4)."""
        if hosted.name != GROUP_OFFSETS or not copy.is_cleaned or ghost.unclean_epoch >= 0:
            return
        log, written = hosted.log, self._records.get(ghost.key, {})
        held = dict(group_records(log, log.log_start_offset, log.log_end_offset))
        cleaned, whole = GroupsState(), GroupsState()
        for place, record in held.items():
            replay(cleaned, record, place.offset)
        for batch in copy.batches:
            for offset in range(batch.base, batch.last + 1):
                place = LogPlaceOfRecord(offset, batch.epoch)
                told = written.get(place) or held.get(place)
                if told is not None:
                    replay(whole, told, offset)
        for group_id in dict.fromkeys((*whole.groups, *cleaned.groups)):
            has, had = cleaned.groups.get(group_id), whole.groups.get(group_id)
            if has is not had and (has is None or not has.holds_as(had)):
                raise Violation(
                    "CompactedSame",
                    f"{hosted!r}: cleaned, it says of {group_id} {shown(has)}, not {shown(had)}",
                )


def shown(group: object) -> str:
    """Format a group's state for an error message."""
    if group is None:
        return "nothing"
    return " ".join(str(getattr(group, name, "")) for name in ("offsets", "stored", "pending"))
