"""Checks compacted logs: a cleaner removed only records that it may remove (K1, K2, K5).

Called where logs are read. The batches that a cleaner removed are restored as they were committed,
so that all other predicates can check a compacted log like any other. The removed batches
themselves are checked here.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from plimsoll_core.ids import BrokerId
from plimsoll_sim.hosts.brokers import BrokerHost
from plimsoll_sim.hosts.payload import is_coordinators, is_left_of, key_of, records_in
from plimsoll_sim.oracle.committed import MetadataGhost
from plimsoll_sim.oracle.partition_ghost import CommittedBatch, Copy, PartitionGhost, Violation


class BatchesLeft(NamedTuple):
    """Batches as they are in a log now, and the number of records that each still has."""

    batches: list[CommittedBatch]
    counts: list[int]


def uncleaned(
    ghost: PartitionGhost, copy: Copy, found: BatchesLeft, start: int
) -> list[CommittedBatch]:
    """Return the log's batches as they were committed, with those that a cleaner removed or shrank
    from `start` on. Check K2: each of them was committed."""
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
    """Return True if the two batches are equal in everything that a cleaner does not change."""
    return (
        known.last == batch.last
        and known.epoch == batch.epoch
        and known.producer == batch.producer
        and is_left_of(batch.ident, known.ident)
    )


def _base_of(ghost: PartitionGhost, start: int) -> int:
    """Return the base offset of the batch that contains `start`. A log may begin within a batch
    that its cleaner has removed."""
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
    """Yield the committed batches from `start` to the batch `following`, which a cleaner removed,
    from the history to which `following` belongs."""
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


def _values(
    ghost: PartitionGhost, batches: Iterable[CommittedBatch], copy: Copy | None = None
) -> dict[bytes, object]:
    """Return the last record of each key in these batches, without those of aborted transactions.
    With `copy`, only of the records that a cleaner left in it. A client's batch has one key and one
    value, its ident."""
    values: dict[bytes, object] = {}
    for each in batches:
        if each.ends is not None or ghost.fates.get(each.base) is False:
            continue
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
    """Check K1: of each key the last committed record is in the copy (no run is so long that a
    tombstone may be removed). Check I22: so are the batches that hold each producer's last
    sequence."""
    if ghost.keys_due:
        ghost.keys_due = False
        _elected(ghost, broker_id, copy)
    if not copy.is_cleaned:
        return
    if ghost.unclean_epoch < 0:
        _check_producers(ghost, broker_id, copy)
    lacking = _lacking(ghost, copy)
    if any(key not in ghost.lost_keys for key in lacking):
        raise Violation(
            "LastOfEachKey", f"{ghost.name}: leader {broker_id} has, and committed is, {lacking}"
        )
    for key in [key for key in ghost.lost_keys if key not in lacking]:
        del ghost.lost_keys[key]  # written again


def _check_producers(ghost: PartitionGhost, broker_id: int, copy: Copy) -> None:
    gone = [each for each in ghost.producers.values() if each[2] in copy.taken]
    if gone:
        raise Violation("ProducerState", f"{ghost.name}: leader {broker_id} lacks {gone}")


def _lacking(ghost: PartitionGhost, copy: Copy) -> dict[bytes, tuple[object, object]]:
    """Return the keys of which the copy lacks the last committed record, as (held, committed)."""
    first = max(copy.start, ghost.start)
    last = _values(ghost, (each for each in ghost.committed if each.base >= first))
    held = _values(ghost, (each for each in copy.batches[: copy.same] if each.base >= first), copy)
    keys = {**last, **held}
    told = {key: (held.get(key), last.get(key)) for key in keys}
    return {key: values for key, values in told.items() if values[0] != values[1]}


def _elected(ghost: PartitionGhost, broker_id: int, copy: Copy) -> None:
    """Handle an unclean election: the part of the log that the new leader kept becomes the
    committed one, and its keys are compared with that. If more was lost than allowed, the missing
    keys count as lost."""
    lacking = _lacking(ghost, copy) if copy.is_cleaned else {}
    if not ghost.excused and any(key not in ghost.lost_keys for key in lacking):
        raise Violation(
            "LastOfEachKey",
            f"{ghost.name}: {broker_id} was elected uncleanly without {lacking}, with "
            f"{ghost.lossy_max} lossy stops",
        )
    ghost.lost_keys = dict.fromkeys(lacking)


def check_agreement(ghosts: MetadataGhost, hosts: dict[int, BrokerHost]) -> None:
    """Check K5: all replicas at the end of a run have the same value for every key, from the
    greatest of their log starts on, since one replica's retention may have removed more."""
    for key, partition in ghosts.image.partitions.items():
        ghost = ghosts.partitions[key]
        if not any(copy.is_cleaned for copy in ghost.copies.values()):
            continue
        here = [one for one in partition.replicas if hosts[int(one)].hosted(key) is not None]
        first = max((ghost.copy_of(int(one)).start for one in here), default=0)
        told: dict[BrokerId, dict[bytes, object]] = {}
        for replica in here:
            copy = ghost.copy_of(int(replica))
            values = _values(ghost, (each for each in copy.batches if each.base >= first), copy)
            told[replica] = {k: value for k, value in values.items() if k not in ghost.lost_keys}
        if any(each != told[here[0]] for each in told.values()):
            raise Violation("SameValues", f"{ghost.name}: replicas differ: {told}")
