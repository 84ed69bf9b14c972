"""OffsetCommit, TxnOffsetCommit and OffsetFetch: commits and reads a group's offsets.

Called by `groups.step`. An offset belongs to a topic id: a topic that is deleted and created again
does not inherit it. An offset in a transaction is pending until the transaction ends. Sources:
KIP-98 (generations, transactions), KIP-345 (static members), KIP-447, KIP-709,
KIP-848 (error codes from version 9); docs/protocol.md §5.8."""

from __future__ import annotations

from uuid import UUID

from plimsoll_core.coordination.outcome import CoordinatorOutcome, RefusedAsWhole, Reply, refuse
from plimsoll_core.errors import Code
from plimsoll_core.groups.checks import check_begins, no_room, owner_of
from plimsoll_core.groups.classic.seats import check_member, find, prolong
from plimsoll_core.groups.classic_group import Completing, Empty
from plimsoll_core.groups.memory import (
    GROUP_BYTES,
    TOPIC_BYTES,
    offset_bytes,
    pending_bytes,
    text_bytes,
)
from plimsoll_core.groups.operations import (
    AllOffsetsFetched,
    CommitOffsets,
    FetchAllOffsets,
    FetchedOffset,
    FetchOffsets,
    OffsetsCommitted,
    OffsetsFetched,
    Operation,
    PartitionCode,
    PartitionOffset,
    fetched,
)
from plimsoll_core.groups.records import GroupRecord, OffsetCommitted, OffsetPending
from plimsoll_core.groups.settings import PENDING_MAX
from plimsoll_core.groups.state import CommittedOffset
from plimsoll_core.groups.turn import ExpiryDue, GroupTurn


def commit_offsets(
    turn: GroupTurn, op: CommitOffsets, token: object
) -> CoordinatorOutcome[GroupRecord, Operation]:
    """Commit offsets: one record for each partition that may be committed. Each other partition
    gets an error in the answer."""
    owner = owner_of(turn, op.group_id, op.principal)
    refusal = check_committer(turn, op) if op.producer is None else _check_transactional(turn, op)
    room = _RoomOfCommit(turn, op, owner)
    if refusal is None and not check_begins(turn, op.group_id, owner):
        refusal = no_room(op.group_id, owner, room.code)
    if refusal is not None:
        return CoordinatorOutcome(key=op.group_id, replies=(Reply(token, refusal),))
    codes: list[PartitionCode] = []
    records: list[GroupRecord] = []
    for offset in op.offsets:
        code = _check(turn, offset)
        if code is Code.NONE and not room.admits(offset):
            code = room.code
        codes.append(PartitionCode(offset.topic, offset.partition, code))
        if code is Code.NONE:
            records.append(_record(turn, op, offset, owner))
    expiry = ExpiryDue(op.group_id)
    if records and expiry not in turn.soft.deadlines:
        turn.soft.deadlines.set(expiry, turn.now_ms + turn.settings.retention_check_ms)
    return CoordinatorOutcome(
        key=op.group_id,
        records=tuple(records),
        replies=(Reply(token, OffsetsCommitted(tuple(codes))),),
    )


class _RoomOfCommit:
    """Decides which offsets of one request fit the owner's memory. An offset that takes no more
    than the one it replaces is always admitted, so that running consumers continue when memory is
    full. An offset in a transaction is held beside the committed one. `code`: the error for one
    that does not fit; producers of transactions try again."""

    def __init__(self, turn: GroupTurn, op: CommitOffsets, owner: str) -> None:
        self._memory = turn.state.memory.of_broker
        self._owner = owner
        self._producer = op.producer
        group = turn.state.groups.get(op.group_id)
        self._held = {} if group is None else group.offsets
        self._pending = None if group is None else group.pending
        self._grown = GROUP_BYTES + text_bytes(op.group_id) if group is None else 0
        transactional = op.producer is not None
        self.code = (
            Code.COORDINATOR_LOAD_IN_PROGRESS if transactional else Code.INVALID_COMMIT_OFFSET_SIZE
        )
        # Bytes of this request's offsets, by topic and partition.
        self._asked: dict[tuple[str, int], int] = {}
        self._topics: set[str] = set()

    def admits(self, offset: PartitionOffset) -> bool:
        if self._producer is not None:
            return self._admits_pending(offset, self._producer.producer_id)
        place = (offset.topic, offset.partition)
        size_bytes = offset_bytes(offset.metadata)
        before = self._asked.get(place, 0)
        held = self._held.get(offset.topic)
        if not before and held is not None and offset.partition in held:
            before = offset_bytes(held[offset.partition].metadata)
        more = size_bytes - before
        if held is None and offset.topic not in self._topics:
            more += TOPIC_BYTES
        if more > 0 and not self._memory.admits(self._owner, self._grown + more):
            return False
        self._grown += more
        self._asked[place] = size_bytes
        self._topics.add(offset.topic)
        return True

    def _admits_pending(self, offset: PartitionOffset, producer_id: int) -> bool:
        place = (offset.topic, offset.partition)
        known = None if self._pending is None else self._pending.of(producer_id, *place)
        before = 0 if known is None else pending_bytes(known.record.metadata)
        more = pending_bytes(offset.metadata) - self._asked.get(place, before)
        if more > 0 and not self._memory.admits(self._owner, self._grown + more):
            return False
        self._grown += more
        self._asked[place] = pending_bytes(offset.metadata)
        return True


def check_committer(turn: GroupTurn, op: CommitOffsets) -> RefusedAsWhole | None:
    """Renew the session and return None if the commit is of a member in the group's present
    generation, and that generation is stored; otherwise return the refusal. A group without members
    accepts only commits that state no generation."""
    group = find(turn, op.group_id)
    if group is None or isinstance(group.phase, Empty):
        return _check_nobody(turn, op)
    # One that names no member is none either.
    code = check_member(group, op.member_id, op.group_instance_id)
    if code is not Code.NONE:
        return RefusedAsWhole(code)
    if op.generation != group.generation:
        return RefusedAsWhole(Code.ILLEGAL_GENERATION)
    durable = turn.state.groups.get(op.group_id)
    stored = None if durable is None else durable.stored
    is_stored = stored is not None and stored.generation == group.generation
    if isinstance(group.phase, Completing) or not is_stored:
        # It is not known yet what this generation consumes.
        return RefusedAsWhole(Code.REBALANCE_IN_PROGRESS)
    prolong(turn, group, group.members[op.member_id])
    return None


def _check_transactional(turn: GroupTurn, op: CommitOffsets) -> RefusedAsWhole | None:
    """Return None if offsets may be added to a transaction, otherwise the refusal. A producer that
    names no member, as those before KIP-447, may commit for any group. A member may commit during a
    rebalance too: its producers know no error for that."""
    assert op.producer is not None
    if turn.state.pending_of(op.producer.producer_id) + len(op.offsets) > PENDING_MAX:
        message = (
            f"The transaction would commit more than {PENDING_MAX} offsets of groups in one "
            "partition of __consumer_offsets: commit it more often."
        )
        return RefusedAsWhole(Code.INVALID_COMMIT_OFFSET_SIZE, message)
    if op.generation < 0 and not op.member_id and op.group_instance_id is None:
        return None
    group = find(turn, op.group_id)
    if group is None or isinstance(group.phase, Empty):
        return _check_nobody(turn, op)
    code = check_member(group, op.member_id, op.group_instance_id)
    if code is Code.NONE and op.generation != group.generation:
        code = Code.ILLEGAL_GENERATION
    return None if code is Code.NONE else RefusedAsWhole(code)


def _check_nobody(turn: GroupTurn, op: CommitOffsets) -> RefusedAsWhole | None:
    if op.generation < 0:
        return None
    if op.group_id in turn.state.groups:
        return RefusedAsWhole(Code.UNKNOWN_MEMBER_ID)
    known = op.tells_missing_groups
    return RefusedAsWhole(Code.GROUP_ID_NOT_FOUND if known else Code.ILLEGAL_GENERATION)


def _check(turn: GroupTurn, offset: PartitionOffset) -> Code:
    if len(offset.metadata.encode()) > turn.settings.metadata_bytes_max:
        return Code.OFFSET_METADATA_TOO_LARGE
    known = turn.has_partition(offset.topic, offset.partition)
    return Code.NONE if known else Code.UNKNOWN_TOPIC_OR_PARTITION


def _record(
    turn: GroupTurn, op: CommitOffsets, offset: PartitionOffset, owner: str
) -> OffsetCommitted | OffsetPending:
    retention_ms = op.retention_ms
    commit = OffsetCommitted(
        group_id=op.group_id,
        topic=offset.topic,
        partition=offset.partition,
        offset=offset.offset,
        leader_epoch=offset.leader_epoch,
        metadata=offset.metadata,
        commit_ms=turn.wall_ms,
        expire_ms=None if retention_ms is None else turn.wall_ms + retention_ms,
        topic_id=turn.image.topic_ids[offset.topic],
        owner=owner,
    )
    return commit if op.producer is None else OffsetPending(producer=op.producer, commit=commit)


_DOUBTFUL = (
    "A topic of this group may have been deleted. Until this broker has the newest metadata, it "
    "does not know whether the topic's offsets are valid: retry."
)


def fetch_offsets(
    turn: GroupTurn, op: FetchOffsets, token: object
) -> CoordinatorOutcome[GroupRecord, Operation]:
    """Answer with the committed offsets of the requested partitions. For an unknown group or
    partition the offset is -1, which is not an error. Refuse the request with
    COORDINATOR_LOAD_IN_PROGRESS if this broker's metadata may be too old to tell whether a topic
    was deleted. If only stable offsets are wanted, an offset that an open transaction may replace
    is not told (KIP-447)."""
    group = turn.state.groups.get(op.group_id)
    held = {} if group is None else group.offsets
    found: list[FetchedOffset] = []
    for topic, partition in op.partitions:
        committed = held.get(topic, {}).get(partition)
        if op.stable and group is not None and group.is_pending(topic, partition):
            found.append(FetchedOffset(topic, partition, is_stable=False))
        elif committed is None:
            found.append(FetchedOffset(topic, partition))
        elif _is_of(committed, turn.image.topic_ids.get(topic)):
            found.append(fetched(topic, partition, committed))
        elif turn.image_is_fresh:
            found.append(FetchedOffset(topic, partition))
        else:
            return refuse(op.group_id, token, Code.COORDINATOR_LOAD_IN_PROGRESS, _DOUBTFUL)
    answer = OffsetsFetched(tuple(found))
    return CoordinatorOutcome(key=op.group_id, replies=(Reply(token, answer),))


def fetch_all_offsets(
    turn: GroupTurn, op: FetchAllOffsets, token: object
) -> CoordinatorOutcome[GroupRecord, Operation]:
    """Answer with all committed offsets of a group, or refuse the request as `fetch_offsets` does.
    The dictionaries are copied and no offset is converted, so it is fast for any number of
    offsets."""
    group = turn.state.groups.get(op.group_id)
    topics: dict[str, dict[int, CommittedOffset]] = {}
    for topic, held in {} if group is None else group.offsets.items():
        topic_id = turn.image.topic_ids.get(topic)
        # A topic's offsets share one value of their topic's id, or few.
        ids = {id(one.topic_id): one for one in held.values()}
        if all(_is_of(one, topic_id) for one in ids.values()):
            topics[topic] = held.copy()
        elif turn.image_is_fresh:
            topics[topic] = {at: one for at, one in held.items() if _is_of(one, topic_id)}
        else:
            return refuse(op.group_id, token, Code.COORDINATOR_LOAD_IN_PROGRESS, _DOUBTFUL)
    unstable: frozenset[tuple[str, int]] = frozenset()
    if op.stable and group is not None and group.pending is not None:
        unstable = group.pending.partitions()
    answer = AllOffsetsFetched(topics, unstable)
    return CoordinatorOutcome(key=op.group_id, replies=(Reply(token, answer),))


def _is_of(committed: CommittedOffset, topic_id: UUID | None) -> bool:
    """Return True if the offset was committed for `topic_id`, the topic that has this name now.
    Return True also for an offset without a topic id, which belongs to any topic of the name."""
    return committed.topic_id is None or committed.topic_id == topic_id
