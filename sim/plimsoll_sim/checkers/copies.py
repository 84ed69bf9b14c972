"""Reads a replica's log once and keeps its batches as a `Copy`, which the predicates check.

Called by `replicas`.  Predicates I4, I19 and I20 of the protocol hold for every batch that is read.
"""

from __future__ import annotations

from plimsoll_broker.replication.hosted_partitions import Hosted
from plimsoll_sim.checkers import compaction
from plimsoll_sim.hosts.payload import ident_of
from plimsoll_sim.oracle.partition_ghost import (
    CommittedBatch,
    Copy,
    PartitionGhost,
    TransactionEnd,
    Violation,
)
from plimsoll_wire.batches import BatchHeader, check_crc, iter_headers
from plimsoll_wire.control_records import read_end_marker

READ_BYTES = 2**30


def read(ghost: PartitionGhost, copy: Copy, hosted: Hosted, start: int) -> list[CommittedBatch]:
    """Read the batches of a replica's log, from the one that contains offset `start` on. For a
    compacted log, include the batches that a cleaner removed, as they were committed. Check I20:
    the log ends at the end of a batch. Check that no batch was damaged on its way (BatchIntact)."""
    log = hosted.log
    found: list[CommittedBatch] = []
    counts: list[int] = []
    offset = start
    while offset < log.log_end_offset:
        data = log.read(offset, READ_BYTES, log.log_end_offset)
        at = 0
        for header in iter_headers(data):
            if not check_crc(data, at, header.length):
                place = f"{header.base_offset} in LE {header.leader_epoch}"
                raise Violation("BatchIntact", f"{hosted!r} holds a damaged batch at {place}")
            ident = ident_of(data, at)
            ends = end_in(header, data[at : at + header.length])
            at += header.length
            producer = (header.producer_id, header.producer_epoch, header.base_sequence)
            if header.is_control:
                producer = (-1, -1, -1)
            if header.last_offset >= start:
                counts.append(header.count)
                found.append(
                    CommittedBatch(
                        header.base_offset,
                        header.last_offset,
                        header.leader_epoch,
                        ident,
                        producer,
                        header.max_timestamp,
                        header.length,
                        ends,
                        header.is_transactional and not header.is_control,
                    )
                )
            offset = header.next_offset
        if not data:
            break
    if offset != log.log_end_offset:
        raise Violation("BatchAtomic", f"{hosted!r} ends at {log.log_end_offset}, read {offset}")
    if log.holes:
        return compaction.uncleaned(ghost, copy, compaction.BatchesLeft(found, counts), start)
    return found


def end_in(header: BatchHeader, batch: bytes | memoryview) -> TransactionEnd | None:
    """Return the transaction that a batch ends, or None if it is not a marker."""
    marker = read_end_marker(header, batch) if header.is_control else None
    if marker is None:
        return None
    return TransactionEnd(header.producer_id, header.producer_epoch, *marker)


def reread(ghost: PartitionGhost, copy: Copy, hosted: Hosted) -> None:
    """Replace the copy by the whole log, read again."""
    copy.cut(0)
    extend(ghost, copy, read(ghost, copy, hosted, hosted.log.log_start_offset))


def extend(ghost: PartitionGhost, copy: Copy, batches: list[CommittedBatch]) -> None:
    """Add batches to the copy. Check I4: an offset and a leader epoch identify one batch and one
    history. Check I19: no batch of a producer is in the log twice."""
    for batch in batches:
        before = copy.batches[-1] if copy.batches else None
        place = (batch.base, batch.epoch)
        history = None if before is None else (before.base, before.epoch)
        known = ghost.seen.get(place)
        if known is None:
            ghost.seen[place] = (batch.ident, history)
        elif known[0] != batch.ident or (
            history is not None and known[1] is not None and history != known[1]
        ):
            raise Violation(
                "EpochOffsetUnique",
                f"{ghost.name}: {place} is {batch.ident!r} after {history}, and was "
                f"{known[0]!r} after {known[1]}",
            )
        if batch.producer[0] >= 0 and batch.producer[2] >= 0:
            if copy.sequences.get(batch.producer, -1) >= ghost.start:
                raise Violation(
                    "NoDuplicate",
                    f"{ghost.name}: {batch.producer} is at {copy.sequences[batch.producer]} and "
                    f"at {batch.base}",
                )
            copy.sequences[batch.producer] = batch.base
        copy.batches.append(batch)


def compare(ghost: PartitionGhost, copy: Copy) -> None:
    """Advance `copy.same`, the number of the copy's first batches that equal the committed ones."""
    committed, batches = ghost.committed, copy.batches
    same = copy.same
    shift = ghost.shift(copy)
    while same < len(batches) and same + shift < len(committed):
        if same + shift >= 0 and batches[same] != committed[same + shift]:
            break
        same += 1
    copy.same = same


def matches(ghost: PartitionGhost, copy: Copy) -> int:
    """Return the offset up to which the copy certainly equals the committed log."""
    if copy.same:
        return copy.batches[copy.same - 1].last + 1
    # An unclean election may commit less than was committed when retention let go of it here.
    return copy.start if copy.start <= max(ghost.true_high_watermark, copy.begins) else 0
