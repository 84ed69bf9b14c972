"""One partition's true committed log, and every broker's true copy of it.

Kept by `committed.MetadataGhost`; read by the checkers, never by the code under test.
Source: the protocol's ghost variables.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass, field
from typing import NamedTuple

from plimsoll_core.cluster.model import PartitionKey
from plimsoll_core.ids import BrokerId, TopicPartition


class Violation(Exception):
    """A predicate that must always hold does not."""

    def __init__(self, predicate: str, sentence: str) -> None:
        super().__init__(f"{predicate}: {sentence}")
        self.predicate = predicate


class CommittedBatch(NamedTuple):
    """A record batch as a broker has it on disk; `ident` is its content."""

    base: int
    last: int
    epoch: int
    ident: bytes
    producer: tuple[int, int, int]
    timestamp: int = 0
    size: int = 0


class LogRetention(NamedTuple):
    """How much of a log its broker keeps; None: without limit."""

    bytes_kept: int | None = None
    ms_kept: int | None = None


ALL_KEPT = LogRetention()


@dataclass(slots=True)
class Copy:
    """A broker's log of one partition, as last seen.  `same` of its batches are known to equal the
    committed log's; `suspect` after an unclean election elsewhere, until it has followed.
    `begins`: up to where it may have let go of what it held (`checkers.log_starts`); `retention`:
    how many bytes and ms it was to keep.  `emptied`: the bases of batches of which a cleaner left
    no record: they stand in `batches` as they were; of those in `taken` not even a header.
    `left`: by base the names of those of which it left some records.  `reshaped`: its segments are
    others since what they say was looked at."""

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
        """Forget what a cleaner took of the batch that begins there."""
        self.emptied.pop(base, None)
        self.taken.pop(base, None)
        self.left.pop(base, None)

    @property
    def is_cleaned(self) -> bool:
        """True if a cleaner has taken anything of it."""
        return bool(self.emptied or self.left)


@dataclass(slots=True, eq=False)
class Deletion:
    """A client's request to let go of what is below `offset`; several may be on their way."""

    offset: int


@dataclass(slots=True)
class PartitionGhost:
    """The true state of one partition.

    `committed`: the log that was ever below a leader's high watermark, less what unclean elections
    cut off, which is in `lost`. `start`: its present beginning, moved by retention or by clients.
    `deletions`: the clients' requests, less the refused ones. `answered`: a client was told that
    nothing is left below this offset, and no unclean election has brought anything back.

    `lost_keys`: keys with a last record that was lost in an excused unclean election and not
    written since. `keys_due`: the present leader was elected uncleanly, and its keys were not
    checked yet. `led`: by leader epoch, the leaders and the times since which they led (µs).
    `ever`: by offset and leader epoch, every batch that was ever committed.
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
    """An election that may lose anything (proactive, or a leader that a person named)."""

    @property
    def true_high_watermark(self) -> int:
        """The end of the committed log. It is at `start` only if nothing above `start` is
        committed."""
        return max(self.start, self.committed[-1].last + 1 if self.committed else 0)

    @property
    def deleted(self) -> int:
        """The offset up to which any client may have had records deleted."""
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

    def shift(self, copy: Copy) -> int:
        """Return the index of the committed batch that the copy begins with; if negative, the
        number of batches that it has before the first."""
        if not copy.batches:
            return 0
        begins = copy.batches[0].base
        first = self.committed[0].base if self.committed else self.start
        if begins < first:
            return -bisect_left(copy.batches, first, key=lambda one: one.base)
        return self.index.get(begins, 0)

    def beyond(self, copy: Copy) -> list[CommittedBatch]:
        """Return the committed batches below the copy's start that it was not allowed to remove."""
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
        """An unclean election kept only so many committed batches; the rest is lost."""
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
        for batch in self.committed:
            self.note_producer(batch)
        return gone

    def joined(self, broker_id: int, broker_epoch: int, *, leads: bool) -> None:
        """Note that a broker joined the ISR. By following it has all data again; a leader from the
        ELR may not. A broker that lost data while its proposal was on its way still counts as
        lossy: it joins as a lifetime that is over, and may lead at once if a move ends with that.
        """
        if self.lossy_lives.get(broker_id) == broker_epoch:
            self.lossy_open[broker_id] = None
        elif not leads:
            self.lossy_open.pop(broker_id, None)

    def keep(self, replicas: tuple[BrokerId, ...]) -> None:
        """Forget the losses of brokers that are no replicas any more: they delete their copies."""
        self.lossy_open = {b: None for b in self.lossy_open if BrokerId(b) in replicas}

    def note_producer(self, batch: CommittedBatch) -> None:
        producer_id, epoch, first = batch.producer
        if producer_id >= 0:
            last = first + batch.last - batch.base
            self.producers[producer_id] = (epoch, last, batch.base)
