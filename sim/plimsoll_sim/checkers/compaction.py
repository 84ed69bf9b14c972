"""Compacted logs: what a cleaner took of one, and whether it might (K1, K2, K5).

Called where logs are read.  The batches that a cleaner took are put back as they were committed, so
that every other predicate looks at a compacted log as at any other; what they say of its holes is
said here.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from plimsoll_core.ids import BrokerId
from plimsoll_sim.hosts.brokers import BrokerHost
from plimsoll_sim.hosts.coordinator_payload import is_coordinators, is_left_of, records_in
from plimsoll_sim.hosts.payload import key_of
from plimsoll_sim.oracle.committed import MetadataGhost
from plimsoll_sim.oracle.partition_ghost import CommittedBatch, Copy, PartitionGhost, Violation


class BatchesLeft(NamedTuple):
    """Batches as they are in a log, and how many records each has left."""

    batches: list[CommittedBatch]
    counts: list[int]


def uncleaned(
    ghost: PartitionGhost, copy: Copy, found: BatchesLeft, start: int
) -> list[CommittedBatch]:
    """With what was taken; K2: only what was committed."""
    whole: list[CommittedBatch] = []
    expected = start
    for batch, count in zip(found.batches, found.counts, strict=True):
        for taken in _between(ghost, expected, batch):
            copy.emptied[taken.base] = copy.taken[taken.base] = None
            whole.append(taken)
        copy.whole_again(batch.base)
        if not count:
            copy.emptied[batch.base] = None
        known = ghost.ever.get(batch.base, {}).get(batch.epoch)
        if known is not None and _same(known, batch):
            if batch.ident not in (b"", known.ident):
                copy.left[batch.base] = batch.ident
            batch = known
        elif count != batch.last - batch.base + 1:
            raise Violation("CleanedCommitted", f"{ghost.name}: {batch} was cleaned, not {known}")
        whole.append(batch)
        expected = batch.last + 1
    return whole


def _same(known: CommittedBatch, batch: CommittedBatch) -> bool:
    """But for what a cleaner makes anew."""
    return (
        known.last == batch.last
        and known.epoch == batch.epoch
        and known.producer == batch.producer
        and is_left_of(batch.ident, known.ident)
    )


def _base_of(ghost: PartitionGhost, start: int) -> int:
    """A log may begin within a batch, and its cleaner may have taken that batch: the base of it."""
    if start in ghost.ever:
        return start
    around = (
        base
        for base, known in ghost.ever.items()
        if base < start and any(batch.last >= start for batch in known.values())
    )
    return max(around, default=start)


def _between(
    ghost: PartitionGhost, start: int, following: CommittedBatch
) -> Iterator[CommittedBatch]:
    """What was committed in a hole: of the history that the batch behind it belongs to."""
    end = following.base
    if start < end:
        start = _base_of(ghost, start)
    while start < end:
        known = ghost.ever.get(start, {})
        batch = known.get(max((epoch for epoch in known if epoch <= following.epoch), default=-1))
        if batch is None or batch.last >= end:
            raise Violation(
                "CleanedCommitted", f"{ghost.name}: nothing was committed from {start} to {end}"
            )
        yield batch
        start = batch.last + 1


def _values(batches: Iterable[CommittedBatch], copy: Copy | None = None) -> dict[bytes, object]:
    """Of each key the last record; `copy`: of what a cleaner left there of the batches.  A
    client's batch has one key, and its name is what it says."""
    values: dict[bytes, object] = {}
    for each in batches:
        if copy is not None and each.base in copy.emptied:
            continue
        ident = each.ident if copy is None else copy.left.get(each.base, each.ident)
        if is_coordinators(ident):
            for record in records_in(ident):
                values[record.key] = (each.base + record.delta, record.content)
        else:
            values[key_of(ident)] = ident
    return values


def check_keys(ghost: PartitionGhost, broker_id: int, copy: Copy) -> None:
    """K1: of all that is committed the last record of each key is there (no run is so long that a
    tombstone goes); I22: so is what tells each producer's last sequence."""
    if not copy.is_cleaned or ghost.unclean_epoch >= 0:
        return
    gone = [each for each in ghost.producers.values() if each[2] in copy.taken]
    if gone:
        raise Violation("ProducerState", f"{ghost.name}: leader {broker_id} lacks {gone}")
    first = max(copy.start, ghost.start)
    last = _values(each for each in ghost.committed if each.base >= first)
    held = _values((each for each in copy.batches[: copy.same] if each.base >= first), copy)
    if held != last:
        raise Violation(
            "LastOfEachKey", f"{ghost.name}: leader {broker_id} has {held}, committed is {last}"
        )


def check_agreement(ghosts: MetadataGhost, hosts: dict[int, BrokerHost]) -> None:
    """K5: all replicas that the run ends with have the same value of every key, from where all of
    them begin: a replica's retention may have gone further."""
    for key, partition in ghosts.image.partitions.items():
        ghost = ghosts.partitions[key]
        if not any(copy.is_cleaned for copy in ghost.copies.values()):
            continue
        excused = _half_copied(ghost, partition.leader)
        here = [one for one in partition.replicas if hosts[int(one)].hosted(key) is not None]
        first = max((ghost.copy_of(int(one)).start for one in here), default=0)
        told: dict[BrokerId, dict[bytes, object]] = {}
        for replica in here:
            copy = ghost.copy_of(int(replica))
            values = _values((each for each in copy.batches if each.base >= first), copy)
            told[replica] = {k: value for k, value in values.items() if k not in excused}
        if any(each != told[here[0]] for each in told.values()):
            raise Violation("SameValues", f"{ghost.name}: replicas differ: {told}")


def _half_copied(ghost: PartitionGhost, leader: BrokerId | None) -> set[bytes]:
    """Keys of which the leader lacks the last record that its log should have: it was elected
    uncleanly when it had copied a hole, and not yet what superseded the record there (10.4)."""
    if ghost.unclean_epoch < 0 or leader is None:
        return set()
    copy = ghost.copy_of(int(leader))
    has = _values(copy.batches, copy)
    return {key for key, value in _values(copy.batches).items() if has.get(key) != value}
