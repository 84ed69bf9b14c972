"""What the simulator makes of cleaned logs of groups: names of batches, and the state they give."""

from types import SimpleNamespace
from typing import Any, cast
from uuid import UUID

import pytest

from plimsoll_broker.replication.hosted_partitions import Hosted
from plimsoll_core.cluster.model import PartitionKey
from plimsoll_core.cluster.topic_names import GROUP_OFFSETS
from plimsoll_core.groups.records import GroupRecord, OffsetCommitted, OffsetForgotten
from plimsoll_core.ids import TopicPartition
from plimsoll_sim.checkers.cleaned_groups import LogPlaceOfRecord, UncleanedRecords
from plimsoll_sim.checkers.compaction import BatchesLeft, uncleaned
from plimsoll_sim.hosts.payload import ident_of, is_left_of, records_in
from plimsoll_sim.oracle.partition_ghost import CommittedBatch, Copy, PartitionGhost, Violation
from plimsoll_wire.batches import HEADER_SIZE, parse_header
from plimsoll_wire.coordinator_records import encode_group_record
from plimsoll_wire.keyed_records import iter_keyed, rewrite
from plimsoll_wire.record_sets import write_batch

KEY = PartitionKey(UUID(int=1), 0)
NOW_MS = 1_800_000_000_000


def offset_of(partition: int, offset: int) -> OffsetCommitted:
    return OffsetCommitted(
        group_id="g", topic="orders", partition=partition, offset=offset, commit_ms=NOW_MS
    )


def batch_of(base: int, *records: GroupRecord) -> bytes:
    data = write_batch([encode_group_record(one) for one in records], NOW_MS)
    data[:8] = base.to_bytes(8, "big")
    return bytes(data)


def cleaned(batch: bytes, *, keeps: set[int], horizon_ms: int | None = None) -> bytes:
    """As a cleaner writes it anew, with some of its records."""
    header = parse_header(batch)
    records = batch[HEADER_SIZE:]
    kept = [one for one in iter_keyed(records, header.count) if one.offset_delta in keeps]
    return rewrite(header, records, kept, horizon_ms)


def committed(data: bytes) -> CommittedBatch:
    header = parse_header(data)
    return CommittedBatch(
        header.base_offset, header.last_offset, 0, ident_of(data, 0), (-1, -1, -1)
    )


def hosted_with(*batches: bytes) -> Hosted:
    """A log of `__consumer_offsets` that holds them."""
    data = b"".join(batches)
    end = parse_header(batches[-1]).next_offset
    log = SimpleNamespace(log_start_offset=0, log_end_offset=end, read=lambda *_: data)
    return cast("Hosted", SimpleNamespace(name=GROUP_OFFSETS, log=log))


def test_cleaned_coordinator_batch_is_recognised() -> None:
    whole = batch_of(7, offset_of(0, 1), offset_of(1, 2), OffsetForgotten(
        group_id="h", topic="orders", partition=0
    ))  # fmt: skip
    left = cleaned(whole, keeps={1, 2}, horizon_ms=NOW_MS + 5_000)
    assert left[17:21] != whole[17:21], "its CRC is another one"
    assert is_left_of(ident_of(left, 0), ident_of(whole, 0))
    assert [one.delta for one in records_in(ident_of(left, 0))] == [1, 2]


def test_batch_with_invented_content_is_not_cleaned() -> None:
    whole = batch_of(7, offset_of(0, 1), offset_of(1, 2))
    for other in (
        batch_of(7, offset_of(0, 1), offset_of(1, 3)),
        batch_of(8, offset_of(0, 1), offset_of(1, 2)),
        cleaned(batch_of(7, offset_of(0, 1), offset_of(1, 3)), keeps={1}),
    ):
        assert not is_left_of(ident_of(other, 0), ident_of(whole, 0))


def test_cleaned_batch_is_copied_as_committed() -> None:
    ghost, copy = PartitionGhost(KEY, TopicPartition(GROUP_OFFSETS, 0)), Copy()
    whole = batch_of(0, offset_of(0, 1), offset_of(1, 2))
    ghost.commit(committed(whole))
    left = committed(cleaned(whole, keeps={1}))
    assert uncleaned(ghost, copy, BatchesLeft([left], [1]), 0) == [committed(whole)]
    assert copy.left == {0: left.ident}
    assert copy.is_cleaned
    copy.batches = [committed(whole)]
    copy.cut(0)
    assert not copy.is_cleaned


def _checked(*logs: bytes, written: dict[int, GroupRecord], batches: list[CommittedBatch]) -> None:
    """What G10 says of such a log."""
    records = UncleanedRecords()
    for offset, record in written.items():
        records.saw(KEY, LogPlaceOfRecord(offset, 0), record)
    copy = Copy(batches=batches, left={0: b"something"})
    ghost = cast("PartitionGhost", SimpleNamespace(key=KEY, unclean_epoch=-1))
    records.check(ghost, copy, hosted_with(*logs))


def test_log_lacking_superseded_records_reads_alike() -> None:
    first, then = batch_of(0, offset_of(0, 1), offset_of(1, 2)), batch_of(2, offset_of(0, 3))
    written: dict[int, Any] = {0: offset_of(0, 1), 1: offset_of(1, 2), 2: offset_of(0, 3)}
    batches = [committed(first), committed(then)]
    _checked(cleaned(first, keeps={1}), then, written=written, batches=batches)
    with pytest.raises(Violation, match="CompactedSame"):
        _checked(cleaned(first, keeps={0}), then, written=written, batches=batches)


def test_changed_record_is_reported() -> None:
    records = UncleanedRecords()
    records.saw(KEY, LogPlaceOfRecord(4, 1), offset_of(0, 1))
    records.saw(KEY, LogPlaceOfRecord(4, 2), offset_of(0, 9))
    with pytest.raises(Violation, match="CompactedSame"):
        records.saw(KEY, LogPlaceOfRecord(4, 1), offset_of(0, 2))
