"""One partition's replica on one broker: it leads, follows, and answers requests.

`Replica` is a mutable object with a single owner, the broker's `ReplicaManager`, which feeds it
metadata, produces, fetches, replies and time.  Requests are answered at once.  Everything else that
follows from an event (acknowledgements, fetches to wake, a proposed ISR) is collected and handed
over by `take_ready`, once per turn of the event loop, however many events there were:

    replica.apply(partition, now_ms)             # newer metadata
    place = replica.produce(batch, acks)         # may the batch be written, and where
    log.append(...); replica.wrote()             # the caller writes, then says so
    ready = replica.take_ready()                 # answers, then fetches to wake, then the proposal

The replica never touches a byte.  The broker's `LogWriter` writes the log as the replica says.
"""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from plimsoll_core.cluster.model import Partition
from plimsoll_core.errors import Code
from plimsoll_core.ids import BrokerId, LeaderEpoch, PartitionEpoch, ProducerLife
from plimsoll_core.messages.requests import IsrProposal, PartitionAnswer
from plimsoll_core.replica import follower
from plimsoll_core.replica.commit import (
    AckWaiter,
    Answered,
    ParkedFetches,
    Waiters,
    check_at_commit,
    check_before_append,
    check_waiting,
    committable,
    deletable_offset,
    latest_for_consumer,
    low_watermark,
)
from plimsoll_core.replica.fetch_checks import (
    UNKNOWN_END,
    check_follower,
    check_leader_epoch,
    check_position,
)
from plimsoll_core.replica.follower import CompactedCopy
from plimsoll_core.replica.isr_membership import (
    INELIGIBLE_BACKOFF_MS,
    ProposalOutcome,
    expansion,
    outcome,
    shrinkage,
)
from plimsoll_core.replica.leader import CommittedIsr, IsrState, Leader, proposal_in_flight
from plimsoll_core.replica.replica_context import LogView, ReplicaContext
from plimsoll_core.replica.replica_values import (
    Append,
    BatchInfo,
    Duplicate,
    EndOffset,
    FollowerFetch,
)
from plimsoll_core.replica.role import FAILED, FOLLOWING, HALTED, Leading, Role, succeed
from plimsoll_core.replica.transactions import last_stable_offset


class Ready(NamedTuple):
    """The effects, on one partition, of the events in one turn of the event loop. The replica
    manager carries them out in the order of the fields."""

    answers: list[Answered]
    """The answers to parked produces and DeleteRecords. The records of a successful produce are
    already in the log, since the broker writes a batch before it reports it to the replica."""

    woken: list[object]
    """The tokens of parked fetches with something new to read. These run after the answers and read
    the log as it is then."""

    proposal: IsrProposal | None
    """The ISR proposal to send to the controller, if any. The replica has counted the maximal ISR
    since it made the proposal. Proposals of one partition are sent in order."""


NOTHING = Ready([], [], None)


class Replica:
    """One broker's replica of one partition: takes its role from metadata, decides on each request,
    and collects the effects. Callers call its methods and read its fields, but must not assign any
    of them."""

    __slots__ = (
        "_answers",
        "_around",
        "_commit_moved",
        "_end_moved",
        "_proposal",
        "_stable_seen",
        "compacted_copy",
        "high_watermark",
        "leader",
        "leaving",
        "log",
        "parked",
        "partition",
        "role",
        "waiters",
    )

    def __init__(
        self, partition: Partition, log: LogView, high_watermark: int | None, around: ReplicaContext
    ) -> None:
        """Make a replica without a role. It takes a role at the first `apply`. `partition`: its
        state in the image. `high_watermark`: the checkpointed one, None if there is none."""
        self._around = around
        self.log = log
        # The newest committed state; no term is known yet, so that the first `apply` changes it.
        self.partition = msgspec.structs.replace(
            partition, leader=None, leader_epoch=LeaderEpoch(-1), partition_epoch=PartitionEpoch(-1)
        )
        start = log.log_start_offset
        self.high_watermark = min(max(high_watermark or start, start), log.log_end_offset)
        self.compacted_copy = CompactedCopy(log, self.high_watermark)
        self.role: Role = HALTED  # written by `_become` alone
        # The role's leader, if it leads: beside it, since each produce and each fetch reads it.
        self.leader: Leader | None = None
        # True if its log must be discarded, and it has to leave the ISR and the ELR first.
        self.leaving = False
        self.waiters = Waiters()
        self.parked = ParkedFetches()
        self._answers: list[Answered] = []
        self._proposal: IsrProposal | None = None
        self._end_moved = self._commit_moved = False
        # The last stable offset when fetches that wait for it were last woken; -1: wake them.
        self._stable_seen = -1

    # --- its role -----------------------------------------------------------------------------

    def _become(self, role: Role) -> None:
        self.role = succeed(self.role, role)
        self.leader = role.leader if isinstance(role, Leading) else None

    def apply(self, partition: Partition, now_ms: int) -> None:
        """Apply newer metadata of the partition, and change the role as they require.

        Metadata with an older partition epoch are ignored. If the partition epoch is the same, only
        the ELR is applied: the leader may know that epoch already from the controller's answer to
        its proposal, which does not state the ELR. The replica fails if its log holds a newer
        leader epoch than the metadata; a failed replica keeps its role.
        """
        known = self.partition
        if partition.partition_epoch == known.partition_epoch:
            self._elr_told(partition)
        if partition.partition_epoch <= known.partition_epoch:
            return
        new_term = partition.leader_epoch > known.leader_epoch
        self.partition = partition
        if new_term:
            self.leaving = False
        if self.role is FAILED:
            return  # a log that is opened anew has a new replica
        if new_term and (self.log.epochs.latest or 0) > partition.leader_epoch:
            # The log was written in a term that the metadata has not reached: the metadata went
            # back in time, or the volume is another cluster's.  Neither may be led or followed.
            self.fail()
            return
        if partition.leader == self._around.broker_id:
            self._lead(partition, new_term, now_ms)
        else:
            self._follow(new_term)

    def _elr_told(self, partition: Partition) -> None:
        leader = self.leader
        if leader is not None and partition.leader_epoch == leader.epoch:
            self.partition = leader.partition = msgspec.structs.replace(
                self.partition, elr=partition.elr, last_known_elr=partition.last_known_elr
            )

    def _lead(self, partition: Partition, new_term: bool, now_ms: int) -> None:
        self._proposal = None
        if self.leader is None or new_term:
            # Waiters of an older term must not be completed by this term's high watermark.
            self._fail_waiters(Code.NOT_LEADER_OR_FOLLOWER)
            end = self.log.log_end_offset
            self.log.epochs.assign(partition.leader_epoch, end)
            # The others copy what it leads with, also if it was elected in the middle of a copy.
            self.compacted_copy.ends_here()
            leader = Leader(self._around.broker_id, partition, end, now_ms)
            if self.log.superseding_lost:
                leader.copied_anew = set()
            self._become(Leading(leader))
        else:
            self.leader.stay(partition, now_ms)
        self._in_sync_set_changed()
        # Parked fetches must hear of the change.
        self._end_moved = self._commit_moved = True
        self._stable_seen = -1

    def _follow(self, new_term: bool) -> None:
        if new_term:
            # Terms without a record are forgotten: the new leader need not have heard of them.
            self.log.epochs.truncate_from_end(self.log.log_end_offset)
            self.compacted_copy.new_term()
            self._become(FOLLOWING)
        elif self.leader is not None:
            self._become(HALTED)
        self._stop_leading(Code.NOT_LEADER_OR_FOLLOWER)

    def halt(self) -> None:
        """Stop fetching until newer metadata arrives: the leader has fenced this replica's leader
        epoch."""
        assert self.role is FOLLOWING, self.role
        self._become(HALTED)

    def close(self, code: Code) -> None:
        """Close the replica: stop leading and following, answer all waiting produces and
        DeleteRecords with `code`, and wake all parked fetches."""
        if self.role is not FAILED:
            self._become(HALTED)
        self._stop_leading(code)

    def fail(self) -> None:
        """Stop leading and following for good, because the log's disk failed. Answer waiting
        produces with an error."""
        self._become(FAILED)
        self._stop_leading(Code.KAFKA_STORAGE_ERROR)

    def _stop_leading(self, code: Code) -> None:
        """Answer waiting produces with `code`, and wake all parked fetches so that they run
        again."""
        self._proposal = None
        self._fail_waiters(code)
        self._end_moved = self._commit_moved = True
        self._stable_seen = -1

    @property
    def failed(self) -> bool:
        """True if the replica's log is offline."""
        return self.role is FAILED

    # --- leading ------------------------------------------------------------------------------

    def produce(self, batch: BatchInfo, acks: int) -> Append | Duplicate | Code:
        """Decide on a client's batch. Return the offset and leader epoch with which to write it,
        the offsets of the same batch if it is already in the log, or the error."""
        leader = self.leader
        if leader is None:
            return self._not_leading()
        code = check_before_append(leader, acks)
        if code is not Code.NONE:
            return code
        log = self.log
        if batch.producer_id >= 0:
            verdict = log.producers.check(batch)
            if verdict is not None:
                return verdict
        return Append(log.log_end_offset, leader.epoch)

    def end_transaction(
        self, producer_id: int, producer_epoch: int, coordinator_epoch: int
    ) -> Append | Code:
        """Decide on the end marker of a producer's transaction. Return the offset and leader epoch
        with which to write its control batch, or the error. A producer without an open transaction
        gets a marker too: no later batch of an older epoch is accepted then."""
        leader = self.leader
        if leader is None:
            return self._not_leading()
        code = check_before_append(leader, -1)
        if code is Code.NONE:
            known = self.log.producers
            code = known.check_marker(producer_id, producer_epoch, coordinator_epoch)
        if code is not Code.NONE:
            return code
        leader.verified.withdraw(producer_id)
        return Append(self.log.log_end_offset, leader.epoch)

    def begins_transaction(self, producer: ProducerLife) -> bool:
        """Return True if a batch of this producer would begin a transaction in this partition, so
        that its coordinator has to be asked before."""
        producers = self.log.producers
        if producer.producer_id not in producers.transactions.open:
            return True
        newest = producers.newest(producer.producer_id)
        return newest is None or newest[0] != producer.epoch

    def check_verified(self, producer: ProducerLife) -> Code:
        """Return NONE if a transactional batch of this producer may be appended now. Otherwise
        return NOT_ENOUGH_REPLICAS, with which clients send the batch again: its verification was
        withdrawn meanwhile, or this replica leads in another leader epoch."""
        leader = self.leader
        if leader is None or not self.begins_transaction(producer):
            return Code.NONE
        return Code.NONE if leader.verified.admits(producer) else Code.NOT_ENOUGH_REPLICAS

    def check_in_transaction(self, producer: ProducerLife) -> Code:
        """Return NONE if a coordinator's shard may append a batch of this producer's transaction
        now, otherwise the error: the producer was fenced, or `check_verified` refuses it."""
        newest = self.log.producers.newest(producer.producer_id)
        if newest is not None and newest[0] > producer.epoch:
            return Code.INVALID_PRODUCER_EPOCH
        return self.check_verified(producer)

    def wrote(self) -> None:
        """Record that the batch permitted by `produce` has been appended to the log."""
        self._end_moved = True

    def wait_for_commit(self, waiter: AckWaiter) -> None:
        self.waiters.for_commit.add(waiter)

    def wait_for_flush(self, waiter: AckWaiter) -> None:
        self.waiters.for_flush.add(waiter)

    def delete_records(self, offset: int) -> int | Code:
        """Return the new log start for a client's DeleteRecords: `offset`, or the high watermark if
        `offset` is -1. Return the error if this replica does not lead or the offset is out of
        range."""
        if self.leader is None:
            return self._not_leading()
        return deletable_offset(offset, self.high_watermark)

    @property
    def low_watermark(self) -> int:
        """Return the lowest log start of all replicas that may be elected cleanly; on a follower,
        of its own log."""
        start = self.log.log_start_offset
        return start if self.leader is None else low_watermark(self.leader, start)

    def expire_waiters(self, now_ms: int) -> None:
        if self.waiters:
            self._answers.extend(self.waiters.expire(now_ms))

    def check_lag(self, now_ms: int) -> None:
        """Propose to remove in-sync followers that lag. Called every half of the lag limit. Do
        nothing on a replica that does not lead, or while a proposal is in flight."""
        leader = self.leader
        if leader is None:
            return
        leaving = shrinkage(leader, self._around, self.log.log_end_offset, now_ms)
        if leaving is not None:
            leader.set_isr(leaving)
            self._proposal = leaving.proposal

    def altered(self, proposal: IsrProposal, answer: PartitionAnswer | None, now_ms: int) -> bool:
        """Process the controller's answer to an ISR proposal; None means that no answer came.
        Return True if the caller must send the same proposal again. An answer to a proposal that is
        no longer in flight is ignored."""
        leader = self.leader
        if leader is None or proposal_in_flight(leader.isr) is not proposal:
            return False
        found = outcome(answer)
        if found is ProposalOutcome.COMMITTED and answer is not None:
            self._committed(leader, answer)
        elif found is ProposalOutcome.NOT_APPLIED:
            leader.refused(now_ms + INELIGIBLE_BACKOFF_MS)
            self._settle(leader, CommittedIsr(committed=leader.isr.committed))
        return found is ProposalOutcome.UNANSWERED

    def _committed(self, leader: Leader, answer: PartitionAnswer) -> None:
        current = (
            answer.leader_epoch == leader.epoch
            and answer.partition_epoch >= self.partition.partition_epoch
        )
        moving = self.partition.adding or self.partition.removing
        if not current or moving:
            return  # the answer may have ended the move, and does not say so: metadata does
        # The answer says nothing of the ELR: until the metadata does, all that left may be in it.
        left = {*self.partition.elr, *self.partition.isr} - {*answer.isr}
        enough = len(answer.isr) >= self.partition.effective_min_isr
        elr = () if enough else tuple(b for b in self.partition.replicas if b in left)
        self.partition = leader.partition = msgspec.structs.replace(
            self.partition, isr=answer.isr, elr=elr, partition_epoch=answer.partition_epoch
        )
        self._settle(leader, CommittedIsr(committed=answer.isr))

    def _settle(self, leader: Leader, isr: IsrState) -> None:
        leader.set_isr(isr)
        self._end_moved = True  # replicas out of the ISR may want to join again
        self._in_sync_set_changed()

    def _in_sync_set_changed(self) -> None:
        leader = self.leader
        if leader is None:
            return
        code = check_waiting(leader)
        if code is not Code.NONE:
            self._answers.extend(self.waiters.for_commit.fail_all(code))

    def _fail_waiters(self, code: Code) -> None:
        if self.waiters:
            self._answers.extend(self.waiters.fail_all(code))

    # --- being asked --------------------------------------------------------------------------

    def _not_leading(self) -> Code:
        return Code.KAFKA_STORAGE_ERROR if self.role is FAILED else Code.NOT_LEADER_OR_FOLLOWER

    def _check_leading(self, leader_epoch: int | None) -> Code:
        if self.role is FAILED:
            return Code.KAFKA_STORAGE_ERROR
        stale = check_leader_epoch(leader_epoch, self.partition.leader_epoch)
        if stale is not Code.NONE:
            return stale
        return Code.NONE if self.leader is not None else Code.NOT_LEADER_OR_FOLLOWER

    def consumer_fetch(
        self, offset: int, leader_epoch: int | None, last_fetched_epoch: int | None
    ) -> Code | EndOffset:
        """Return NONE if a consumer may read from `offset` (up to the high watermark). Otherwise
        return the error, or the epoch end at which the consumer's log diverges from this one."""
        code = self._check_leading(leader_epoch)
        if code is not Code.NONE:
            return code
        return check_position(self.log, offset, last_fetched_epoch)

    def own_copy_fetch(self, offset: int) -> Code:
        """Return NONE if a reader of this very replica, leader or not, may read from `offset` (up
        to this replica's high watermark), else the error."""
        if self.role is FAILED:
            return Code.KAFKA_STORAGE_ERROR
        checked = check_position(self.log, offset, None)
        return checked if isinstance(checked, Code) else Code.OFFSET_OUT_OF_RANGE

    def follower_fetch(self, fetch: FollowerFetch, now_ms: int) -> Code | EndOffset:
        """Record a follower's fetch as its progress, propose the follower for the ISR if it may
        join, and return NONE: it may read from its offset. If it may not, return the error, or the
        epoch end to which the follower must truncate; its progress stays as it was."""
        code = self._check_leading(fetch.leader_epoch)
        if code is not Code.NONE:
            return code
        leader = self.leader
        assert leader is not None
        progress = leader.followers.get(BrokerId(fetch.broker_id))
        if progress is None:
            return Code.UNKNOWN_LEADER_EPOCH
        empty = fetch.last_fetched_epoch is None
        if leader.must_copy_anew(fetch.broker_id, empty=empty):
            assert fetch.last_fetched_epoch is not None
            return EndOffset(fetch.last_fetched_epoch, UNKNOWN_END)
        answer = check_follower(self.log, fetch, complete=leader.may_be_next(fetch.broker_id))
        if answer is not Code.NONE:
            return answer
        code = self._around.lifetime(BrokerId(fetch.broker_id), fetch.broker_epoch)
        if code is not Code.NONE:
            return code
        progress.fetched(fetch, self.log.log_end_offset, now_ms)
        if fetch.broker_id not in leader.isr.committed:
            self._consider(leader, BrokerId(fetch.broker_id), now_ms)
        return Code.NONE

    def start_moved(self) -> None:
        """Wake parked fetches of followers, because retention or DeleteRecords has moved the log
        start: their replies state the new one."""
        self._end_moved = True

    def _consider(self, leader: Leader, candidate: BrokerId, now_ms: int) -> None:
        start = self.log.log_start_offset
        joining = expansion(leader, candidate, self._around, self.high_watermark, start, now_ms)
        if joining is not None:
            leader.set_isr(joining)  # counted from now on, before the proposal is even sent
            self._proposal = joining.proposal

    @property
    def last_stable_offset(self) -> int:
        """Return the offset up to which all transactions are decided, at most the high
        watermark."""
        log = self.log
        transactions = log.producers.transactions
        if not transactions:
            return self.high_watermark
        return last_stable_offset(self.high_watermark, log.log_start_offset, transactions)

    def latest_offset(
        self, leader_epoch: int | None, *, for_replica: bool, stable: bool = False
    ) -> int | Code:
        """Return the log end to a replica, the high watermark to a consumer, with `stable` the last
        stable offset, or the error."""
        code = self._check_leading(leader_epoch)
        if code is not Code.NONE:
            return code
        if for_replica:
            return self.log.log_end_offset
        assert self.leader is not None
        end = self.last_stable_offset if stable else self.high_watermark
        return latest_for_consumer(self.leader, self.high_watermark, end)

    def end_offset_for(self, epoch: int, leader_epoch: int | None) -> EndOffset | Code | None:
        """Return the end offset of leader epoch `epoch` in this log, or of the newest one before
        it. Return None if the epoch is unknown, or the error if `leader_epoch` is not this
        leader's."""
        code = self._check_leading(leader_epoch)
        if code is not Code.NONE:
            return code
        known = self.log.epochs.end_offset_for(epoch, self.log.log_end_offset)
        return None if known is None else EndOffset(*known)

    # --- following ----------------------------------------------------------------------------

    @property
    def fetches_from(self) -> BrokerId | None:
        """Return the leader that this replica fetches from now, or None if it does not follow."""
        return self.partition.leader if self.role is FOLLOWING else None

    def position(self) -> follower.FetchPosition:
        return follower.position(self.partition.leader_epoch, self.log)

    def expects(self, sender: BrokerId, asked: follower.FetchPosition) -> bool:
        """Return True if the reply of `sender` to a fetch at position `asked` may still be used:
        the leader, its epoch and the log end are the same as when the fetch was sent."""
        return (
            self.fetches_from == sender
            and asked.leader_epoch == self.partition.leader_epoch
            and asked.fetch_offset == self.log.log_end_offset
        )

    @property
    def electable(self) -> bool:
        """True if the replica may be elected cleanly: it is in the ISR or the ELR by its
        metadata."""
        me, partition = self._around.broker_id, self.partition
        return me in partition.isr or me in partition.elr

    def may_reset(self, reset: follower.Reset) -> bool:
        """Return True if the log may be reset now. A replica that is `electable` discards no record
        at or above the leader's log start: elected before it has copied them, it would lose them.
        Set `leaving` and return False then; the broker reports it."""
        discards = reset.discard and reset.offset < self.log.log_end_offset
        self.leaving = discards and self.electable
        return not self.leaving

    def cut(self) -> None:
        """Record that the log was truncated or emptied, and move the high watermark into the log's
        range."""
        start, end = self.log.log_start_offset, self.log.log_end_offset
        self.high_watermark = min(max(self.high_watermark, start), end)
        self.compacted_copy.ends_here()

    def replicated(self, high_watermark: int, *, shows_compaction: bool = False) -> None:
        """Record that the batches of a leader's reply, if any, have been appended, and set the high
        watermark to `high_watermark` (of the reply), within this log's range. `shows_compaction`:
        see `follower.shows_compaction`."""
        log = self.log
        self.high_watermark = max(min(high_watermark, log.log_end_offset), log.log_start_offset)
        if log.producers.transactions.ended:
            log.producers.transactions.committed(self.high_watermark)
        self.compacted_copy.committed(high_watermark if shows_compaction else self.high_watermark)

    # --- handing over -------------------------------------------------------------------------

    def _commit(self, leader: Leader) -> None:
        candidate = committable(leader, self.log.countable_end)
        if candidate is None or candidate <= self.high_watermark:
            return
        self.high_watermark = candidate
        self.compacted_copy.committed(candidate)
        self._commit_moved = True
        transactions = self.log.producers.transactions
        if transactions.ended:
            transactions.committed(candidate)

    def _complete(self, leader: Leader) -> None:
        code = check_at_commit(leader)
        self._answers += self.waiters.for_commit.reached(self.high_watermark, code)
        if self.waiters.for_flush:
            self._answers += self.waiters.for_flush.reached(self.log.countable_end, Code.NONE)
        if self.waiters.for_start:
            self._answers += self.waiters.for_start.reached(self.low_watermark, Code.NONE)

    def _stable_moved(self) -> list[object]:
        """Return the tokens of the fetches to wake because the last stable offset has moved, or
        this replica's role has."""
        before, self._stable_seen = self._stable_seen, self.last_stable_offset
        return [] if before == self._stable_seen else self.parked.take_stable()

    def take_ready(self) -> Ready:
        """Advance the high watermark if this replica leads; remove and return the effects of all
        events since the last call."""
        leader = self.leader
        if leader is not None:
            self._commit(leader)
            if self.waiters:
                self._complete(leader)
        woken: list[object] = []
        if self._end_moved or self._commit_moved:
            woken = self.parked.take(end_moved=self._end_moved, commit_moved=self._commit_moved)
            if self._commit_moved and self.parked.for_stable:
                woken += self._stable_moved()
            self._end_moved = self._commit_moved = False
        if not self._answers and not woken and self._proposal is None:
            return NOTHING
        ready = Ready(self._answers, woken, self._proposal)
        self._answers, self._proposal = [], None
        return ready


def may_append(replica: Replica, leader: Leader) -> Code:
    """Return NONE if a coordinator's shard may write to its partition: this replica still leads in
    the leader epoch of `leader`, under which the shard was loaded, and enough replicas are in sync.
    Otherwise return the error."""
    if replica.leader is not leader:
        return Code.NOT_LEADER_OR_FOLLOWER
    return check_before_append(leader, -1)


def next_place(replica: Replica, leader: Leader) -> Append | None:
    """Return the offset and leader epoch for the next batch of a coordinator's shard. Return None
    if this replica no longer leads in the leader epoch of `leader`."""
    if replica.leader is not leader:
        return None
    return Append(replica.log.log_end_offset, leader.epoch)
