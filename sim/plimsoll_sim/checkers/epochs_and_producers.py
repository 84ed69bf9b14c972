"""Checks the leader epochs and producers stored with a log, and the order of producers' batches.

Called by the replica checker for each log that changed. I19, I21 and I22 of the protocol.
"""

from __future__ import annotations

from collections.abc import Iterable

from plimsoll_broker.replication.hosted_partitions import Hosted
from plimsoll_sim.oracle.partition_ghost import CommittedBatch, Copy, PartitionGhost, Violation


def check_epochs(ghost: PartitionGhost, broker_id: int, copy: Copy, hosted: Hosted) -> None:
    """I21: compare the stored leader epochs with those of the batches. After the last batch there
    may be only the leader's own epoch, and at the start only that of the last record when nothing
    was left. A copy of a cleaned log may know only the batches that it got: those before its first
    may all have been removed, if the log begins above the first batch of their leader epoch."""
    entries = hosted.log.epochs.entries
    expected = _terms(copy.batches)
    if entries == expected or _agree(entries, expected, copy):
        return
    held = _terms(batch for batch in copy.batches if batch.base not in copy.taken)
    if entries != held and not _agree(entries, held, copy):
        raise Violation(
            "EpochCache", f"{ghost.name}: broker {broker_id} has terms {entries}, log {expected}"
        )


def _terms(batches: Iterable[CommittedBatch]) -> list[tuple[int, int]]:
    found: list[tuple[int, int]] = []
    for batch in batches:
        if not found or found[-1][0] != batch.epoch:
            found.append((batch.epoch, batch.base))
    return found


def _agree(entries: list[tuple[int, int]], expected: list[tuple[int, int]], copy: Copy) -> bool:
    beyond = [entry for entry in entries if entry[1] >= copy.end]
    within = [entry for entry in entries if entry[1] < copy.end]
    below = bool(within) and within[0][1] == copy.start - 1
    if below and (not expected or within[0][0] < expected[0][0]):
        del within[0]
    if within and expected and within[0][0] == expected[0][0]:
        within[0] = expected[0] if within[0][1] <= copy.start else within[0]
    return within == expected and len(beyond) <= 1


def check_producers(ghost: PartitionGhost, copy: Copy, hosted: Hosted) -> None:
    """Check I22: the state of producers is what a replay of the log would give, at least for the
    newest batch of each producer."""
    newest: dict[int, tuple[int, int]] = {}
    for batch in copy.batches:
        producer_id, epoch, first = batch.producer
        if batch.ends is not None:
            known_epoch, last = newest.get(batch.ends.producer_id, (batch.ends.epoch, -1))
            same = known_epoch == batch.ends.epoch
            newest[batch.ends.producer_id] = (batch.ends.epoch, last if same else -1)
        elif producer_id >= 0 and batch.base not in copy.taken:
            last = first + batch.last - batch.base
            if first < 0:
                known_epoch, last = newest.get(producer_id, (epoch, -1))
                last = last if known_epoch == epoch else -1
            newest[producer_id] = (epoch, last)
    known = {
        entry.producer_id: (entry.producer_epoch, entry.last_sequence)
        for entry in hosted.log.producers.snapshot()
    }
    for producer_id, state in newest.items():
        told = known.get(producer_id)
        # Of a producer with only a marker left, the log may know an older sequence.
        if told != state and (told is None or state[1] >= 0 or told[0] != state[0]):
            raise Violation(
                "ProducerState",
                f"{ghost.name}: {hosted!r} remembers {known.get(producer_id)} of producer "
                f"{producer_id}, its log says {state}",
            )
    if copy.start == 0 and (strangers := set(known) - set(newest)):
        raise Violation(
            "ProducerState", f"{ghost.name}: {hosted!r} remembers {sorted(strangers)} of nothing"
        )


def check_order(ghost: PartitionGhost, batch: CommittedBatch) -> None:
    """Check I19: each producer's batches are committed in order, without a gap. A gap is allowed in
    a topic that was created again, that lost data, or that has removed all records of the producer:
    such a log does not know the producer."""
    producer_id, epoch, first = batch.producer
    if producer_id < 0 or first < 0:
        return
    known = ghost.producers.get(producer_id)
    if known is None and (ghost.made_again or ghost.unclean_epoch >= 0):
        return
    if known is None and batch.transactional and ghost.tell_ended is None:
        return  # a writer without a coordinator does not send again what its leader lost
    if known is not None and known[2] < ghost.start:
        return
    expected = 0 if known is None or known[0] != epoch else known[1] + 1
    if first != expected:
        raise Violation(
            "NoDuplicate",
            f"{ghost.name}: producer {producer_id} commits sequence {first} after "
            f"{known}, expected {expected}",
        )


def check_once(ghost: PartitionGhost, batch: CommittedBatch) -> None:
    """Check I19 for idempotent producers, even after refused requests: no batch is committed twice,
    unless the first one was removed by retention before it was sent again."""
    producer_id, _, first = batch.producer
    if producer_id < 0 or first < 0 or ghost.idents.get(batch.ident, -1) < ghost.start:
        return
    if batch.ident in ghost.idents:
        raise Violation(
            "NoDuplicate",
            f"{ghost.name}: {batch.ident!r} is at {ghost.idents[batch.ident]} and, of producer "
            f"{batch.producer}, at {batch.base}",
        )
