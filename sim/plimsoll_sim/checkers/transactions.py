"""Checks the last stable offset and the index of aborted transactions: X2 and X3 of the protocol.

Called by the replica checker for each log with transactions that changed, and by the readers of
committed transactions with each batch that they were shown or left out.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

from plimsoll_broker.replication.hosted_partitions import Hosted
from plimsoll_broker.storage.segment import SearchUnfinished
from plimsoll_core.ids import TopicPartition
from plimsoll_sim.oracle.committed import MetadataGhost
from plimsoll_sim.oracle.partition_ghost import Copy, PartitionGhost, Violation


def _transactions(copy: Copy) -> Iterator[tuple[int, list[int], int | None, bool]]:
    """Yield the transactions of a copy: producer id, base offsets of the batches with records that
    are left, the marker's offset (None if it is open), and whether that commits."""
    begun: dict[int, list[int]] = {}
    for batch in copy.batches:
        if batch.transactional and batch.base not in copy.emptied:
            begun.setdefault(batch.producer[0], []).append(batch.base)
        elif batch.ends is not None:
            bases = begun.pop(batch.ends.producer_id, [])
            if bases:
                yield batch.ends.producer_id, bases, batch.base, batch.ends.commits
    for producer_id, bases in begun.items():
        yield producer_id, bases, None, False


def check_stable(ghost: PartitionGhost, copy: Copy, hosted: Hosted) -> None:
    """Check X3: the last stable offset is at most the high watermark and the first record of each
    transaction that is open or whose marker is not committed. While nothing was removed, no other
    offset holds it back."""
    replica = hosted.replica
    stable, high_watermark = replica.last_stable_offset, replica.high_watermark
    found = list(_transactions(copy))
    held = [(max(bases[0], copy.start), end) for _, bases, end, _ in found]
    # After a restart it may know a lower high watermark than it knew when it forgot them.
    known = max(high_watermark, ghost.true_high_watermark)
    lossy = ghost.unclean_epoch >= 0
    most = [first for first, end in held if end is None or (end >= known and not lossy)]
    least = [first for first, end in held if end is None or end >= high_watermark]
    if stable > min([high_watermark, *most]):
        raise Violation(
            "LsoForward", f"{hosted!r} has LSO {stable}, with HW {high_watermark} and {found}"
        )
    if copy.start == 0 and not copy.is_cleaned and stable < min([high_watermark, *least]):
        raise Violation("LsoForward", f"{hosted!r} is held back at LSO {stable}: {found}")


def check_forward(ghost: PartitionGhost, before: int, stable: int) -> None:
    """Check X3: a leader's last stable offset never decreases in its term."""
    if stable < before:
        raise Violation("LsoForward", f"{ghost.name}: LSO went from {before} to {stable}")


def check_index(ghost: PartitionGhost, copy: Copy, hosted: Hosted) -> None:
    """Check X2 where a log was opened, cut or cleaned: a reader that follows the index, as Kafka's
    consumer does, leaves out what was aborted and is decided, and nothing else."""
    log, stable = hosted.log, hosted.replica.last_stable_offset
    if copy.start >= stable:
        return
    try:
        known = set(log.aborted_transactions(copy.start, stable))
    except SearchUnfinished:
        return
    fates = {
        base: commits
        for _, bases, end, commits in _transactions(copy)
        if end is not None and end < stable
        for base in bases
    }
    for base, is_shown in _shown(copy, sorted(known, key=lambda each: each[1])):
        if fates.get(base, is_shown) is not is_shown:
            does = "shows" if is_shown else "leaves out"
            raise Violation(
                "NoAborted",
                f"{hosted!r} lists {sorted(known)}, and so a reader {does} the batch at {base}",
            )


def _shown(copy: Copy, aborted: list[tuple[int, int]]) -> Iterator[tuple[int, bool]]:
    """Yield the base offset of each transactional batch, and True if a reader shows it that was
    told of these aborted transactions (producer id, first offset), in order of these offsets."""
    queue, left_out = deque(aborted), set[int]()
    for batch in copy.batches:
        if batch.base in copy.emptied:
            continue
        while queue and queue[0][1] <= batch.base:
            left_out.add(queue.popleft()[0])
        if batch.ends is not None:
            if not batch.ends.commits:
                left_out.discard(batch.ends.producer_id)
        elif batch.transactional:
            yield batch.base, batch.producer[0] not in left_out


class TransactionChecker:
    """Checks what readers of committed transactions are shown. Implements
    `plimsoll_sim.hosts.committed_readers.TransactionWitness`."""

    def __init__(self, ghost: MetadataGhost) -> None:
        self._ghost = ghost
        self.shown_batches = 0
        self.left_out_batches = 0

    def shown(self, at: TopicPartition, offset: int, ident: bytes) -> None:
        """Check X2: the batch's transaction was committed, and its marker is."""
        self.shown_batches += 1
        self._check(at, offset, ident, commits=True)

    def left_out(self, at: TopicPartition, offset: int, ident: bytes) -> None:
        """Check that the batch's transaction was aborted."""
        self.left_out_batches += 1
        self._check(at, offset, ident, commits=False)

    def _check(self, at: TopicPartition, offset: int, ident: bytes, *, commits: bool) -> None:
        served = self._ghost.ever_named(at)
        if not served or any(one.unclean_epoch >= 0 for one in served):
            return  # what was read may have been lost with its marker since
        if any(
            one.idents.get(ident) == offset and one.fates.get(offset) is commits for one in served
        ):
            return
        fates = [one.fates.get(offset) for one in served]
        told = "shown" if commits else "left out"
        raise Violation("NoAborted", f"{at}: {ident!r} at {offset} was {told}, and is {fates}")
