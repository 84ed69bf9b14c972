"""CoordinatorShard: the part of one internal topic's partition that all coordinators' shards have.

A shard is made when this broker begins to lead the partition, and dropped when that ends. An
operation is decided in the call itself, so that a connection's requests keep their order, or held
in that order while the shard loads; only commits are awaited. It decides nothing: the `step` of its
kind does, and only that kind's `apply` changes durable state. `group_shard` and `transaction_shard`
are the kinds. Source: docs/protocol.md §5.8.

`DeadlineTimer`: one timer of the event loop, at the earliest deadline of a shard. The soft state
holds the deadlines; an expired one is decided like any other operation. A few are handled at a
time, so that other tasks run. After this process has been paused, heartbeats that wait in the
sockets count first.

`HeldOperations`: operations for a loading shard, held in order until it is active, for a few
seconds. Clients repeat a commit two or three times within a third of a second and then give up; a
load takes longer on a busy volume. Source: docs/protocol.md §5.8.

`TurnAppends`: a shard's records of one turn of the event loop, written at its end as one batch.
Records that exceed `max.message.bytes` become several batches, and those of a producer's
transaction get batches of their own. A failing disk takes the replica
offline, and the shard with it.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Iterator
from enum import Enum
from typing import Generic, NamedTuple, TypeVar

from plimsoll_broker.background import in_slices
from plimsoll_broker.coordinator.answers import Asker, WaitingReplies
from plimsoll_broker.replication.hosted_partitions import Hosted
from plimsoll_broker.replication.replica_manager import ReplicaManager
from plimsoll_core.coordination.deadlines import Deadlines
from plimsoll_core.coordination.outcome import CoordinatorOutcome, RefusedAsWhole
from plimsoll_core.errors import Code
from plimsoll_core.ids import ProducerLife
from plimsoll_core.late_timers import LateTimer
from plimsoll_core.replica.commit import AckWaiter
from plimsoll_core.replica.leader import Leader
from plimsoll_core.replica.replica import may_append, next_place
from plimsoll_wire.batches import HEADER_SIZE, parse_header
from plimsoll_wire.record_sets import KeyValue, size_of, write_batch
from plimsoll_wire.versioned_fields import UnknownKeyedRecord

RecordT = TypeVar("RecordT")
OperationT = TypeVar("OperationT")

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


class HeldOperations(Generic[OperationT]):
    """Holds the operations that arrive while a shard is loading, in order, each for at most
    HELD_MS_MAX. `now_ms`: the monotonic clock."""

    __slots__ = ("_deadlines", "_now_ms", "_ops", "_timer")

    def __init__(self, now_ms: Callable[[], int]) -> None:
        self._now_ms = now_ms
        # In order of arrival. None stands for an operation without an asker.
        self._ops: dict[Asker, tuple[OperationT, Asker | None]] = {}
        self._deadlines = Deadlines()
        self._timer = DeadlineTimer(self._deadlines, now_ms, self._waited_enough)

    def __bool__(self) -> bool:
        """Return True if any operation is held; later ones must then be held behind it."""
        return bool(self._ops)

    def add(self, op: OperationT, asker: Asker | None) -> None:
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

    def take(self) -> Iterator[tuple[OperationT, Asker | None]]:
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


class QueuedRecord(NamedTuple):
    """A record to append. `producer`: the producer of its transaction; None if it belongs to no
    transaction."""

    record: KeyValue
    producer: ProducerLife | None


class TurnAppends:
    """Collects the records that one shard decides in a turn of the event loop, and appends them to
    the log at its end. For one partition and leader epoch."""

    __slots__ = ("_due", "_hosted", "_leader", "_manager", "_queue")

    def __init__(self, manager: ReplicaManager, hosted: Hosted, leader: Leader) -> None:
        self._manager = manager
        self._hosted = hosted
        self._leader = leader
        # Records that are decided and applied, to be written before other tasks run.
        self._queue: list[QueuedRecord] = []
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

    def add(self, records: list[QueuedRecord]) -> None:
        """Queue records, in order after those queued before, to be appended at the end of this turn
        of the event loop."""
        self._queue += records
        if not self._due:
            self._due = True
            asyncio.get_running_loop().call_soon(self.write)

    def write(self) -> None:
        """Append all queued records, as few batches as their order permits. Drop what is
        left once this leader epoch has ended or the disk has failed. A bug here is on the commit
        path, so it is not caught."""
        self._due = False
        queue, self._queue = self._queue, []
        hosted, manager = self._hosted, self._manager
        stamp_ms = manager.wall_clock.stamp_ms()
        for producer, records in self._batches(queue):
            place = next_place(hosted.replica, self._leader)
            if place is None:
                return  # leadership ended; the replica has failed the waiting requests
            data = write_batch(records, stamp_ms, producer)
            header = parse_header(data)
            written = manager.driver.append_produced(hosted, memoryview(data), header, place, None)
            manager.touch(hosted)
            if not written:
                return
            manager.traffic.bytes_in += header.length
            manager.traffic.records_in += header.count

    def _batches(
        self, queue: list[QueuedRecord]
    ) -> Iterator[tuple[ProducerLife | None, list[KeyValue]]]:
        """Yield the records in order, with their producer, in portions of at most RECORDS_AT_ONCE
        records that fit in one batch of max.message.bytes."""
        room = self._hosted.max_message_bytes - HEADER_SIZE
        batch: list[KeyValue] = []
        size, producer = 0, None
        for record, of in queue:
            more = size_of(record)
            full = size + more > room or len(batch) >= RECORDS_AT_ONCE
            if batch and (full or of != producer):
                yield producer, batch
                batch, size = [], 0
            batch.append(record)
            producer, size = of, size + more
        if batch:
            yield producer, batch


class ShardPhase(Enum):
    """The phase of a shard. Only an active shard answers from its state."""

    LOADING = "Loading"
    ACTIVE = "Active"
    FAILED = "Failed"
    GONE = "Gone"


class CoordinatorShard(ABC, Generic[RecordT, OperationT]):
    """Coordinates what one partition of an internal topic holds, for one leader epoch. `leader`:
    the replica's object for this leader epoch; a later epoch has another object and another shard.
    `deadlines`: those of its soft state. `commit_timeout_ms`: the longest wait of a reply for its
    commit. Used from the event loop."""

    def __init__(
        self,
        manager: ReplicaManager,
        hosted: Hosted,
        leader: Leader,
        deadlines: Deadlines,
        commit_timeout_ms: int,
    ) -> None:
        self.hosted = hosted
        self.leader = leader
        self.phase = ShardPhase.LOADING
        # When the wait for its load began, on the monotonic clock.
        self.begun_ms = manager.now_ms()
        # On the monotonic clock; None until it is active.
        self.active_since_ms: int | None = None
        # Kinds of records in its log that only a newer release knows.
        self.unknown: set[UnknownKeyedRecord] = set()
        self._manager = manager
        self._commit_timeout_ms = commit_timeout_ms
        self._clock = manager.wall_clock
        self._appends = TurnAppends(manager, hosted, leader)
        self._timer = DeadlineTimer(deadlines, manager.now_ms, self._due)
        self._fresh = False
        # Requests that are parked and not answered.
        self._parked: dict[Asker, None] = {}
        # Operations that came while it loads.
        self._held = HeldOperations[OperationT](manager.now_ms)

    # --- what each kind has of its own ----------------------------------------------------------

    @abstractmethod
    def skip(self, offset: int) -> None:
        """Count the record at `offset` as replayed, although it is not applied."""

    @abstractmethod
    def _loaded(self) -> None:
        """Set the first deadlines, since the whole log has been applied."""

    @abstractmethod
    def _decided(
        self, op: OperationT, asker: Asker | None
    ) -> CoordinatorOutcome[RecordT, OperationT] | None:
        """Return the decision on an operation. Return None if it is queued instead."""

    @abstractmethod
    def _encoded(self, record: RecordT) -> KeyValue:
        """Return the record's key and value."""

    def _producer(self, record: RecordT) -> ProducerLife | None:
        """Return the producer with the transaction that the record belongs to; None if to none."""
        return None

    @abstractmethod
    def _applied(self, key: str | None, records: list[tuple[int, RecordT]], size: int) -> None:
        """Apply records at their offsets, and charge their bytes. `key`: that of their outcome."""

    @abstractmethod
    def _written_to(self, key: str | None) -> int:
        """Return the end offset of the last record of `key`, or of all records."""

    @abstractmethod
    def _committed(self, high_watermark: int) -> None:
        """Forget what only waited for records below the high watermark to be committed."""

    @abstractmethod
    def _operation_due(self, key: object) -> OperationT:
        """Return the operation that belongs to a deadline that has passed."""

    def _freed(self) -> None:
        """Release what the shard holds in its broker, since it is not active any more."""

    def stepped(self) -> None:
        """Note that the partition has had a step: its high watermark may have moved."""

    # --- its life -------------------------------------------------------------------------------

    @property
    def leads(self) -> bool:
        """True while this broker leads the partition in the shard's leader epoch."""
        return self.hosted.replica.leader is self.leader and self.phase is not ShardPhase.GONE

    def write(self) -> int:
        """Append the records that are decided and still queued, and return the log end: a pass up
        to there reads all that any client was told."""
        self._appends.write()
        return self.hosted.log.log_end_offset

    def activate(self) -> None:
        """Change the phase from LOADING to ACTIVE, since the whole log has been applied, and set
        the timers."""
        assert self.phase is ShardPhase.LOADING, self.phase
        self.phase = ShardPhase.ACTIVE
        self.active_since_ms = self._manager.now_ms()
        self._loaded()
        self._timer.arm()

    async def decide_held(self) -> None:
        """Decide the operations that arrived while the shard was loading, in order. New ones are
        held behind them."""
        async for op, asker in in_slices(self._held.take()):
            self.decide(op, asker)

    def fail(self) -> None:
        """Change the phase to FAILED, since the log cannot be read as a whole: free the memory, and
        refuse held, parked and later operations with NOT_COORDINATOR. Part of a log is never
        served."""
        self.phase = ShardPhase.FAILED
        self._let_go()

    def drop(self) -> None:
        """Change the phase to GONE, since the leader epoch has ended, and free the memory.
        Operations that are held, or wait for other members (parked), get NOT_COORDINATOR. The
        replica itself answers those that wait for a commit."""
        self.phase = ShardPhase.GONE
        self._let_go()

    def _let_go(self) -> None:
        """Release the shard's memory and unset its timer. Operations that are held or parked get
        NOT_COORDINATOR."""
        self._timer.cancel()
        self._freed()
        self._held.refuse(Code.NOT_COORDINATOR)
        parked, self._parked = self._parked, {}
        for asker in parked:
            asker.answer(RefusedAsWhole(Code.NOT_COORDINATOR))

    # --- being asked ----------------------------------------------------------------------------

    def ask(self, op: OperationT) -> Asker:
        """Decide the operation now, or once the shard is loaded. Return its asker, which gets the
        answer now or later."""
        asker = Asker()
        if self.leads and (self.phase is ShardPhase.LOADING or self._held):
            self._held.add(op, asker)
        else:
            self.decide(op, asker)
        return asker

    def order(self, op: OperationT) -> None:
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

    def decide(self, op: OperationT, asker: Asker | None) -> None:
        """Decide the operation now, even if others are held. A shard that is not active, or no
        longer leads, answers NOT_COORDINATOR. `asker`: None if no answer is needed."""
        if self.phase is ShardPhase.ACTIVE and self.leads:
            outcome = self._decided(op, asker)
            if outcome is not None:
                self._carry_out(outcome, asker)
                self._timer.arm()
        elif asker is not None:
            asker.answer(RefusedAsWhole(Code.NOT_COORDINATOR))

    # --- carrying out ---------------------------------------------------------------------------

    def _carry_out(
        self, outcome: CoordinatorOutcome[RecordT, OperationT], asker: Asker | None
    ) -> None:
        """Carry out a decision: send its immediate answers, apply and append its records, and have
        the other replies wait until the last record of the outcome's key is committed. If the
        records cannot be appended, these replies get the error. `asker`: recorded as parked if the
        operation waits for other members."""
        for token, answer in outcome.at_once:
            assert isinstance(token, Asker)
            self._parked.pop(token, None)
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
        self._committed(self.hosted.replica.high_watermark)
        required = self._written_to(outcome.key)
        if required <= self.hosted.replica.high_watermark:
            waiting.answer(Code.NONE)
            return
        deadline_ms = self._manager.now_ms() + self._commit_timeout_ms
        self.hosted.replica.wait_for_commit(AckWaiter(required, deadline_ms, waiting))
        self._manager.touch(self.hosted)

    def _waiting(self, outcome: CoordinatorOutcome[RecordT, OperationT]) -> WaitingReplies:
        """Return the replies of an outcome that wait for a commit."""
        make = outcome.then

        def then(code: Code) -> None:
            assert make is not None
            self.order(make(code))

        return WaitingReplies(
            self, outcome.replies, None if make is None else then, written=bool(outcome.records)
        )

    def _append(self, key: str | None, records: tuple[RecordT, ...]) -> Code:
        """Apply the records to the state and queue them for the log at the end of this turn: all of
        them, or none. Return NONE, or the error: this broker may not append, or a record does not
        fit in a batch (MESSAGE_TOO_LARGE)."""
        if not records:
            return Code.NONE
        code = may_append(self.hosted.replica, self.leader)
        if code is not Code.NONE:
            return code
        encoded = [self._encoded(record) for record in records]
        if not all(self._appends.fits(one) for one in encoded):
            return Code.MESSAGE_TOO_LARGE
        placed = list(enumerate(records, self._appends.next_offset))
        self._applied(key, placed, sum(map(size_of, encoded)))
        producers = map(self._producer, records)
        self._appends.add(list(map(QueuedRecord, encoded, producers)))
        return Code.NONE

    # --- time -----------------------------------------------------------------------------------

    def _due(self, key: object) -> None:
        """Decide the operation that belongs to a deadline that has passed."""
        self.order(self._operation_due(key))
