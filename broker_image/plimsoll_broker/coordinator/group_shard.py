"""GroupShard: the groups of one partition of `__consumer_offsets`, for one leader epoch here.

Made when this broker begins to lead the partition, dropped when that ends. An operation is decided
in the call itself, so that a connection's requests keep their order, or held in that order while
the shard loads; only commits are awaited. It decides nothing: `plimsoll_core.groups.step` does, and
only `apply` changes durable state. Source: docs/protocol.md §5.8.

`DeadlineTimer`: one timer of the event loop, at the earliest deadline of a shard. The soft state
holds the deadlines; an expired one is decided like any other operation. A few are handled at a
time, so that other tasks run. After this process has been paused, heartbeats that wait in the
sockets count first.

`HeldOperations`: operations for a loading shard, held in order until it is active, for a few
seconds. Clients repeat a commit two or three times within a third of a second and then give up; a
load takes longer on a busy volume. Source: docs/protocol.md §5.8.

`TurnAppends`: a shard's records of one turn of the event loop, written at its end as one batch.
Records that exceed `max.message.bytes` become several batches. A failing disk takes the replica
offline, and the shard with it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Hashable, Iterator
from enum import Enum
from typing import Protocol

from plimsoll_broker.background import in_slices
from plimsoll_broker.coordinator.answers import Asker, WaitingReplies
from plimsoll_broker.replication.hosted_partitions import Hosted
from plimsoll_broker.replication.replica_manager import ReplicaManager
from plimsoll_core.coordination.deadlines import Deadlines
from plimsoll_core.coordination.outcome import RefusedAsWhole
from plimsoll_core.errors import Code
from plimsoll_core.groups.memory import GroupMemory
from plimsoll_core.groups.operations import DeleteGroup, DeleteUnloaded, GroupShrunk, Operation
from plimsoll_core.groups.records import GroupRecord
from plimsoll_core.groups.settings import GroupSettings
from plimsoll_core.groups.state import GroupsState, apply, skip
from plimsoll_core.groups.step import GroupOutcome, due, loaded, loaded_again, step
from plimsoll_core.groups.turn import GroupTurn, SoftState
from plimsoll_core.late_timers import LateTimer
from plimsoll_core.replica.commit import AckWaiter
from plimsoll_core.replica.leader import Leader
from plimsoll_core.replica.replica import may_append, next_place
from plimsoll_wire.batches import HEADER_SIZE, parse_header
from plimsoll_wire.coordinator_records import UnknownGroupRecord, encode_group_record
from plimsoll_wire.record_sets import KeyValue, size_of, write_batch

AT_ONCE = 20
"""The most deadlines handled in one turn of the event loop."""


class DeadlineTimer:
    """Calls `due` with the key of each deadline that has passed, and removes the deadline; at most
    AT_ONCE in a turn of the event loop. `deadlines`: times in ms by key, on the clock of `now_ms`.
    If the process was paused, passed deadlines are handled later, so that heartbeats that wait in
    the sockets are read first."""

    def __init__(
        self,
        deadlines: Deadlines,
        now_ms: Callable[[], int],
        due: Callable[[Hashable], None],
    ) -> None:
        self._deadlines = deadlines
        self._now_ms = now_ms
        self._due = due
        # The time that the loop's timer is set to, or None if it is not set.
        self._at_ms: int | None = None
        self._handle: asyncio.TimerHandle | None = None
        # When the loop's timer should fire: a deadline may have passed before it was set.
        self._expected_ms = 0
        self._late = LateTimer()
        # No deadline expires before this.
        self._not_before_ms = 0

    def arm(self) -> None:
        """Set the event loop's timer to the earliest deadline; unset it if there is none. Call this
        after each change of `deadlines`."""
        earliest_ms = self._deadlines.earliest_ms()
        at_ms = None if earliest_ms is None else max(earliest_ms, self._not_before_ms)
        if at_ms == self._at_ms:
            return
        self.cancel()
        if at_ms is not None:
            now_ms = self._now_ms()
            self._at_ms, self._expected_ms = at_ms, max(at_ms, now_ms)
            wait_s = (self._expected_ms - now_ms) / 1000
            self._handle = asyncio.get_running_loop().call_later(wait_s, self._fired)

    def cancel(self) -> None:
        """Unset the timer."""
        if self._handle is not None:
            self._handle.cancel()
        self._handle = self._at_ms = None

    def _fired(self) -> None:
        """Remove up to AT_ONCE passed deadlines and call `due` for each; or, if the timer was late
        because the process was paused, leave them for later. Then set the timer again."""
        self._handle = self._at_ms = None
        now_ms = self._now_ms()
        not_before_ms = self._late.not_before_ms(self._expected_ms, now_ms)
        if not_before_ms is not None:
            self._not_before_ms = not_before_ms
        else:
            for key in self._deadlines.take_due(now_ms, AT_ONCE):
                self._due(key)
        self.arm()


HELD_MS_MAX = 5_000
"""The longest time in ms that an operation waits for its shard to load. It is below any client's
request timeout."""
HELD_MAX = 1_000
"""The most operations held for one loading shard; further ones are refused at once."""

_LOADS = RefusedAsWhole(Code.COORDINATOR_LOAD_IN_PROGRESS)


class HeldOperations:
    """Holds the operations that arrive while a shard is loading, in order, each for at most
    HELD_MS_MAX. `now_ms`: the monotonic clock."""

    __slots__ = ("_deadlines", "_now_ms", "_ops", "_timer")

    def __init__(self, now_ms: Callable[[], int]) -> None:
        self._now_ms = now_ms
        # In order of arrival. None stands for an operation without an asker.
        self._ops: dict[Asker, tuple[Operation, Asker | None]] = {}
        self._deadlines = Deadlines()
        self._timer = DeadlineTimer(self._deadlines, now_ms, self._waited_enough)

    def __bool__(self) -> bool:
        """Return True if any operation is held; later ones must then be held behind it."""
        return bool(self._ops)

    def add(self, op: Operation, asker: Asker | None) -> None:
        """Hold an operation. Its asker gets COORDINATOR_LOAD_IN_PROGRESS now if HELD_MAX are held
        already, or once the operation was held for HELD_MS_MAX. `asker` is None for an operation
        that follows from an earlier one and needs no answer; it does not count against HELD_MAX,
        and is dropped after HELD_MS_MAX."""
        if asker is not None and len(self._ops) >= HELD_MAX:
            asker.answer(_LOADS)
            return
        key = Asker() if asker is None else asker
        self._ops[key] = op, asker
        self._deadlines.set(key, self._now_ms() + HELD_MS_MAX)
        self._timer.arm()

    def take(self) -> Iterator[tuple[Operation, Asker | None]]:
        """Remove and yield the operations in order, including those that are added meanwhile."""
        while self._ops:
            key = next(iter(self._ops))
            self._deadlines.clear(key)
            yield self._ops.pop(key)
        self._timer.cancel()

    def refuse(self, code: Code) -> None:
        """Remove all operations, and answer those with an asker with this error code."""
        for _, asker in self.take():
            if asker is not None:
                asker.answer(RefusedAsWhole(code))

    def _waited_enough(self, key: Hashable) -> None:
        """Refuse the operation with this key, because it was held for HELD_MS_MAX."""
        assert isinstance(key, Asker)
        del self._ops[key]
        key.answer(_LOADS)


RECORDS_AT_ONCE = 10_000
"""The most records in one batch."""


class TurnAppends:
    """Collects the records that one shard decides in a turn of the event loop, and appends them to
    the log at its end. For one partition and leader epoch."""

    __slots__ = ("_due", "_hosted", "_leader", "_manager", "_queue")

    def __init__(self, manager: ReplicaManager, hosted: Hosted, leader: Leader) -> None:
        self._manager = manager
        self._hosted = hosted
        self._leader = leader
        # Records that are decided and applied, to be written before other tasks run.
        self._queue: list[KeyValue] = []
        self._due = False

    @property
    def next_offset(self) -> int:
        """The offset that the next added record will have."""
        return self._hosted.log.log_end_offset + len(self._queue)

    @property
    def record_bytes_max(self) -> int:
        """The bytes of records that one batch may hold (max.message.bytes less the header)."""
        return self._hosted.max_message_bytes - HEADER_SIZE

    def fits(self, record: KeyValue) -> bool:
        """Return True if one batch can hold the record."""
        return size_of(record) <= self.record_bytes_max

    def add(self, records: list[KeyValue]) -> None:
        """Queue records, in order after those queued before, to be appended at the end of this turn
        of the event loop."""
        self._queue += records
        if not self._due:
            self._due = True
            asyncio.get_running_loop().call_soon(self.write)

    def write(self) -> None:
        """Append all queued records: as one batch if they fit, otherwise as several. Drop what is
        left once this leader epoch has ended or the disk has failed. A bug here is on the commit
        path, so it is not caught."""
        self._due = False
        queue, self._queue = self._queue, []
        hosted, manager = self._hosted, self._manager
        stamp_ms = manager.wall_clock.stamp_ms()
        for records in self._batches(queue):
            place = next_place(hosted.replica, self._leader)
            if place is None:
                return  # leadership ended; the replica has failed the waiting requests
            data = write_batch(records, stamp_ms)
            header = parse_header(data)
            written = manager.driver.append_produced(hosted, memoryview(data), header, place, None)
            manager.touch(hosted)
            if not written:
                return
            manager.traffic.bytes_in += header.length
            manager.traffic.records_in += header.count

    def _batches(self, queue: list[KeyValue]) -> Iterator[list[KeyValue]]:
        """Yield the records in order, in portions of at most RECORDS_AT_ONCE records that fit in
        one batch of max.message.bytes."""
        room = self._hosted.max_message_bytes - HEADER_SIZE
        batch: list[KeyValue] = []
        size = 0
        for record in queue:
            more = size_of(record)
            if batch and (size + more > room or len(batch) >= RECORDS_AT_ONCE):
                yield batch
                batch, size = [], 0
            batch.append(record)
            size += more
        if batch:
            yield batch


DELETIONS_MAX = 1_000
"""The most groups of one shard that wait to be deleted after their keys are read from the log."""


class ShardPhase(Enum):
    """The phase of a shard. Only an active shard answers from its state."""

    LOADING = "Loading"
    ACTIVE = "Active"
    FAILED = "Failed"
    GONE = "Gone"


class GivesUp(Protocol):
    """A pass through a shard's log that loads unloaded groups again (`Rereading`); only the methods
    that the shard itself calls."""

    def give_up(self, group_id: str) -> None:
        """Ignore the further records of this group in this pass, because there is no memory for the
        group; the group stays unloaded."""

    def give_up_all(self) -> None:
        """Call `give_up` for each group of which this pass has applied records, or may apply."""


class GroupShard:
    """Coordinates the groups of one partition of `__consumer_offsets`, for one leader epoch.
    `leader`: the replica's object for this leader epoch; a later epoch has another object and
    another shard. `kick`: wakes the task of `Coordinators`. Used from the event loop."""

    def __init__(
        self,
        manager: ReplicaManager,
        hosted: Hosted,
        leader: Leader,
        settings: GroupSettings,
        memory: GroupMemory | None = None,
    ) -> None:
        self.kick: Callable[[], None] = lambda: None
        self.hosted = hosted
        self.leader = leader
        self.phase = ShardPhase.LOADING
        self.state = GroupsState(memory)
        self.soft = SoftState()
        # When the wait for its load began, on the monotonic clock.
        self.begun_ms = manager.now_ms()
        # On the monotonic clock; None until it is active.
        self.active_since_ms: int | None = None
        # True if offsets of deleted topics must be looked for, once metadata are fresh.
        self.sweep_due = True
        # Kinds of records in its log that only a newer release knows.
        self.unknown: set[UnknownGroupRecord] = set()
        self._manager = manager
        self._settings = settings
        self._clock = manager.wall_clock
        self._appends = TurnAppends(manager, hosted, leader)
        self._timer = DeadlineTimer(self.soft.deadlines, manager.now_ms, self._due)
        self._fresh = False
        # Requests that are parked and not answered.
        self._parked: dict[Asker, None] = {}
        # By group: askers for the deletion of a group that is not loaded for lack of memory.
        self.deletions: dict[str, list[Asker]] = {}
        # The pass through its log that looks for such groups; None: there is none.
        self.rereading: GivesUp | None = None
        # True if unloaded groups are to be loaded again when there is room.
        self.reload_due = False
        # When that is tried in any case.
        self.reload_ms = 0
        # Operations that came while it loads.
        self._held = HeldOperations(manager.now_ms)

    # --- its life -------------------------------------------------------------------------------

    @property
    def leads(self) -> bool:
        """True while this broker leads the partition in the shard's leader epoch."""
        return self.hosted.replica.leader is self.leader and self.phase is not ShardPhase.GONE

    def replay(self, record: GroupRecord, offset: int) -> None:
        """Apply a record read from the log while loading. A record of a group that was unloaded
        meanwhile is skipped."""
        if self.state.is_unloaded(record.group_id):
            self.skip(offset)
        else:
            apply(self.state, record, offset)

    def apply(self, record: GroupRecord, offset: int) -> None:
        """Apply a record of an unloaded group that is being loaded again."""
        apply(self.state, record, offset)

    def unload(self, group_id: str) -> None:
        """Drop a group's state for lack of memory; its records stay in the log. Its clients get
        COORDINATOR_LOAD_IN_PROGRESS until it is loaded again."""
        self.state.unload(group_id)
        if self.rereading is not None:
            self.rereading.give_up(group_id)

    def forget_unloaded(self) -> None:
        """Forget the names of all unloaded groups. A group that is being read again is dropped with
        them: the rest of its records would make half a group."""
        self.state.forget_unloaded()
        if self.rereading is not None:
            self.rereading.give_up_all()

    @property
    def holds_back(self) -> bool:
        """True if the shard's log has groups that are not loaded for lack of memory."""
        return bool(self.state.unloaded) or self.state.more_unloaded

    def may_unload(self, group_id: str) -> bool:
        """Return True if the group is loaded and may be unloaded: it has no members, or the shard
        is still loading."""
        group = self.state.groups.get(group_id)
        if group is None:
            return False
        return self.phase is ShardPhase.LOADING or group_id not in self.soft.classic

    def loaded_again(self, group_id: str) -> None:
        """Admit operations of an unloaded group again and set its timers, since all of its records
        have been read again."""
        loaded_again(self._turn(), group_id)
        self._timer.arm()

    def skip(self, offset: int) -> None:
        """Count the record at `offset` as replayed, although it is not applied."""
        skip(self.state, offset)

    def activate(self) -> None:
        """Change the phase from LOADING to ACTIVE, since the whole log has been applied, and set
        the timers of its groups."""
        assert self.phase is ShardPhase.LOADING, self.phase
        self.phase = ShardPhase.ACTIVE
        self.active_since_ms = self._manager.now_ms()
        loaded(self._turn())
        self._timer.arm()

    async def decide_held(self) -> None:
        """Decide the operations that arrived while the shard was loading, in order. New ones are
        held behind them."""
        async for op, asker in in_slices(self._held.take()):
            self.decide(op, asker)

    def fail(self) -> None:
        """Change the phase to FAILED, since the log cannot be read as a whole: free the groups'
        memory, and refuse held and later operations with NOT_COORDINATOR. Part of a log is never
        served."""
        self.phase = ShardPhase.FAILED
        self._let_go()
        self._held.refuse(Code.NOT_COORDINATOR)

    def drop(self) -> None:
        """Change the phase to GONE, since the leader epoch has ended, and free the groups' memory.
        Operations that are held, or wait for other members (parked), get NOT_COORDINATOR. The
        replica itself answers those that wait for a commit."""
        self.phase = ShardPhase.GONE
        self._timer.cancel()
        self._let_go()
        self._held.refuse(Code.NOT_COORDINATOR)
        parked, self._parked = self._parked, {}
        for asker in parked:
            asker.answer(RefusedAsWhole(Code.NOT_COORDINATOR))

    def _let_go(self) -> None:
        """Release the memory of the shard's groups. Waiting deletions of unloaded groups get
        NOT_COORDINATOR."""
        self.state.memory.close()
        deletions, self.deletions = self.deletions, {}
        for asker in (one for askers in deletions.values() for one in askers):
            asker.answer(RefusedAsWhole(Code.NOT_COORDINATOR))

    # --- being asked ----------------------------------------------------------------------------

    def ask(self, op: Operation) -> Asker:
        """Decide the operation now, or once the shard is loaded. Return its asker, which gets the
        answer now or later."""
        asker = Asker()
        if self.leads and (self.phase is ShardPhase.LOADING or self._held):
            self._held.add(op, asker)
        else:
            self.decide(op, asker)
        return asker

    def order(self, op: Operation) -> None:
        """Decide an operation that needs no answer, now or once the shard is loaded."""
        if self.leads and self.phase is ShardPhase.LOADING:
            self._held.add(op, None)
        else:
            self.decide(op, None)

    def may_tell(self) -> bool:
        """Return True if replies may reveal the shard's state now: this broker leads the partition
        in the shard's leader epoch and holds the leader lease."""
        return self.leads and self._manager.serving.holds(self.hosted)

    @property
    def metadata_fresh(self) -> bool:
        """True if this broker has applied all metadata that were committed when the shard became
        active."""
        if not self._fresh and self.active_since_ms is not None:
            self._fresh = self._manager.serving.knows_since(self.active_since_ms)
        return self._fresh

    def _turn(self) -> GroupTurn:
        """Return what `plimsoll_core.groups.step` needs to decide an operation now: state, metadata
        and clocks."""
        image = self._manager.image
        assert image is not None, "it leads"
        return GroupTurn(
            state=self.state,
            soft=self.soft,
            settings=self._settings,
            image=image,
            image_is_fresh=self.metadata_fresh,
            now_ms=self._manager.now_ms(),
            wall_ms=self._clock.stamp_ms(),
            believed_ms=self._clock.now_ms(),
            record_bytes_max=self._appends.record_bytes_max,
        )

    def decide(self, op: Operation, asker: Asker | None) -> None:
        """Decide the operation now, even if others are held. A deletion of an unloaded group is
        queued instead. A shard that is not active, or no longer leads, answers NOT_COORDINATOR.
        `asker`: None if no answer is needed."""
        if self.phase is ShardPhase.ACTIVE and self.leads:
            if isinstance(op, DeleteGroup) and self.state.is_unloaded(op.group_id):
                self._delete_later(op.group_id, asker)
                return
            self._carry_out(step(self._turn(), op, asker), asker)
            if self.state.memory.of_broker.wants_room:
                self.kick()
            self._timer.arm()
        elif asker is not None:
            asker.answer(RefusedAsWhole(Code.NOT_COORDINATOR))

    def _delete_later(self, group_id: str, asker: Asker | None) -> None:
        """Queue the deletion of an unloaded group: its keys must first be read from the log; the
        task of `Coordinators` does that. Answer COORDINATOR_LOAD_IN_PROGRESS if DELETIONS_MAX
        groups wait. Do nothing without an asker."""
        if asker is None:
            return
        if group_id not in self.deletions and len(self.deletions) >= DELETIONS_MAX:
            asker.answer(RefusedAsWhole(Code.COORDINATOR_LOAD_IN_PROGRESS))
            return
        self.deletions.setdefault(group_id, []).append(asker)
        self.kick()

    async def delete_unloaded(self, group_id: str) -> object:
        """Delete, in steps, an unloaded group after its keys were read from the log. Return the
        client's answer once all tombstones are committed."""
        while True:
            asker = Asker()
            self.decide(DeleteUnloaded(group_id=group_id), asker)
            answer = await asker.future()
            if not isinstance(answer, GroupShrunk):
                return answer

    # --- carrying out ---------------------------------------------------------------------------

    def _carry_out(self, outcome: GroupOutcome, asker: Asker | None) -> None:
        """Carry out a decision: send its immediate answers, apply and append its records, and have
        the other replies wait until the last record of the group is committed. If the records
        cannot be appended, these replies get the error. `asker`: recorded as parked if the
        operation waits for other members."""
        for token, answer in outcome.at_once:
            assert isinstance(token, Asker)
            token.answer(answer)
        if outcome.parked and asker is not None:
            self._parked[asker] = None
        for token, _ in outcome.replies:
            assert isinstance(token, Asker)
            self._parked.pop(token, None)
        waiting = self._waiting(outcome)
        code = self._append(outcome.key, outcome.records)
        if code is not Code.NONE:
            waiting.answer(code)
            return
        self.state.committed(self.hosted.replica.high_watermark)
        required = self.state.written_to(outcome.key)
        if required <= self.hosted.replica.high_watermark:
            waiting.answer(Code.NONE)
            return
        deadline_ms = self._manager.now_ms() + self._settings.commit_timeout_ms
        self.hosted.replica.wait_for_commit(AckWaiter(required, deadline_ms, waiting))
        self._manager.touch(self.hosted)

    def _waiting(self, outcome: GroupOutcome) -> WaitingReplies:
        """Return the replies of an outcome that wait for a commit."""
        make = outcome.then

        def then(code: Code) -> None:
            assert make is not None
            self.order(make(code))

        return WaitingReplies(
            self, outcome.replies, None if make is None else then, written=bool(outcome.records)
        )

    def _append(self, group_id: str | None, records: tuple[GroupRecord, ...]) -> Code:
        """Apply the records to the state and queue them for the log at the end of this turn: all of
        them, or none. Charge their bytes to the group's owner. Return NONE, or the error: this
        broker may not append, or a record does not fit in a batch (MESSAGE_TOO_LARGE)."""
        if not records:
            return Code.NONE
        code = may_append(self.hosted.replica, self.leader)
        if code is not Code.NONE:
            return code
        encoded = [encode_group_record(record) for record in records]
        if not all(self._appends.fits(one) for one in encoded):
            return Code.MESSAGE_TOO_LARGE
        # Looked up before and after: a record may make or remove the group.
        group = self.state.groups.get(group_id or "")
        for offset, record in enumerate(records, self._appends.next_offset):
            apply(self.state, record, offset)
        group = group or self.state.groups.get(group_id or "")
        if group is not None and group.owner:
            size = sum(map(size_of, encoded))
            self.state.memory.of_broker.rate.charge(group.owner, size, self._manager.now_ms())
            self._manager.disk_shares.recorded(group.owner, size)
        self._appends.add(encoded)
        return Code.NONE

    # --- time -----------------------------------------------------------------------------------

    def _due(self, key: object) -> None:
        """Decide the operation that belongs to a deadline that has passed."""
        self.order(due(key))  # type: ignore[arg-type]
