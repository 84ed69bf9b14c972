"""GroupShard: the groups of one partition of `__consumer_offsets`, for one leader epoch here.

Made by `roles` when this broker begins to lead the partition, dropped when that ends. An operation
is decided in the call itself, so that a connection's requests keep their order, or held in that
order while the shard loads; only commits are awaited. It decides nothing:
`plimsoll_core.groups.step` does, and only `apply` changes durable state. Source: docs/protocol.md
§5.8.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import Protocol

from plimsoll_broker.background.time_slices import in_slices
from plimsoll_broker.coordinator.answers import Asker, WaitingReplies
from plimsoll_broker.coordinator.appending import TurnAppends
from plimsoll_broker.coordinator.held_operations import HeldOperations
from plimsoll_broker.coordinator.timers import DeadlineTimer
from plimsoll_broker.replication.hosted_partition import Hosted
from plimsoll_broker.replication.replica_manager import ReplicaManager
from plimsoll_core.coordination.outcome import RefusedAsWhole
from plimsoll_core.errors import Code
from plimsoll_core.groups.memory import GroupMemory
from plimsoll_core.groups.operations import (
    DeleteGroup,
    DeleteUnloaded,
    GroupShrunk,
    Operation,
)
from plimsoll_core.groups.records import GroupRecord
from plimsoll_core.groups.settings import GroupSettings
from plimsoll_core.groups.state import GroupsState, apply, skip
from plimsoll_core.groups.step import GroupOutcome, due, loaded, loaded_again, step
from plimsoll_core.groups.turn import GroupTurn, SoftState
from plimsoll_core.replica.commit import AckWaiter
from plimsoll_core.replica.leader import Leader
from plimsoll_core.replica.replica import may_append
from plimsoll_wire.coordinator_records import UnknownGroupRecord, encode_group_record

DELETIONS_MAX = 1_000
"""Groups of one shard that wait for the log to be read before they are deleted."""


class ShardPhase(Enum):
    """The phase of a shard; only an active one answers from its state."""

    LOADING = "Loading"
    ACTIVE = "Active"
    FAILED = "Failed"
    GONE = "Gone"


class GivesUp(Protocol):
    """The part of a pass through the log that a shard needs."""

    def give_up(self, group_id: str) -> None:
        """Drop the group from the pass: there is no memory for it."""


class GroupShard:
    """Owned by the event loop. `leader` is the replica's object for this leader epoch; another
    epoch has another one."""

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
        """True while its leader epoch lasts."""
        return self.hosted.replica.leader is self.leader and self.phase is not ShardPhase.GONE

    def replay(self, record: GroupRecord, offset: int) -> None:
        """Apply a record of the load. Records of unloaded groups are skipped."""
        if self.state.is_unloaded(record.group_id):
            self.skip(offset)
        else:
            apply(self.state, record, offset)

    def apply(self, record: GroupRecord, offset: int) -> None:
        """Apply a record of a group that is loaded again."""
        apply(self.state, record, offset)

    def unload(self, group_id: str) -> None:
        """Unload a group for lack of memory."""
        self.state.unload(group_id)
        if self.rereading is not None:
            self.rereading.give_up(group_id)

    @property
    def holds_back(self) -> bool:
        """True if there is no memory for some groups of its log."""
        return bool(self.state.unloaded) or self.state.more_unloaded

    def may_unload(self, group_id: str) -> bool:
        """Return True if the group has no members here, so that unloading only refuses its later
        requests."""
        group = self.state.groups.get(group_id)
        if group is None:
            return False
        return self.phase is ShardPhase.LOADING or group_id not in self.soft.classic

    def loaded_again(self, group_id: str) -> None:
        """All records of the group in the log have been applied."""
        loaded_again(self._turn(), group_id)
        self._timer.arm()

    def skip(self, offset: int) -> None:
        """Skip a record that is not known."""
        skip(self.state, offset)

    def activate(self) -> None:
        """Serve: the whole log has been applied."""
        assert self.phase is ShardPhase.LOADING, self.phase
        self.phase = ShardPhase.ACTIVE
        self.active_since_ms = self._manager.now_ms()
        loaded(self._turn())
        self._timer.arm()

    async def decide_held(self) -> None:
        """Decide the operations that were held; newer ones come behind them."""
        async for op, asker in in_slices(self._held.take()):
            self.decide(op, asker)

    def fail(self) -> None:
        """Fail: the log cannot be read as a whole, and a part of it is never served."""
        self.phase = ShardPhase.FAILED
        self._let_go()
        self._held.refuse(Code.NOT_COORDINATOR)

    def drop(self) -> None:
        """Leadership ended: the replica failed requests that await a commit; fail parked ones
        here."""
        self.phase = ShardPhase.GONE
        self._timer.cancel()
        self._let_go()
        self._held.refuse(Code.NOT_COORDINATOR)
        parked, self._parked = self._parked, {}
        for asker in parked:
            asker.answer(RefusedAsWhole(Code.NOT_COORDINATOR))

    def _let_go(self) -> None:
        """Release its memory."""
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
        """Decide an operation without an asker."""
        if self.leads and self.phase is ShardPhase.LOADING:
            self._held.add(op, None)
        else:
            self.decide(op, None)

    def may_tell(self) -> bool:
        """Return True if its state may be told to clients: it leads, and the lease holds."""
        return self.leads and self._manager.serving.holds(self.hosted)

    @property
    def metadata_fresh(self) -> bool:
        """True if all metadata committed when it became active have been applied here."""
        if not self._fresh and self.active_since_ms is not None:
            self._fresh = self._manager.serving.knows_since(self.active_since_ms)
        return self._fresh

    def _turn(self) -> GroupTurn:
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
        """Decide the operation now, even if others are held."""
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
        """Queue the deletion of an unloaded group: its log must be read first, see
        `unloaded_groups`."""
        if asker is None:
            return
        if group_id not in self.deletions and len(self.deletions) >= DELETIONS_MAX:
            asker.answer(RefusedAsWhole(Code.COORDINATOR_LOAD_IN_PROGRESS))
            return
        self.deletions.setdefault(group_id, []).append(asker)
        self.kick()

    async def delete_unloaded(self, group_id: str) -> object:
        """Delete a group after its keys were read again. Return the answer when the tombstones are
        committed."""
        while True:
            asker = Asker()
            self.decide(DeleteUnloaded(group_id=group_id), asker)
            answer = await asker.future()
            if not isinstance(answer, GroupShrunk):
                return answer

    # --- carrying out ---------------------------------------------------------------------------

    def _carry_out(self, outcome: GroupOutcome, asker: Asker | None) -> None:
        for token, answer in outcome.at_once:
            assert isinstance(token, Asker)
            token.answer(answer)
        if outcome.parked and asker is not None:
            self._parked[asker] = None
        for token, _ in outcome.replies:
            assert isinstance(token, Asker)
            self._parked.pop(token, None)
        waiting = self._waiting(outcome)
        code = self._append(outcome.records)
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
        make = outcome.then

        def then(code: Code) -> None:
            assert make is not None
            self.order(make(code))

        return WaitingReplies(
            self, outcome.replies, None if make is None else then, written=bool(outcome.records)
        )

    def _append(self, records: tuple[GroupRecord, ...]) -> Code:
        """Queue and apply all of the records, or none. Return the error code of the replica."""
        if not records:
            return Code.NONE
        code = may_append(self.hosted.replica, self.leader)
        if code is not Code.NONE:
            return code
        encoded = [encode_group_record(record) for record in records]
        if not all(self._appends.fits(one) for one in encoded):
            return Code.MESSAGE_TOO_LARGE
        for offset, record in enumerate(records, self._appends.next_offset):
            apply(self.state, record, offset)
        self._appends.add(encoded)
        return Code.NONE

    # --- time -----------------------------------------------------------------------------------

    def _due(self, key: object) -> None:
        self.order(due(key))  # type: ignore[arg-type]
