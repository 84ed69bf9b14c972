"""What is really true: the committed metadata, the committed logs, and what clients were told.

Never read by the code under test.  `MetadataGhost` replays what etcd stored, by a reading of the
chain of its own; `PartitionGhost` holds one partition's committed log and everybody's copy of it.
Source: the protocol's ghost variables.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import msgspec

from plimsoll_core.cluster import invariants
from plimsoll_core.cluster.image import apply
from plimsoll_core.cluster.model import ClusterImage, Partition, PartitionKey, Recovery
from plimsoll_core.cluster.records import ControllerChanged, MetadataVersionFinalized, Record
from plimsoll_core.ids import BrokerId, TopicPartition
from plimsoll_sim.oracle.voluntary_absence import Absences


class Violation(Exception):
    """A predicate that must always hold does not."""

    def __init__(self, predicate: str, sentence: str) -> None:
        super().__init__(f"{predicate}: {sentence}")
        self.predicate = predicate


class CommittedBatch(NamedTuple):
    """A record batch as somebody has it on disk; `ident` is its content."""

    base: int
    last: int
    epoch: int
    ident: bytes
    producer: tuple[int, int, int]
    timestamp: int = 0
    size: int = 0


class LogRetention(NamedTuple):
    """How much of a log its broker keeps; None: all."""

    bytes_kept: int | None = None
    ms_kept: int | None = None


ALL_KEPT = LogRetention()


@dataclass(slots=True)
class Copy:
    """A broker's log of one partition, as last seen.  `same` of its batches are known to equal the
    committed log's; `suspect` after an unclean election elsewhere, until it has followed.
    `begins`: up to where it may have let go of what it held (`checkers.starts`); `retention`: how
    many bytes and ms it was to keep."""

    batches: list[CommittedBatch] = field(default_factory=list)
    start: int = 0
    begins: int = 0
    retention: LogRetention = ALL_KEPT
    end: int = 0
    high_watermark: int = 0
    same: int = 0
    suspect: bool = False
    sequences: dict[tuple[int, int, int], int] = field(default_factory=dict)

    def cut(self, count: int) -> None:
        """Keep the first `count` batches."""
        for batch in self.batches[count:]:
            self.sequences.pop(batch.producer, None)
        del self.batches[count:]
        self.same = min(self.same, count)


@dataclass(slots=True)
class PartitionGhost:
    """`committed` is the log that was ever under a leader's high watermark, less what unclean
    elections cut off; that is in `lost`.  `start`: where it begins by now, for retention or a
    client let go of what is below; `deleted`: what clients asked for.  `led`: by leader epoch who
    led, since when (µs)."""

    key: PartitionKey
    name: TopicPartition
    start: int = 0
    deleted: int = 0
    committed: list[CommittedBatch] = field(default_factory=list)
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
        """Above `start`, but for who was elected uncleanly with nothing but a beginning."""
        return max(self.start, self.committed[-1].last + 1 if self.committed else 0)

    def copy_of(self, broker_id: int) -> Copy:
        found = self.copies.get(broker_id)
        if found is None:
            found = self.copies[broker_id] = Copy()
        return found

    def commit(self, batch: CommittedBatch) -> None:
        self.index[batch.base] = len(self.committed)
        self.idents[batch.ident] = batch.base
        self.committed.append(batch)

    def shift(self, copy: Copy) -> int:
        """Which committed batch is its first; below 0: how many it has before the first."""
        if not copy.batches:
            return 0
        begins = copy.batches[0].base
        if self.committed and begins < self.committed[0].base:
            return -bisect_left(copy.batches, self.committed[0].base, key=lambda one: one.base)
        return self.index.get(begins, 0)

    def beyond(self, copy: Copy) -> list[CommittedBatch]:
        """What is committed and below its beginning, and was not let go of."""
        first = max(self.start, copy.begins)
        return [one for one in self.committed if first <= one.base and one.last < copy.start]

    def kept_by(self, copy: Copy) -> int:
        """How many committed batches there are up to where it holds something else, or nothing."""
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
        self.deleted = min(self.deleted, self.true_high_watermark)
        self.producers.clear()
        for batch in self.committed:
            self.note_producer(batch)
        return gone

    def joined(self, broker_id: int, broker_epoch: int, *, leads: bool) -> None:
        """Who joined by following has it all again; who leads from the ELR may not.  Nor who lost
        it while the proposal was on its way: it joins as the lifetime that is over, and may lead
        at once, if a move ends with that."""
        if self.lossy_lives.get(broker_id) == broker_epoch:
            self.lossy_open[broker_id] = None
        elif not leads:
            self.lossy_open.pop(broker_id, None)

    def keep(self, replicas: tuple[BrokerId, ...]) -> None:
        """Who is no replica any more deletes its copy, and would start empty."""
        self.lossy_open = {b: None for b in self.lossy_open if BrokerId(b) in replicas}

    def check_lost_acks(self, idents: list[bytes]) -> None:
        """I16: an unclean election loses nothing that was acknowledged, unless more logs lost data
        than the quorum allows, or somebody chose to lose it."""
        if idents and not self.excused:
            raise Violation(
                "AckedNotLost",
                f"{self.name}: {idents} were acknowledged and are lost, with {self.lossy_max} "
                "lossy stops",
            )

    def note_producer(self, batch: CommittedBatch) -> None:
        producer_id, epoch, first = batch.producer
        if producer_id >= 0:
            last = first + batch.last - batch.base
            self.producers[producer_id] = (epoch, last, batch.base)


_records = msgspec.json.Decoder(tuple[Record, ...])


class MetadataGhost:
    """The committed image, replayed from what etcd stored; `images` by offset."""

    def __init__(self, cluster_id: Any, pinned: int | None = None) -> None:
        """`pinned`: the metadata version that somebody wants."""
        self.image = ClusterImage(cluster_id=cluster_id)
        self.pinned = pinned
        self.images: dict[int, ClusterImage] = {0: self.image}
        self.partitions: dict[PartitionKey, PartitionGhost] = {}
        self.by_name: dict[TopicPartition, PartitionGhost] = {}
        self.full: invariants.Full = frozenset()
        self.unclean: list[tuple[PartitionKey, int, str]] = []
        self.sequence = 0
        self.restored = False
        self.topics_recreated = False
        self.strict_slices = True
        self.history: list[Record] = []
        self.absences = Absences()
        self._nonce: str | None = None
        self._parts: list[Record] = []

    # --- the log ----------------------------------------------------------------------------------

    def stored(self, plural: str, item: dict[str, Any]) -> None:
        """etcd holds this object from now on."""
        spec = item.get("spec", {})
        if plural != "metadatabatches" or "records" not in spec:
            return
        if self.restored:
            return
        if spec["sequence"] != self.sequence or spec.get("previousNonce") != self._nonce:
            raise Violation(
                "MetadataLog",
                f"batch {spec['sequence']} (after {spec.get('previousNonce')}) does not follow "
                f"batch {self.sequence - 1} ({self._nonce})",
            )
        self.sequence += 1
        self._nonce = spec["nonce"]
        records = _records.decode(msgspec.json.encode(spec["records"]))
        if any(isinstance(record, ControllerChanged) for record in records):
            self._parts.clear()  # a new term voids an unfinished group
        self._parts += records
        if spec.get("lastOfGroup", True):
            whole, self._parts = self._parts, []
            self._commit(whole)

    def _commit(self, records: list[Record]) -> None:
        self.history += records
        for record in records:
            before = self.image
            self.image = apply(before, record)
            self._check_record(before, record)
        self.images[self.image.next_offset] = self.image
        predicates = [invariants.isr_active] if self.strict_slices else []
        for sentence in invariants.violations(self.image, tuple(predicates)):
            raise Violation(*sentence.split(": ", 1))

    def _check_record(self, before: ClusterImage, record: Record) -> None:
        after = self.image
        if after.partitions is not before.partitions:
            for sentence in invariants.violations(after, invariants.EVERY_RECORD):
                raise Violation(*sentence.split(": ", 1))
        for sentence in (
            *invariants.epochs_monotone(before, after),
            *invariants.reassigned_in_sync(before, after),
        ):
            raise Violation(*sentence.split(": ", 1))
        if isinstance(record, MetadataVersionFinalized):
            self._check_finalised(before, record.metadata_version)
        broken = self.absences.follow(before, after, record)
        if broken is not None:
            raise Violation("VoluntaryAbsence", broken)
        if after.partitions is before.partitions:
            return
        self._follow(before, after, record)
        self.full = invariants.full_after(self.full, before, after)
        for sentence in invariants.recovery_quorum(after, self.full):
            raise Violation(*sentence.split(": ", 1))

    def _check_finalised(self, before: ClusterImage, version: int) -> None:
        """I28: not beyond what is pinned, and not while somebody is away who has not said it."""
        pinned, away = self.pinned, set(before.members) - set(before.brokers)
        if (pinned is not None and version > pinned) or away or before.grants:
            raise Violation(
                "MetadataVersion",
                f"{version} is finalised, with {pinned} pinned, members {sorted(away)} not yet "
                f"registered, grants {sorted(before.grants)}",
            )

    # --- partitions -------------------------------------------------------------------------------

    def _follow(self, before: ClusterImage, after: ClusterImage, record: Record) -> None:
        for key, new in after.partitions.items():
            old = before.partitions.get(key)
            if old is new:
                continue
            ghost = self.partitions.get(key)
            if ghost is None:
                ghost = self._begin(after, key)
            ghost.keep(new.replicas)
            if _is_unclean(old, new):
                self._elected_uncleanly(ghost, old, new, record.cause)
                ghost.lossy_open.pop(int(new.isr[0]), None)
            for member in new.isr:
                if old is None or member not in old.isr:
                    epoch = int(after.brokers[member].broker_epoch)
                    ghost.joined(int(member), epoch, leads=member == new.leader)
            if len(new.isr) >= new.effective_min_isr:
                # Who lost data and has not been found out yet still counts.
                ghost.lossy_max = sum(1 for b in new.isr if int(b) in ghost.lossy_open)
        for key in [key for key in self.partitions if key not in after.partitions]:
            ghost = self.partitions.pop(key)
            if self.by_name.get(ghost.name) is ghost:
                del self.by_name[ghost.name]

    def _begin(self, image: ClusterImage, key: PartitionKey) -> PartitionGhost:
        ghost = PartitionGhost(key, TopicPartition(image.topics[key.topic_id].name, key.index))
        ghost.made_again = self.topics_recreated
        self.partitions[key] = self.by_name[ghost.name] = ghost
        return ghost

    def _elected_uncleanly(
        self, ghost: PartitionGhost, old: Partition | None, new: Partition, cause: str
    ) -> None:
        """The elected log is the committed one now; whatever it lacks is lost, and reported."""
        assert new.leader is not None
        leader = int(new.leader)
        if "possible data loss" not in cause:
            raise Violation("Reported", f"{ghost.name}: an unclean election says only: {cause}")
        self.unclean.append((ghost.key, leader, cause))
        copy = ghost.copy_of(leader)
        gone = ghost.beyond(copy) + ghost.cut(ghost.kept_by(copy))
        if ghost.committed and ghost.committed[-1].last + 1 < copy.start:
            ghost.cut(0)  # it begins behind all of that, and what is committed has no hole
        for other in ghost.copies.values():
            # Also in its last step, which nobody has seen.
            other.begins = max(other.begins, ghost.start)
        ghost.start = copy.begins = copy.start
        ghost.unclean_epoch = int(new.leader_epoch)
        for broker_id, other in ghost.copies.items():
            other.suspect = broker_id != leader
        trusted = "most complete of the last known" in cause and not ghost.reckless
        ghost.reckless = ghost.reckless or not trusted
        m = new.effective_min_isr if old is None else old.effective_min_isr
        allowed = m - 1 if ghost.key in self.full else 0
        ghost.excused = ghost.reckless or ghost.lossy_max > allowed
        ghost.check_lost_acks([batch.ident for batch in gone if batch.ident in ghost.acked])

    def went_back(self) -> None:
        """etcd holds an older state than was committed.

        What is written there from now on is another history.  Whoever holds the true one goes on
        with it, and no copy may lose what is committed.
        """
        self.restored = True

    def lossy(self, broker_id: int, names: list[TopicPartition]) -> None:
        """A broker lost data of these partitions."""
        for name in names:
            ghost = self.by_name.get(name)
            if ghost is None:
                continue
            p = self.image.partitions[ghost.key]
            registered = self.image.brokers.get(BrokerId(broker_id))
            if registered is not None:
                ghost.lossy_lives[broker_id] = int(registered.broker_epoch)
            if ghost.unclean_epoch >= 0 and broker_id in ghost.copies:
                # What it cut off when it followed after that election may be back.
                ghost.copies[broker_id].suspect = True
            if BrokerId(broker_id) in (*p.isr, *p.elr, *p.last_known_elr):
                ghost.lossy_open[broker_id] = None
                ghost.lossy_max = max(ghost.lossy_max, len(ghost.lossy_open))


def _is_unclean(old: Partition | None, new: Partition) -> bool:
    """Somebody leads who was in neither set."""
    if new.leader is None or old is None or new.leader_epoch == old.leader_epoch:
        return False
    recovering = new.recovery is Recovery.RECOVERING and old.recovery is not Recovery.RECOVERING
    return recovering or (old.leader is None and new.leader not in (*old.isr, *old.elr))
