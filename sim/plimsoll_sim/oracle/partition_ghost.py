"""One partition's true committed log, and every broker's true copy of it.

`committed.MetadataGhost` keeps it and the checkers read it; the code under test never does. Source:
the protocol's ghost variables.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

from plimsoll_core.cluster.model import PartitionKey
from plimsoll_core.ids import BrokerId, TopicPartition


class Violation(Exception):
    """Raised if a predicate that must always hold does not."""

    def __init__(self, predicate: str, sentence: str) -> None:
        super().__init__(f"{predicate}: {sentence}")
        self.predicate = predicate


class TransactionEnd(NamedTuple):
    """The content of an end marker."""

    producer_id: int
    epoch: int
    commits: bool
    coordinator_epoch: int


class CommittedBatch(NamedTuple):
    """A record batch as it is on a broker's disk. `ident`: the name in it, which identifies its
    content. `producer`: id, epoch and first sequence, which is -1 if it has none. `ends`: the
    transaction that it ends, if it is a marker; a marker has no `producer`. `transactional`: True
    if it holds records of a transaction."""

    base: int
    last: int
    epoch: int
    ident: bytes
    producer: tuple[int, int, int]
    timestamp: int = 0
    size: int = 0
    ends: TransactionEnd | None = None
    transactional: bool = False


class LogRetention(NamedTuple):
    """How much of a log its broker keeps, in bytes and in milliseconds; None: unlimited."""

    bytes_kept: int | None = None
    ms_kept: int | None = None


ALL_KEPT = LogRetention()


@dataclass(slots=True)
class Copy:
    """A broker's log of one partition, as last seen. `same`: number of its first batches that are
    known to equal the committed ones. `suspect`: True after an unclean election elsewhere, until
    the broker has followed the new leader. `begins`: highest allowed log start
    (`checkers.log_starts`). `retention`: how many bytes and milliseconds its broker was to keep.
    `emptied`: base offsets of batches of which a cleaner left no record; they are in `batches` as
    they were. `taken`: those of them of which not even a header is left. `left`: by base offset,
    the names of batches of which a cleaner left some records. `reshaped`: True if its segments were
    replaced since their content was last checked."""

    batches: list[CommittedBatch] = field(default_factory=list)
    start: int = 0
    begins: int = 0
    retention: LogRetention = ALL_KEPT
    end: int = 0
    high_watermark: int = 0
    same: int = 0
    suspect: bool = False
    sequences: dict[tuple[int, int, int], int] = field(default_factory=dict)
    emptied: dict[int, None] = field(default_factory=dict)
    taken: dict[int, None] = field(default_factory=dict)
    left: dict[int, bytes] = field(default_factory=dict)
    reshaped: bool = False

    def cut(self, count: int) -> None:
        """Keep the first `count` batches."""
        for batch in self.batches[count:]:
            self.sequences.pop(batch.producer, None)
            self.whole_again(batch.base)
        del self.batches[count:]
        self.same = min(self.same, count)

    def whole_again(self, base: int) -> None:
        """Forget what a cleaner removed of the batch with this base offset."""
        self.emptied.pop(base, None)
        self.taken.pop(base, None)
        self.left.pop(base, None)

    @property
    def is_cleaned(self) -> bool:
        """Return True if a cleaner has removed any record of this copy."""
        return bool(self.emptied or self.left)


@dataclass(slots=True, eq=False)
class Deletion:
    """A client's request to delete the records below `offset`. Several may be in progress."""

    offset: int


@dataclass(slots=True)
class PartitionGhost:
    """The true state of one partition.

    `committed`: all batches that were ever below a leader's high watermark, without those that
    unclean elections removed, which are in `lost`. `start`: the present log start, moved by
    retention or by clients. `deletions`: the clients' DeleteRecords requests, without refused ones.
    `answered`: offset below which a client was told that nothing is left, if no unclean election
    has brought records back since.

    `lost_keys`: keys of which the last record was lost in an allowed unclean election and which
    were not written since. `keys_due`: True if the present leader was elected uncleanly and its
    keys are not checked yet. `led`: by leader epoch, the leaders and the times since which they led
    (virtual microseconds). `ever`: by offset and leader epoch, every batch that was ever committed.
    """

    key: PartitionKey
    name: TopicPartition
    start: int = 0
    deletions: list[Deletion] = field(default_factory=list)
    answered: int = 0
    lost_keys: dict[bytes, None] = field(default_factory=dict)
    keys_due: bool = False
    committed: list[CommittedBatch] = field(default_factory=list)
    ever: dict[int, dict[int, CommittedBatch]] = field(default_factory=dict)
    index: dict[int, int] = field(default_factory=dict)
    idents: dict[bytes, int] = field(default_factory=dict)
    lost: dict[bytes, int] = field(default_factory=dict)
    acked: dict[bytes, int] = field(default_factory=dict)
    copies: dict[int, Copy] = field(default_factory=dict)
    producers: dict[int, tuple[int, int, int]] = field(default_factory=dict)
    seen: dict[tuple[int, int], tuple[bytes, tuple[int, int] | None]] = field(default_factory=dict)
    led: dict[int, dict[int, int]] = field(default_factory=dict)
    told: dict[str, tuple[int, int]] = field(default_factory=dict)
    lossy_open: dict[int, None] = field(default_factory=dict)
    lossy_lives: dict[int, int] = field(default_factory=dict)
    lossy_max: int = 0
    unclean_epoch: int = -1
    excused: bool = False
    made_again: bool = False
    reckless: bool = False
    """True from an election that may lose anything (a proactive one, or of a leader that a person
    named) until the ISR is full again: nothing is acknowledged before."""
    undecided: dict[int, list[int]] = field(default_factory=dict)
    """By producer id: base offsets of the committed batches of its open transaction."""
    fates: dict[int, bool] = field(default_factory=dict)
    """By base offset of a batch: True if its transaction was committed, False if aborted."""
    tell_ended: Callable[[PartitionGhost, list[int], TransactionEnd], None] | None = None
    """Called with the batches, by base offset, of a transaction that a committed marker ends."""
    given_up: dict[bytes, None] = field(default_factory=dict)
    """The batches lost by elections that were allowed to lose them."""

    @property
    def true_high_watermark(self) -> int:
        """Return the end offset of the committed log; `start` if nothing above `start` is
        committed."""
        return max(self.start, self.committed[-1].last + 1 if self.committed else 0)

    @property
    def deleted(self) -> int:
        """Return the offset up to which clients may have deleted records."""
        return max((deletion.offset for deletion in self.deletions), default=0)

    def copy_of(self, broker_id: int) -> Copy:
        found = self.copies.get(broker_id)
        if found is None:
            found = self.copies[broker_id] = Copy()
        return found

    def commit(self, batch: CommittedBatch) -> None:
        self.index[batch.base] = len(self.committed)
        self.idents[batch.ident] = batch.base
        self.ever.setdefault(batch.base, {})[batch.epoch] = batch
        self.committed.append(batch)
        self._decide(batch)

    def _decide(self, batch: CommittedBatch) -> None:
        """Note what the batch says of transactions."""
        if batch.transactional:
            self.undecided.setdefault(batch.producer[0], []).append(batch.base)
        elif batch.ends is not None:
            ended = self.undecided.pop(batch.ends.producer_id, [])
            self.fates.update(dict.fromkeys(ended, batch.ends.commits))
            if ended and self.tell_ended is not None:
                self.tell_ended(self, ended, batch.ends)

    def shift(self, copy: Copy) -> int:
        """Return the index of the committed batch with which the copy begins. If negative, the
        number of batches that the copy has before the first committed one."""
        if not copy.batches:
            return 0
        begins = copy.batches[0].base
        first = self.committed[0].base if self.committed else self.start
        if begins < first:
            return -bisect_left(copy.batches, first, key=lambda one: one.base)
        return self.index.get(begins, 0)

    def beyond(self, copy: Copy) -> list[CommittedBatch]:
        """Return the committed batches below the copy's start that the copy was not allowed to
        remove."""
        first = max(self.start, copy.begins)
        return [one for one in self.committed if first <= one.base and one.last < copy.start]

    def kept_by(self, copy: Copy) -> int:
        """Return the number of committed batches before the copy first differs or ends."""
        if not copy.batches:  # also a batch that holds its start is not there
            return bisect_left(self.committed, copy.start, key=lambda batch: batch.last)
        begins = copy.batches[0].base
        first = bisect_left(self.committed, begins, key=lambda batch: batch.base)
        kept = first
        for mine, theirs in zip(self.committed[first:], copy.batches, strict=False):
            if mine != theirs:
                break
            kept += 1
        return kept

    def cut(self, count: int) -> list[CommittedBatch]:
        """Keep the first `count` committed batches after an unclean election. The others are lost;
        return them."""
        for copy in self.copies.values():
            copy.same = min(copy.same, max(count - self.shift(copy), 0))
        gone = self.committed[count:]
        del self.committed[count:]
        for batch in gone:
            self.index.pop(batch.base, None)
            self.idents.pop(batch.ident, None)
            self.lost[batch.ident] = batch.base
        for deletion in self.deletions:
            deletion.offset = min(deletion.offset, self.true_high_watermark)
        self.producers.clear()
        self.undecided.clear()
        self.fates.clear()
        for batch in self.committed:
            self.note_producer(batch)
            self._decide(batch)
        return gone

    def joined(self, broker_id: int, broker_epoch: int, *, leads: bool) -> None:
        """Record that a broker joined the ISR. By following it has all data again; a leader from
        the ELR may not have it. A broker that lost data while it was being proposed still counts as
        lossy: it joins with the broker epoch of an earlier lifetime, and may lead at once if a move
        ends with that."""
        if self.lossy_lives.get(broker_id) == broker_epoch:
            self.lossy_open[broker_id] = None
        elif not leads:
            self.lossy_open.pop(broker_id, None)

    def isr_full(self) -> None:
        """Record that the ISR has min ISR members: what is acknowledged from now on may be lost
        only by an election of its own."""
        self.reckless = False

    def keep(self, replicas: tuple[BrokerId, ...]) -> None:
        """Forget the losses of brokers that are no longer replicas, since they delete their
        copies."""
        self.lossy_open = {b: None for b in self.lossy_open if BrokerId(b) in replicas}

    def note_producer(self, batch: CommittedBatch) -> None:
        producer_id, epoch, first = batch.producer
        if producer_id >= 0 and first >= 0:
            last = first + batch.last - batch.base
            self.producers[producer_id] = (epoch, last, batch.base)
