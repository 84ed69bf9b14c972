"""The true state: the committed metadata, the committed logs, and the answers that clients got.

The code under test never reads it. `MetadataGhost` replays the batches that etcd stored, and reads
their chain independently of the operator; `PartitionGhost` holds one partition's committed log and
every broker's copy. Source: the protocol's ghost variables.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import msgspec

from plimsoll_core.cluster import invariants
from plimsoll_core.cluster.image import apply
from plimsoll_core.cluster.model import ClusterImage, Partition, PartitionKey, Recovery, Topic
from plimsoll_core.cluster.records import (
    ControllerChanged,
    MetadataVersionFinalized,
    PartitionsChanged,
    PartitionsCreated,
    Record,
    TopicRemoved,
)
from plimsoll_core.coordination.hashing import partition_of
from plimsoll_core.ids import BrokerId, TopicPartition
from plimsoll_sim.oracle.acked_not_lost import Election, elected_uncleanly, note_lossy_stop
from plimsoll_sim.oracle.partition_ghost import (
    PartitionGhost,
    TransactionEnd,
    Violation,
)
from plimsoll_sim.oracle.voluntary_absence import Absences

_records = msgspec.json.Decoder(tuple[Record, ...])
NO_BROKER = -1


class MetadataGhost:
    """The committed metadata, replayed from what etcd stored. `images`: the image at each metadata
    offset."""

    def __init__(self, cluster_id: Any, pinned: int | None = None) -> None:
        """Create the state of an empty cluster. `pinned`: the metadata version that the LogCluster
        pins; None if it pins none."""
        self.image = ClusterImage(cluster_id=cluster_id)
        self.pinned = pinned
        self.images: dict[int, ClusterImage] = {0: self.image}
        self.partitions: dict[PartitionKey, PartitionGhost] = {}
        self.by_name: dict[TopicPartition, PartitionGhost] = {}
        # Partitions of removed topics: brokers that do not know it yet still serve them.
        self.removed: dict[PartitionKey, PartitionGhost] = {}
        self.full: invariants.Full = frozenset()
        self.unclean: list[tuple[PartitionKey, int, str]] = []
        self.sequence = 0
        self.restored = False
        # Brokers that hold what etcd lost, once all others legitimately continue with another
        # history.
        self.keepers: frozenset[int] = frozenset()
        # True if a person has chosen the history to restore, although it may lack records.
        self.chosen = False
        # True if an object declares this topic after the object that it was bound to is gone.
        self.is_declared: Callable[[Topic], bool] = lambda _: False
        self.strict_slices = True
        self.history: list[Record] = []
        self.absences = Absences()
        # Given to each partition; None if nothing is coordinated.
        self.tell_ended: Callable[[PartitionGhost, list[int], TransactionEnd], None] | None = None
        self._nonce: str | None = None
        self._parts: list[Record] = []
        # The nonce of the batch that ends at each offset of the committed history.
        self._nonces: dict[int, str] = {}
        # Batches that etcd stored since it went back, by the nonce of the one before.
        self._unfollowed: dict[str | None, dict[str, Any]] = {}
        # The highest sequence in a slot of etcd, of whatever history.
        self._sequence_stored = -1
        # Returns the metadata offset that each running broker has applied.
        self.applied: Callable[[], dict[int, int]] = dict

    # --- the log ----------------------------------------------------------------------------------

    def stored(self, plural: str, item: dict[str, Any]) -> None:
        """Record that etcd stores this object from now on."""
        spec = item.get("spec", {})
        if plural != "metadatabatches" or "sequence" not in spec:
            return
        newest = spec["sequence"] > self._sequence_stored
        self._sequence_stored = max(self._sequence_stored, spec["sequence"])
        if spec.get("emptied") and newest:
            self._history_restored(spec)
        if "records" not in spec:
            return
        if self.restored:
            self._unfollowed[spec.get("previousNonce")] = spec
            return
        if spec["sequence"] != self.sequence or spec.get("previousNonce") != self._nonce:
            raise Violation(
                "MetadataLog",
                f"batch {spec['sequence']} (after {spec.get('previousNonce')}) does not follow "
                f"batch {self.sequence - 1} ({self._nonce})",
            )
        self._stored(spec)

    def _stored(self, spec: dict[str, Any]) -> None:
        """Commit a batch that follows the last one."""
        self.sequence = spec["sequence"] + 1
        self._nonce = spec["nonce"]
        records = _records.decode(msgspec.json.encode(spec["records"]))
        if any(isinstance(record, ControllerChanged) for record in records):
            self._parts.clear()  # a new term voids an unfinished group
        self._parts += records
        if spec.get("lastOfGroup", True):
            whole, self._parts = self._parts, []
            self._commit(whole)
            self._nonces[self.image.next_offset] = spec["nonce"]

    def ends_at(self, offset: int, nonce: str) -> bool:
        """Return True if the committed history has a batch with this end and nonce."""
        return self._nonces.get(offset) == nonce

    def applied_up_to(self, offset: int) -> None:
        """Record that a broker has applied the metadata up to this offset. Batches that etcd stored
        since it went back are committed up to there if they follow the last committed batch."""
        if self.keepers or self.chosen:
            return
        follows = self._nonces.get(self.image.next_offset) == self._nonce
        while follows and self.image.next_offset < offset and self._nonce in self._unfollowed:
            self._stored(self._unfollowed.pop(self._nonce))

    def _history_restored(self, spec: dict[str, Any]) -> None:
        """Check a history that an operator has put in the place of the log in etcd: it is a prefix
        of the committed history, and no broker has applied more. The log continues after it. If
        committed records are missing that no broker applied, only the metadata are checked from
        then on."""
        end = spec["baseOffset"] + spec["recordCount"]
        # A write whose outcome nobody knew may have reached the log after it went back.
        while self._nonces.get(end) != spec["nonce"] and self._nonce in self._unfollowed:
            self._stored(self._unfollowed.pop(self._nonce))
        if self.chosen:
            self._keep_stored(spec["nonce"])
        self._unfollowed.clear()
        if (self.keepers and not self.chosen) or self._nonces.get(end) != spec["nonce"]:
            raise Violation(
                "RestoredHistory", f"what was restored up to offset {end} was never committed"
            )
        applied = self.applied()
        if further := {b: at for b, at in applied.items() if at > end and not self.chosen}:
            raise Violation(
                "RestoredHistory", f"restored up to {end}, and brokers have applied {further}"
            )
        lost = self.image.next_offset > end
        self.sequence, self._nonce, self._parts = spec["sequence"] + 1, spec["nonce"], []
        self.restored = lost

    def _keep_stored(self, nonce: str) -> None:
        """If the batch with this nonce is the end of a log that etcd has stored since it went back,
        take that as the committed history: a person keeps it."""
        stored = {batch["nonce"]: batch for batch in self._unfollowed.values()}
        chain: list[dict[str, Any]] = []
        before: str | None = nonce
        while before in stored:
            chain.append(stored.pop(before))
            before = chain[-1].get("previousNonce")
        at = next((offset for offset, known in self._nonces.items() if known == before), None)
        if not chain or at is None:
            return
        self.image = self.images[at]
        self._nonces = {offset: known for offset, known in self._nonces.items() if offset <= at}
        for batch in reversed(chain):
            self._stored(batch)

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
        if isinstance(record, TopicRemoved) and self.is_declared(before.topics[record.topic_id]):
            name = before.topics[record.topic_id].name
            raise Violation("TopicKept", f"{name} is removed, and an object declares it")
        if after.hibernated and _leads(record):
            raise Violation("Hibernation", f"a leader while the cluster hibernates: {record}")
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
        """Check I28: the finalised metadata version is not above the pinned one, and no member is
        unregistered and no grant open when it is finalised."""
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
                full = ghost.key in self.full
                self.unclean.append((ghost.key, int(new.isr[0]), record.cause))
                elected_uncleanly(ghost, Election(old, new, record.cause), full=full)
                ghost.lossy_open.pop(int(new.isr[0]), None)
            for member in new.isr:
                if old is None or member not in old.isr:
                    epoch = int(after.brokers[member].broker_epoch)
                    ghost.joined(int(member), epoch, leads=member == new.leader)
            if len(new.isr) >= new.effective_min_isr:
                ghost.isr_full()
                # A broker that lost data unnoticed still counts.
                ghost.lossy_max = sum(1 for b in new.isr if int(b) in ghost.lossy_open)
        for key in [key for key in self.partitions if key not in after.partitions]:
            ghost = self.removed[key] = self.partitions.pop(key)
            if self.by_name.get(ghost.name) is ghost:
                del self.by_name[ghost.name]

    def _begin(self, image: ClusterImage, key: PartitionKey) -> PartitionGhost:
        ghost = PartitionGhost(key, TopicPartition(image.topics[key.topic_id].name, key.index))
        ghost.made_again = bool(self.namesakes(ghost.name))
        ghost.tell_ended = self.tell_ended
        self.partitions[key] = self.by_name[ghost.name] = ghost
        return ghost

    def served(self, key: PartitionKey) -> PartitionGhost | None:
        """Return the partition with this topic id, also if its topic was removed."""
        return self.partitions.get(key) or self.removed.get(key)

    def namesakes(self, name: TopicPartition) -> list[PartitionGhost]:
        """Return the partitions of removed topics that had this name, the newest first."""
        return [ghost for ghost in reversed(self.removed.values()) if ghost.name == name]

    def ever_named(self, name: TopicPartition) -> list[PartitionGhost]:
        """Return the partition and its namesakes of removed topics, the newest first: a client
        knows the name alone, and any of them may have answered."""
        present = self.by_name.get(name)
        return [*([] if present is None else [present]), *self.namesakes(name)]

    def coordinating(self, topic: str, name: str) -> PartitionGhost | None:
        """Return the partition of an internal topic that stores a group or transactional id. Return
        None if there is none, or if committed records of it may be lost."""
        topic_id = self.image.topic_ids.get(topic)
        if topic_id is None:
            return None
        index = partition_of(name, self.image.topics[topic_id].partitions)
        ghost = self.by_name.get(TopicPartition(topic, index))
        return None if ghost is None or ghost.unclean_epoch >= 0 else ghost

    def was_emptied(self) -> None:
        """Record that etcd lost every object of the metadata log."""
        self._sequence_stored = -1
        self.went_back()

    def restored_to(self, slots: Iterable[dict[str, Any]]) -> None:
        """Record that etcd was restored to a state with these slots. If it has the last committed
        batch, the history goes on after it. That batch may have had a lower sequence before it was
        restored the last time."""
        if self._nonce is None:
            return
        ends = [spec["sequence"] for spec in slots if spec.get("nonce") == self._nonce]
        if ends:
            self.sequence = max(ends) + 1
        else:
            self.went_back()

    def went_back(self) -> None:
        """Record that etcd now holds an older state than was committed. Later writes there form
        another history. A process that knows the committed state continues with it, and no copy may
        lose committed records."""
        self.restored = True

    def forked(self, keeper: int) -> None:
        """Record that etcd holds an older state, and that only the broker `keeper` knew a newer
        one. The other processes continue with another history. Of that history only one thing is
        checked: the keeper does not adopt it."""
        self.went_back()
        self.keepers = frozenset((keeper,))

    def metadata_lost(self) -> None:
        """Record that etcd lost the metadata log, and brokers their copies. What a person chooses
        then may lack decisions, and with them records: no broker's metadata are checked."""
        self.went_back()
        self.keepers = frozenset((NO_BROKER,))

    def choose(self, *, keeps_log: bool) -> None:
        """Record that a person confirms a history. If it is the log as it is, records that were
        acknowledged by another one may be lost: from then on only the metadata are checked."""
        self.chosen = True
        if not keeps_log:
            self.keepers = frozenset()

    def lossy(self, broker_id: int, names: list[TopicPartition]) -> None:
        """Record that a broker lost data of these partitions."""
        registered = self.image.brokers.get(BrokerId(broker_id))
        epoch = None if registered is None else int(registered.broker_epoch)
        for name in names:
            ghost = self.by_name.get(name)
            if ghost is not None:
                note_lossy_stop(ghost, self.image.partitions[ghost.key], broker_id, epoch)


def _leads(record: Record) -> bool:
    """Return True if the record elects a leader, or creates partitions that have one."""
    if isinstance(record, PartitionsCreated):
        return any(record.isr)
    return isinstance(record, PartitionsChanged) and isinstance(record.leader, int)


def _is_unclean(old: Partition | None, new: Partition) -> bool:
    """Return True if the new leader was neither in the ISR nor in the ELR."""
    if new.leader is None or old is None or new.leader_epoch == old.leader_epoch:
        return False
    recovering = new.recovery is Recovery.RECOVERING and old.recovery is not Recovery.RECOVERING
    return recovering or (old.leader is None and new.leader not in (*old.isr, *old.elr))
