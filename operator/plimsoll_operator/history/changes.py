"""Converts committed records into compact rows (`ChangeRow`) about leaders, ISRs and replicas.
Pure.

The archive keeps these rows after the metadata log is truncated; `kubectl plimsoll why` shows them.
One row stands for all partitions of a topic that one record changed alike. The reason of a change
is one of a few words, and the change is planned or not. The words are those of the metrics:
`isr_shrinks.ShrinkCause` for a broker that left, `commit_counters.LeaderChange` for a new leader
although no broker left, and `caught-up` for a replica that joined an ISR. No record names an
eviction: it counts as the restart or the fencing that it caused.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Literal, NamedTuple
from uuid import UUID

import msgspec
from msgspec import UNSET

from plimsoll_core.cluster import move_owners
from plimsoll_core.cluster.isr_shrinks import (
    PLANNED,
    ShrinkCause,
    cause_of_record,
    covered_by,
)
from plimsoll_core.cluster.model import ClusterImage, Partition, PartitionKey, TopicObject
from plimsoll_core.cluster.records import (
    PartitionsChanged,
    PartitionsCreated,
    ReassignmentNoted,
    RebalanceAdvanced,
    Record,
    TopicCreated,
    TopicRemoved,
)
from plimsoll_core.controller.kernel.partition_change import ranges
from plimsoll_core.controller.moves import partition_move, target_choice
from plimsoll_core.controller.partitions import (
    leader_elections,
    unclean_recovery,
)
from plimsoll_core.ids import BrokerId
from plimsoll_operator.status.commit_counters import elected_anew

CAUGHT_UP = "caught-up"
PROPOSED = (ShrinkCause.LAG.value, CAUGHT_UP)
"""Words for changes of an ISR that a partition's leader itself requests: a follower lags, or has
caught up."""


class CommitImages(NamedTuple):
    """The images before and after a commit."""

    old: ClusterImage
    new: ClusterImage


class Why(NamedTuple):
    """The reason for a change of a partition. `word`: one that the metrics use as a label;
    `planned`: True if a committed grant, drain or move covers every broker that the change
    removed."""

    word: str
    planned: bool


def why(
    images: CommitImages, partition: Partition | None, gone: Iterable[BrokerId], cause: str
) -> Why:
    """Return why `partition` changed. `cause` is the record's text, `gone` are the brokers that
    left the ISR or lost the leadership, `partition` is the state before the change (None for a new
    one). If a committed cause, such as a granted restart, covers every broker in `gone`, it is the
    reason; otherwise the reason is the record's text, and the change is not planned."""
    told = word_of(cause)
    if partition is None or elected_anew(cause) is not None:
        return Why(told, planned=False)
    covered = [_covered(images, partition, broker) for broker in gone]
    if not covered or None in covered:
        return Why(told, planned=False)
    return Why(covered[0].value if covered[0] else told, planned=set(covered) <= PLANNED)


def word_of(cause: str) -> str:
    """Return the word (a metric's label) that stands for `cause`, the text in a record. Unlike
    `why`, it does not consider the grants, drains and moves in the images."""
    if cause.lower().startswith("isrexpand"):
        return CAUGHT_UP
    word: str = (elected_anew(cause) or cause_of_record(cause)).value
    return word


def _covered(images: CommitImages, partition: Partition, broker: BrokerId) -> ShrinkCause | None:
    return covered_by(images.old, partition, broker) or covered_by(images.new, partition, broker)


Kind = Literal["created", "changed", "removed", "unknown"]
Brokers = tuple[int, ...]

A_CLIENT = "a client"
CONTROLLER = "the controller"
RESTORED = "restored"
"""Word of a row of kind "unknown" that says: the metadata were restored as of its offset, and the
rows from there on that were archived before it were given up."""
_BY_CONTROLLER = ("fenced on proof", "fenced after", leader_elections.BY_ITSELF)


class ChangeRow(msgspec.Struct, frozen=True, array_like=True):
    """A row of the history: partitions of one topic that one record changed alike.

    `offset`: the record's offset in the metadata log. `ms`: the controller's wall clock at the
    commit, 0 if it was not recorded. `ranges`: (first, last) of the partitions' indexes. `leader`,
    `isr`, `replicas`: (before, after), or None if the record did not change it; a partition without
    a leader has None within the pair. `elr`: the new ELR, None if unchanged. `epochs`: the increase
    of the leader epoch. `cause`: the record's text. `word`: the reason as one word. `planned`: True
    if a committed grant or removal covers the change. `asked`: the object, client, broker or rule
    that asked for the change, "" if the log does not say.

    A row of kind "unknown" says that the archive lacks the records below `offset`; its `cause` says
    why.
    """

    offset: int
    ms: int
    kind: Kind
    topic: str = ""
    topic_id: str = ""
    ranges: tuple[tuple[int, int], ...] = ()
    leader: tuple[int | None, int | None] | None = None
    isr: tuple[Brokers, Brokers] | None = None
    replicas: tuple[Brokers, Brokers] | None = None
    elr: Brokers | None = None
    epochs: int = 0
    cause: str = ""
    word: str = ""
    planned: bool = False
    asked: str = ""

    def holds(self, topic: str, partition: int) -> bool:
        """Return True if the row is about this partition of the topic. A row of kind "removed" is
        about every partition of its topic, one of kind "unknown" about every partition of the
        cluster."""
        if self.kind == "unknown":
            return True
        ours = any(first <= partition <= last for first, last in self.ranges)
        return self.topic == topic and (ours or self.kind == "removed")


def standing(rows: Iterable[ChangeRow]) -> list[ChangeRow]:
    """Return the rows, in the order in which they were archived, without those that were given up
    when the metadata were restored to an earlier state."""
    found: list[ChangeRow] = []
    for row in rows:
        if row.word == RESTORED:
            found = [one for one in found if one.offset < row.offset]
        found.append(row)
    return found


_Row = tuple[BrokerId, ...]


class _State(NamedTuple):
    leader: BrokerId | None
    isr: tuple[BrokerId, ...]
    replicas: tuple[BrokerId, ...]


def relevant(records: Iterable[Record]) -> bool:
    """Return True if any of the records can change a leader, an ISR or replicas."""
    return any(isinstance(r, PartitionsChanged | PartitionsCreated | TopicRemoved) for r in records)


def changes(
    old: ClusterImage, new: ClusterImage, records: Iterable[Record], ms: int
) -> Iterator[ChangeRow]:
    """Yield the rows of one commit of `records`, in their order. The commit turned the image `old`
    into `new` at the wall-clock time `ms` (milliseconds since 1970)."""
    records = tuple(records)
    walk = _Walk(old, new, ms)
    walk.commit = records
    for offset, record in enumerate(records, old.next_offset):
        match record:
            case TopicCreated():
                walk.names[record.topic_id] = record.name
                walk.objects[record.topic_id] = record.object
            case PartitionsCreated():
                yield from walk.created(offset, record)
            case PartitionsChanged():
                yield from walk.changed(offset, record)
            case TopicRemoved():
                yield walk.removed(offset, record)
            case _:
                pass


class _Walk:
    """Makes the rows of one commit, record by record. It tracks the partitions' states between
    records, since a record may change a partition that an earlier record of the same commit
    created."""

    def __init__(self, old: ClusterImage, new: ClusterImage, ms: int) -> None:
        self._old = old
        self._new = new
        self._ms = ms
        # States of the partitions that this commit has changed so far.
        self._now: dict[PartitionKey, _State] = {}
        # Topics that this commit created: their names, and the objects that declare them.
        self.names: dict[UUID, str] = {}
        self.objects: dict[UUID, TopicObject | None] = {}
        self._movers: list[move_owners.Mover] | None = None
        # All records of the commit.
        self.commit: tuple[Record, ...] = ()

    def created(self, offset: int, record: PartitionsCreated) -> Iterator[ChangeRow]:
        alike: dict[tuple[_Row, _Row], list[int]] = {}
        rows = zip(record.replicas, record.isr, strict=True)
        for index, row in enumerate(rows, record.first):
            alike.setdefault(row, []).append(index)
        # Few rows of a topic differ: a state is made for each of these.
        for (replicas, isr), indexes in alike.items():
            state = _State(isr[0] if isr else None, isr, replicas)
            self._now.update((PartitionKey(record.topic_id, index), state) for index in indexes)
            yield self._change(
                offset,
                "created",
                record,
                ranges=ranges(indexes),
                leader=(None, state.leader),
                isr=((), state.isr),
                replicas=((), state.replicas),
                asked=self._declarer(record.topic_id),
            )

    def changed(self, offset: int, record: PartitionsChanged) -> Iterator[ChangeRow]:
        stated = (record.leader, record.isr, record.replicas)
        if all(field is UNSET for field in stated) and not record.leader_epoch_step:
            return  # only the ELR, min ISR, or a move that has moved nothing yet
        alike: dict[_State | None, list[int]] = {}
        for first, last in record.ranges:
            for index in range(first, last + 1):
                key = PartitionKey(record.topic_id, index)
                before = self._state(key)
                alike.setdefault(before, []).append(index)
                self._now[key] = _after(before, record)
        for before, indexes in alike.items():
            row = self._row(offset, record, before, indexes)
            if row.epochs or (row.leader, row.isr, row.replicas) != (None, None, None):
                yield row

    def removed(self, offset: int, record: TopicRemoved) -> ChangeRow:
        return self._change(offset, "removed", record)

    def _row(
        self, offset: int, record: PartitionsChanged, before: _State | None, indexes: list[int]
    ) -> ChangeRow:
        had = before or _State(None, (), ())
        after = _after(before, record)
        lost = tuple(b for b in had.isr if b not in after.isr and b in after.replicas)
        key = PartitionKey(record.topic_id, indexes[0])
        known = self._old.partitions.get(key)
        led = had.leader if after.leader != had.leader else None
        gone = lost or (() if led is None else (led,))
        found = why(CommitImages(self._old, self._new), known, gone, record.cause)
        return self._change(
            offset,
            "changed",
            record,
            ranges=ranges(indexes),
            leader=None if after.leader == had.leader else (had.leader, after.leader),
            # An ISR is a set: its order has no meaning.
            isr=None if set(after.isr) == set(had.isr) else (had.isr, after.isr),
            replicas=None if after.replicas == had.replicas else (had.replicas, after.replicas),
            elr=None if record.elr is UNSET else record.elr,
            epochs=record.leader_epoch_step,
            word=found.word,
            planned=found.planned,
            asked=self._asked(record, key, had, lost),
        )

    def _change(self, offset: int, kind: Kind, record: Record, **rest: object) -> ChangeRow:
        topic_id: UUID = record.topic_id  # type: ignore[union-attr]
        fields: dict[str, object] = {
            "offset": offset,
            "ms": self._ms,
            "kind": kind,
            "topic": self._name(topic_id),
            "topic_id": topic_id.hex,
            "cause": record.cause,
        }
        return ChangeRow(**(fields | rest))  # type: ignore[arg-type]

    def _state(self, key: PartitionKey) -> _State | None:
        if (now := self._now.get(key)) is not None:
            return now
        found = self._old.partitions.get(key)
        return None if found is None else _State(found.leader, found.isr, found.replicas)

    def _name(self, topic_id: UUID) -> str:
        if topic_id in self.names:
            return self.names[topic_id]
        found = self._old.topics.get(topic_id) or self._new.topics.get(topic_id)
        return str(topic_id) if found is None else found.name

    def _declarer(self, topic_id: UUID) -> str:
        known = self._old.topics.get(topic_id)
        holder = known.object if known is not None else self.objects.get(topic_id)
        return A_CLIENT if holder is None else f"Topic {holder.namespace}/{holder.name}"

    def _asked(
        self,
        record: PartitionsChanged,
        key: PartitionKey,
        had: _State,
        lost: tuple[BrokerId, ...],
    ) -> str:
        """Return the object, client, broker or rule that asked for the change, "" if the log does
        not say. `had` is the partition's state before the change; `lost` are the brokers that left
        the ISR."""
        cause = unclean_recovery.how_elected(record.cause)
        if cause in (target_choice.DECLARED, unclean_recovery.NAMED):
            return self._declarer(key.topic_id)
        if cause in (unclean_recovery.ASKED, leader_elections.PREFERRED_BY_CLIENT):
            return A_CLIENT
        if cause.startswith(leader_elections.AFTER_MOVE):
            return cause.removeprefix(leader_elections.AFTER_MOVE)
        if cause.startswith(partition_move.CAUSE):
            return self._mover(record, key)
        for broker in lost or (had.leader,):
            if broker is None:
                continue
            if broker in self._old.grants:
                revision = self._old.grants[broker].revision
                return f"the granted restart of broker {broker} into revision {revision}"
            if broker in self._old.leaving:
                return f"the removal of broker {broker}"
        if word_of(cause) in PROPOSED:
            # A leader's proposal also ends the move whose last replica joins by it.
            ends = record.replicas is not UNSET and set(record.replicas) != set(had.replicas)
            mover = self._mover(record, key) if ends else ""
            return mover or f"the leader, broker {had.leader}"
        return CONTROLLER if cause.startswith(_BY_CONTROLLER) else ""

    def _mover(self, record: PartitionsChanged, key: PartitionKey) -> str:
        """Return the object that moves the partition, "" if there is none: the move that this
        commit starts, else the one in progress before it. A move that copies nothing starts and
        ends in one commit, so neither image holds its object; in that case a later record of the
        same commit names it."""
        if self._movers is None:
            self._movers = [*move_owners.running(self._new), *move_owners.running(self._old)]
        found = move_owners.mover_of(self._movers, key)
        if found is not None:
            return str(found)
        if record.cause == partition_move.BY_CLIENT:
            return A_CLIENT
        later = self.commit[self.commit.index(record) + 1 :]
        for one in later:
            if one.cause != record.cause:
                continue
            if isinstance(one, ReassignmentNoted):
                row = one.reassignment
                return f"Reassignment {row.object.namespace}/{row.object.name}"
            if isinstance(one, RebalanceAdvanced) and one.uid in self._new.rebalances:
                holder = self._new.rebalances[one.uid].object
                return f"Rebalance {holder.namespace}/{holder.name}"
        return ""


def _after(before: _State | None, record: PartitionsChanged) -> _State:
    had = before or _State(None, (), ())
    return _State(
        had.leader if record.leader is UNSET else record.leader,
        had.isr if record.isr is UNSET else record.isr,
        had.replicas if record.replicas is UNSET else record.replicas,
    )
