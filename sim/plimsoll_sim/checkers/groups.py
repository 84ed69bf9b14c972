"""Compares groups with the committed logs: every answer about a group is committed, and never goes
back.

`GroupChecker.look` is called with each broker that did something in a step. It replays the leaders'
logs of `__consumer_offsets` independently and compares the result with the coordinators' state
(StateIsLog), and checks answers that coordinators give from memory (ReadUnderLease). Committers
report the answers that they get (CommitKept, OffsetForward, NothingUncommitted). G1, G2, G7, G8 and
G9 of the protocol; written records are stored for G10 (`cleaned_groups`). `GenerationChecker`
checks the generations of classic groups (G3 to G6).
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple
from uuid import UUID

from plimsoll_broker.coordinator.coordinator_shard import ShardPhase
from plimsoll_broker.coordinator.coordinators import Coordinators
from plimsoll_broker.coordinator.group_shard import GroupShard
from plimsoll_core.cluster.model import PartitionKey
from plimsoll_core.cluster.topic_names import GROUP_OFFSETS
from plimsoll_core.groups.invariants import GroupLog, ToldGenerations
from plimsoll_core.groups.records import (
    GroupForgotten,
    GroupRecord,
    GroupStored,
    OffsetCommitted,
    OffsetForgotten,
    TransactionMarked,
)
from plimsoll_core.groups.state import GroupsState
from plimsoll_sim.checkers.cleaned_groups import (
    LogPlaceOfRecord,
    UncleanedRecords,
    group_records,
    shown,
)
from plimsoll_sim.checkers.cleaned_groups import replay as replayed
from plimsoll_sim.checkers.expiries import ExpiryChecker, OffsetsKept
from plimsoll_sim.hosts.brokers import BrokerHost
from plimsoll_sim.oracle.committed import MetadataGhost
from plimsoll_sim.oracle.partition_ghost import PartitionGhost, Violation

NOTHING = -1


_Parts = dict[str, bytes]


def generation_in(commit: OffsetCommitted) -> int | None:
    """Return the generation that a member wrote into the metadata of its commit, or None."""
    return int(commit.metadata[1:]) if commit.metadata.startswith("@") else None


def a_log() -> GroupLog:
    """Return an empty `GroupLog`, for one replay of one log."""
    return GroupLog(generation_in)


def check_record(log: GroupLog, record: GroupRecord) -> None:
    """Check EpochsForward, NoStaleCommit, and that each stored generation has one membership."""
    for sentence in log.add(record):
        raise _violation(sentence)


def _violation(sentence: str) -> Violation:
    name, _, told = sentence.partition(": ")
    return Violation(name, told)


class GenerationChecker:
    """Checks the generations of classic groups (G3 to G6). `holder`: returns the partition that
    holds a group, or None if its state cannot be known."""

    def __init__(self, holder: Callable[[str], PartitionGhost | None]) -> None:
        self._holder = holder
        self._told = ToldGenerations()
        # Each generation's members as seen stored in any log, with the offset.
        self._stored: dict[tuple[str, int], list[tuple[int, _Parts]]] = {}
        self.syncs = 0

    def saw(self, record: GroupRecord, place: int) -> None:
        """Store the memberships in a record of some broker's log, at offset `place`."""
        if isinstance(record, GroupForgotten):
            self._told.forgotten(record.group_id)
        elif isinstance(record, GroupStored) and record.members:
            parts = {
                one.group_instance_id or one.member_id: one.assignment for one in record.members
            }
            seen = self._stored.setdefault((record.group_id, record.generation), [])
            if (place, parts) not in seen:
                seen.append((place, parts))

    def synced(self, group: str, generation: int, seat: str, part: bytes) -> None:
        """Check a member's answer to SyncGroup: it is stored (OneGeneration and OneOwner) and
        committed (NothingUncommitted). `seat`: the member's instance id or member id; `part`: its
        assignment."""
        self.syncs += 1
        ghost = self._holder(group)
        if ghost is None:
            return
        stored = [
            place for place, parts in self._stored.get((group, generation), ())
            if parts.get(seat) == part
        ]  # fmt: skip
        what = f"{group}: {seat} is told {part!r} in generation {generation}"
        if not stored:
            raise Violation("OneOwner", f"{what}, which is stored nowhere")
        if min(stored) >= ghost.true_high_watermark:
            raise Violation(
                "NothingUncommitted",
                f"{what}, stored at {min(stored)}, committed up to {ghost.true_high_watermark}",
            )
        for sentence in self._told.told(group, generation, seat, part):
            raise _violation(sentence)


@dataclass(slots=True)
class _Watched:
    """One shard of a coordinator, and an independent replay of its log."""

    shard: GroupShard
    replay: GroupsState = field(default_factory=GroupsState)
    history: GroupLog = field(default_factory=a_log)
    compared: bool = False
    again: dict[str, None] = field(default_factory=dict)
    """The groups that were loaded again, after they had been unloaded, and not compared since."""


class AskedOffset(NamedTuple):
    """State at the time when an OffsetFetch was sent. `least`: the answer must not be below this
    offset. `dead`: all offsets up to this one were deleted. `gone`: log offset of the newest
    committed tombstone. `deposed`: True if the broker that was asked does not lead."""

    least: int
    dead: int
    gone: int
    deposed: bool


@dataclass(slots=True)
class _ToldGroup:
    """The requests and answers of a group's only client."""

    tried: int = NOTHING
    least: int = NOTHING
    """The newest commit that was acknowledged, or a greater offset that was fetched since."""
    dead: int = NOTHING
    """The greatest offset up to which all were certainly deleted."""
    places: dict[int, dict[LogPlaceOfRecord, int]] = field(default_factory=dict)
    """For each committed offset (-1 for tombstones): the places in a log where it was seen, with
    the batch's leader epoch, and the time when it was first seen there, in microseconds since the
    run began."""
    topics: dict[int, tuple[str, UUID | None]] = field(default_factory=dict)
    """For each committed offset: name and id of its topic, in the record seen last."""


class GroupChecker:
    """Checks committed offsets. Implements `plimsoll_sim.hosts.committers.GroupWitness`."""

    def __init__(self, ghost: MetadataGhost, now_us: Callable[[], int], kept: OffsetsKept) -> None:
        self._ghost = ghost
        self._retention_us = kept.ms * 1_000
        self._turn_us = kept.turn_ms * 1_000
        self._now_us = now_us
        self._watched: dict[tuple[int, PartitionKey], _Watched] = {}
        self._told: dict[str, _ToldGroup] = {}
        self._violation: Violation | None = None
        self.commits = self.fetches = 0
        # The most groups that a broker had no room for at a time.
        self.unloaded_most = 0
        self.generations = GenerationChecker(self._partition)
        self.written = UncleanedRecords()
        self.expiries = ExpiryChecker(ghost, now_us, kept)

    # --- after a step -----------------------------------------------------------------------------

    def look(self, host: BrokerHost) -> None:
        """Check a broker after a step in which it ran."""
        if self._violation is not None:
            raise self._violation
        manager, node = host.manager, host.node
        if manager is None or node is None or node._serving is None:
            return
        self._account(host, node._serving.coordinators)
        for shard in node._serving.coordinators.shards():
            place = (host.id, shard.hosted.key)
            watched = self._watched.get(place)
            if watched is None or watched.shard is not shard:
                watched = self._watched[place] = _Watched(shard)
                self._listen(host.id, watched)
            self._compare(watched)

    def _account(self, host: BrokerHost, coordinators: Coordinators) -> None:
        """Check that a broker's groups fit its budget and that their memory is counted by shard."""
        memory = coordinators.memory
        held = sum(shard.state.memory.used for shard in coordinators.shards())
        if memory.pool.used != held or held > memory.budget:
            raise Violation(
                "GroupsWithinBudget",
                f"{host.name}: its groups take {held} bytes, {memory.pool.used} are counted, and "
                f"{memory.budget} there may be",
            )
        unloaded = sum(len(shard.state.unloaded) for shard in coordinators.shards())
        self.unloaded_most = max(self.unloaded_most, unloaded)

    def _compare(self, watched: _Watched) -> None:
        """Check G8: an active shard equals an independent replay of its log, once it has written
        everything that it decided in this turn."""
        shard, replay = watched.shard, watched.replay
        log = shard.hosted.log
        if not shard.leads:
            return
        touched = watched.again | self._replay(watched, log.log_end_offset)
        if shard.phase is not ShardPhase.ACTIVE or shard.state.end != log.log_end_offset:
            return
        loaded_again, watched.again = watched.again, {}
        if not watched.compared:
            watched.compared = True
            touched = dict.fromkeys((*shard.state.groups, *replay.groups))
        for group_id in touched:
            held, true = shard.state.groups.get(group_id), replay.groups.get(group_id)
            if shard.state.is_unloaded(group_id):
                continue  # nothing is told of it
            again = group_id in loaded_again and held is not None and held.holds_as(true)
            if held != true and not again:
                raise Violation(
                    "StateIsLog",
                    f"{shard.hosted!r}: group {group_id} is not what its log says up to "
                    f"{log.log_end_offset}: {shown(held)}, not {shown(true)}",
                )

    def _replay(self, watched: _Watched, end: int) -> dict[str, None]:
        """Replay the records that were added to the log since the last call, up to offset `end`.
        Return the groups that they are about, as keys."""
        hosted, replay = watched.shard.hosted, watched.replay
        start = max(replay.end, hosted.log.log_start_offset)
        touched: dict[str, None] = {}
        for place, record in group_records(hosted.log, start, end):
            if isinstance(record, OffsetForgotten) and not self._may_delete(record.group_id):
                self.expiries.forgotten(hosted.key, place, replay, record)
            self.written.saw(hosted.key, place, record)
            touched |= dict.fromkeys(replayed(replay, record, place.offset))
            if isinstance(record, TransactionMarked):
                continue
            self.expiries.saw(hosted.key, place, record)
            check_record(watched.history, record)
            self.generations.saw(record, place.offset)
            self._saw(record, place)
        return touched

    def _may_delete(self, group: str) -> bool:
        """Return True if the group's client may have requested a tombstone, and has committed
        nothing since."""
        told = self._told.get(group)
        return told is not None and told.least == NOTHING

    def _saw(self, record: GroupRecord, place: LogPlaceOfRecord) -> None:
        told = self._told.get(record.group_id)
        if told is not None and isinstance(record, OffsetCommitted | OffsetForgotten):
            offset = record.offset if isinstance(record, OffsetCommitted) else NOTHING
            if isinstance(record, OffsetCommitted):
                told.topics[offset] = record.topic, record.topic_id
            places = told.places.setdefault(offset, {})
            places.setdefault(place, self._now_us())

    def _has_expired(self, told: _ToldGroup, ghost: PartitionGhost) -> bool:
        """Return True if a committed tombstone was written when the newest commit below it was old
        enough to expire."""
        commits = {
            place: at_us
            for offset, places in told.places.items()
            for place, at_us in places.items()
            if offset != NOTHING and _is_committed(ghost, *place)
        }
        for gone, at_us in told.places.get(NOTHING, {}).items():
            below = (seen for place, seen in commits.items() if place.offset < gone.offset)
            # A commit is seen a moment after the broker stamped it.
            kept_us = at_us - max(below, default=0) + self._turn_us
            if kept_us >= self._retention_us and _is_committed(ghost, *gone):
                return True
        return False

    def _listen(self, broker_id: int, watched: _Watched) -> None:
        shard = watched.shard
        may_tell, loaded_again = shard.may_tell, shard.loaded_again

        def heard() -> bool:
            may = may_tell()
            if may:
                self._check_reader(broker_id, shard)
            return may

        def loaded(group_id: str) -> None:
            loaded_again(group_id)
            watched.again[group_id] = None

        shard.may_tell = heard  # type: ignore[method-assign]
        shard.loaded_again = loaded  # type: ignore[method-assign]

    def _check_reader(self, broker_id: int, shard: GroupShard) -> None:
        """Check G9: a shard that answers from memory was not replaced as leader for longer than a
        lease lasts."""
        ghost = self._ghost.partitions.get(shard.hosted.key)
        if ghost is None or self._ghost.restored or ghost.unclean_epoch > shard.leader.epoch:
            return
        window_ms = shard._manager.serving.lease.window_ms
        for epoch, since in ghost.led.items():
            for other, since_us in since.items():
                silent_ms = (self._now_us() - since_us) // 1_000
                newer = epoch > shard.leader.epoch and other != broker_id
                if newer and silent_ms > window_ms and self._violation is None:
                    # The client must not catch it: raised after the step.
                    self._violation = Violation(
                        "ReadUnderLease",
                        f"{ghost.name}: {broker_id} tells what it remembers of LE "
                        f"{shard.leader.epoch}, {silent_ms} ms after {other} began to lead at LE "
                        f"{epoch}",
                    )

    # --- what clients say -------------------------------------------------------------------------

    def _of(self, group: str) -> _ToldGroup:
        return self._told.setdefault(group, _ToldGroup())

    def _partition(self, group: str) -> PartitionGhost | None:
        """Return the partition that holds the group; None if its state cannot be known."""
        ghost = self._ghost
        return None if ghost.restored else ghost.coordinating(GROUP_OFFSETS, group)

    def committing(self, group: str, offset: int | None) -> None:
        told = self._of(group)
        if offset is None:
            told.least = NOTHING
        else:
            told.tried = max(told.tried, offset)

    def committed(self, group: str, offset: int | None) -> None:
        """Check G7: an acknowledged offset is committed. `offset` None: a
        tombstone."""
        self.commits += 1
        told = self._of(group)
        if offset is None:
            told.dead = told.tried
            return
        told.least = max(told.least, offset)
        self._check_place(group, offset, "acknowledged")

    def asks(self, group: str, host: str) -> AskedOffset:
        told = self._of(group)
        gone = self._newest_place(group, NOTHING)
        return AskedOffset(told.least, told.dead, gone, not self._leads(group, host))

    def _newest_place(self, group: str, offset: int) -> int:
        """Return the place of the newest committed record of this offset, or -1."""
        ghost, places = self._partition(group), self._of(group).places.get(offset, {})
        if ghost is None:
            return NOTHING
        return max((at for at, epoch in places if _is_committed(ghost, at, epoch)), default=NOTHING)

    def _leads(self, group: str, host: str) -> bool:
        ghost = self._partition(group)
        partition = None if ghost is None else self._ghost.image.partitions.get(ghost.key)
        return partition is not None and f"broker-{partition.leader}" == host

    def fetched(self, group: str, asked: object, offset: int) -> None:
        """Check an answer to OffsetFetch. G1 and G2: a leader's answer is not below what the client
        knew before its request, and not above what it has sent. G7: the answer is committed."""
        self.fetches += 1
        assert isinstance(asked, AskedOffset)
        told, ghost = self._of(group), self._partition(group)
        if ghost is None:
            return
        if offset > told.tried:
            raise Violation(
                "NothingUncommitted", f"{group}: {offset} is told, {told.tried} was sent at most"
            )
        if offset != NOTHING:
            self._check_place(group, offset, "told")
        elif not asked.deposed:
            self._check_nothing(group, ghost)
        if not asked.deposed:
            self._check_not_gone(group, asked, offset)
        if offset == NOTHING and self._has_expired(told, ghost):
            told.least = NOTHING
            return
        # A replaced leader that does not know it may answer with old state for one lease (G9).
        gone = self._went_with_topic(told, asked.least)
        if offset < asked.least and not asked.deposed and not gone:
            name = "CommitKept" if offset == NOTHING else "OffsetForward"
            raise Violation(
                name, f"{group}: {offset} is told, after {asked.least} was told or acknowledged"
            )
        if not asked.deposed and told.least != NOTHING:
            told.least = max(told.least, offset)

    def _went_with_topic(self, told: _ToldGroup, offset: int) -> bool:
        """Return True if the topic for which this offset was committed was removed."""
        if offset not in told.topics:
            return False
        name, topic_id = told.topics[offset]
        return topic_id is not None and self._ghost.image.topic_ids.get(name) != topic_id

    def _check_not_gone(self, group: str, asked: AskedOffset, offset: int) -> None:
        """Check that a deleted or expired offset does not come back."""
        if NOTHING < offset <= asked.dead:
            raise Violation("OffsetForward", f"{group}: {offset} is told, which was deleted")
        if NOTHING < self._newest_place(group, offset) < asked.gone and offset != NOTHING:
            raise Violation("OffsetForward", f"{group}: {offset} is told, which had expired")

    def _check_nothing(self, group: str, ghost: PartitionGhost) -> None:
        """Check G7: an answer that nothing is committed is given only once the tombstone is
        committed."""
        newest = {NOTHING: NOTHING}
        newest |= {each: self._newest_place(group, each) for each in self._of(group).places}
        gone = newest.pop(NOTHING)
        latest = max(newest, key=lambda each: newest[each], default=NOTHING)
        if newest.get(latest, NOTHING) > gone and not self._went_with_topic(
            self._of(group), latest
        ):
            raise Violation(
                "NothingUncommitted",
                f"{group}: told that nothing is committed, and {max(newest)} is, in {ghost.name}",
            )

    def _check_place(self, group: str, offset: int, what: str) -> None:
        """Check G7: an answer only reflects records below the true high watermark. `what`: the
        answer, for the violation."""
        ghost, places = self._partition(group), self._of(group).places.get(offset, {})
        if ghost is None or not places:
            return
        if not any(_is_committed(ghost, *place) for place in places):
            raise Violation(
                "NothingUncommitted",
                f"{group}: {offset} is {what}, at {list(places)} in {ghost.name}, committed up to "
                f"{ghost.true_high_watermark}",
            )


def _is_committed(ghost: PartitionGhost, place: int, epoch: int) -> bool:
    """Return True if a record with this leader epoch at offset `place` is below the true high
    watermark."""
    at = bisect_left(ghost.committed, place, key=lambda batch: batch.last)
    if at == len(ghost.committed):
        return place < ghost.start
    return ghost.committed[at].base > place or ghost.committed[at].epoch == epoch
