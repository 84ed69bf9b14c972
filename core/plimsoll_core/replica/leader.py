"""A leader's state in one epoch: its followers' progress, the ISR, the high watermark.

Called by `replica.Replica` only.  It decides how far the high watermark may go, who may join the
in-sync set and who must leave it, and what an AlterPartition answer means.  Sources: KIP-497
(AlterPartition), KIP-841 (fenced brokers), KIP-903 (stale epochs), KIP-966 (frozen high watermark).
"""

from __future__ import annotations

from plimsoll_core.cluster.model import Partition, Recovery
from plimsoll_core.ids import BrokerEpoch, BrokerId, PartitionEpoch
from plimsoll_core.messages.requests import IsrMember, IsrProposal
from plimsoll_core.replica.context import ReplicaContext
from plimsoll_core.replica.isr import CommittedIsr, IsrState, PendingExpand, PendingShrink
from plimsoll_core.replica.values import FollowerFetch

EXPAND_CAUSE = "IsrExpand"
SHRINK_CAUSE = "IsrShrinkLag"
INELIGIBLE_BACKOFF_MS = 1_000


class Presence:
    """When a follower's fetch session was heard last, and which reply it acknowledged then.

    An incremental fetch names only what has changed, and counts for every partition of its session.
    A follower that is settled has nothing left to fetch: its progress reads the times here, so that
    a fetch costs nothing for it.
    """

    __slots__ = ("acknowledged_ms", "fetch_ms")

    def __init__(self) -> None:
        self.fetch_ms = 0
        self.acknowledged_ms: int | None = None


class FollowerProgress:
    """How far one follower is, as its fetches in this term tell; None = not heard of."""

    __slots__ = (
        "_acknowledged_ms",
        "_caught_up_ms",
        "_fetch_leader_end",
        "_fetch_ms",
        "_presence",
        "broker_epoch",
        "log_end",
        "log_start",
    )

    def __init__(self, caught_up_ms: int | None) -> None:
        self.log_end: int | None = None
        self.log_start = 0
        self.broker_epoch: int | None = None
        self._fetch_ms = 0
        self._fetch_leader_end: int | None = None
        self._caught_up_ms = caught_up_ms
        self._acknowledged_ms: int | None = None
        self._presence: Presence | None = None

    @property
    def caught_up_ms(self) -> int | None:
        """When it certainly had everything."""
        return self._caught_up_ms if self._presence is None else self._presence.fetch_ms

    @property
    def acknowledged_ms(self) -> int | None:
        """When it certainly followed in this term."""
        return self._acknowledged_ms if self._presence is None else self._presence.acknowledged_ms

    def settle(self, presence: Presence) -> None:
        """It has everything: until the leader's end moves, each fetch of its session says so."""
        self._presence = presence

    def unsettle(self, session: Presence) -> None:
        """The leader's end has moved, or the session ends: what its last fetch said stays.

        Another connection of the follower may have taken the session's place meanwhile."""
        if self._presence is session:
            self._leave_session(session)

    def _leave_session(self, presence: Presence | None) -> None:
        if presence is not None:
            self._presence = None
            self._caught_up_ms = self._fetch_ms = presence.fetch_ms
            self._fetch_leader_end = self.log_end
            self._acknowledged_ms = presence.acknowledged_ms

    def fetched(self, fetch: FollowerFetch, leader_end: int, now_ms: int) -> None:
        """A fetch at an offset proves that everything below it is on the follower's disk."""
        self._leave_session(self._presence)
        offset = fetch.offset
        if offset >= leader_end:
            self._caught_up_ms = now_ms
        elif self._fetch_leader_end is not None and offset >= self._fetch_leader_end:
            self._caught_up_ms = self._fetch_ms
        self._fetch_ms = now_ms
        self._fetch_leader_end = leader_end
        self.log_end = offset
        self.log_start = fetch.log_start
        self.broker_epoch = fetch.broker_epoch
        if fetch.leader_epoch is not None:
            self._acknowledged_ms = fetch.acknowledged_ms


class Leader:
    """One term of leadership.  A new term is a new object: nothing learnt in another term counts,
    since logs may have been cut in terms that this broker never saw."""

    __slots__ = (
        "_quorum",
        "epoch",
        "followers",
        "isr",
        "min_isr",
        "not_before_ms",
        "partition",
        "start_offset",
    )

    def __init__(self, me: BrokerId, partition: Partition, log_end: int, now_ms: int) -> None:
        self.epoch = partition.leader_epoch
        self.start_offset = log_end
        self.partition = partition
        self.followers = {
            replica: FollowerProgress(now_ms if replica in partition.isr else None)
            for replica in partition.replicas
            if replica != me
        }
        self.min_isr = partition.effective_min_isr
        self.not_before_ms = 0
        self.set_isr(CommittedIsr(committed=partition.isr))

    def set_isr(self, state: IsrState) -> None:
        """Every change of the set goes through here, so that the quorum follows it."""
        self.isr = state
        self._quorum = [
            self.followers[replica] for replica in state.maximal if replica in self.followers
        ]

    def stay(self, partition: Partition, now_ms: int) -> None:
        """Newer metadata in the same term: followers keep what they proved."""
        known = self.followers
        me = partition.leader
        self.followers = {
            replica: known.get(replica)
            or FollowerProgress(now_ms if replica in partition.isr else None)
            for replica in partition.replicas
            if replica != me
        }
        self.partition = partition
        self.min_isr = partition.effective_min_isr
        self.not_before_ms = 0
        self.set_isr(CommittedIsr(committed=partition.isr))

    @property
    def enough_in_sync(self) -> bool:
        """Whether the *committed* in-sync set is at its minimum."""
        return len(self.isr.committed) >= self.min_isr

    def committable(self, log_end: int) -> int | None:
        """How far the log is on every replica that may be in sync; None = nothing may commit.

        Frozen while the committed in-sync set is below its minimum: a replica outside it may be
        elected then and must hold everything that was ever committed.
        """
        if len(self.isr.committed) < self.min_isr:
            return None
        candidate = log_end
        for follower in self._quorum:
            end = follower.log_end
            if end is None:
                return None
            if end < candidate:
                candidate = end
        return candidate

    def low_watermark(self, log_start: int) -> int:
        """The least log start of all that may be in sync, as their fetches told it; a follower
        that has not fetched in this term is not known to have dropped anything."""
        return min([log_start, *(follower.log_start for follower in self._quorum)])

    def settled(
        self, follower: BrokerId, log_end: int, high_watermark: int
    ) -> FollowerProgress | None:
        """A follower's progress if it counts as in sync and has everything, and so has everybody
        else in sync: then its fetches say nothing new until something moves here."""
        if high_watermark != log_end or follower not in self.isr.committed:
            return None
        progress = self.followers.get(follower)
        return progress if progress is not None and progress.log_end == log_end else None

    def expansion(
        self,
        follower: BrokerId,
        around: ReplicaContext,
        high_watermark: int,
        now_ms: int,
    ) -> PendingExpand | None:
        """Whether `follower`, which has just fetched, may be proposed as in sync.

        It must hold everything that may be committed: up to the high watermark, and up to where
        this term began, since the old leader may have committed that far.
        """
        isr = self.isr
        if not isinstance(isr, CommittedIsr) or follower in isr.committed:
            return None
        end = self.followers[follower].log_end
        if end is None or end < high_watermark or end < self.start_offset:
            return None
        if now_ms < self.not_before_ms or not self._eligible(follower, around):
            return None
        if not self.enough_in_sync and not self._within_lag(follower, around, now_ms):
            return None
        joined = (*isr.committed, follower)
        return PendingExpand(
            committed=isr.committed,
            joining=follower,
            proposal=self._proposal(around, joined, EXPAND_CAUSE),
        )

    def _eligible(self, follower: BrokerId, around: ReplicaContext) -> bool:
        broker = around.brokers.get(follower)
        return (
            broker is not None
            and broker.active
            and broker.broker_epoch == self.followers[follower].broker_epoch
        )

    def _within_lag(self, follower: BrokerId, around: ReplicaContext, now_ms: int) -> bool:
        # While the high watermark is frozen it is no yardstick: a follower merely above it would
        # join, be found lagging and leave, over and over.
        caught_up_ms = self.followers[follower].caught_up_ms
        return caught_up_ms is not None and now_ms - caught_up_ms <= around.lag_time_max_ms

    def shrinkage(self, around: ReplicaContext, log_end: int, now_ms: int) -> PendingShrink | None:
        """The followers that have not been caught up for too long."""
        isr = self.isr
        if not isinstance(isr, CommittedIsr):
            return None
        leaving = tuple(
            replica
            for replica in isr.committed
            if replica in self.followers
            and self.followers[replica].log_end != log_end
            and not self._within_lag(replica, around, now_ms)
        )
        if not leaving or now_ms < self.not_before_ms:
            return None
        staying = tuple(replica for replica in isr.committed if replica not in leaving)
        return PendingShrink(
            committed=isr.committed,
            leaving=leaving,
            proposal=self._proposal(around, staying, SHRINK_CAUSE),
        )

    def _proposal(
        self, around: ReplicaContext, members: tuple[BrokerId, ...], cause: str
    ) -> IsrProposal:
        return IsrProposal(
            topic_id=self.partition.topic_id,
            index=self.partition.index,
            leader_epoch=self.epoch,
            partition_epoch=PartitionEpoch(self.partition.partition_epoch),
            new_isr=tuple(self._member(member, around) for member in members),
            recovery=Recovery.RECOVERED,
            cause=cause,
        )

    def _member(self, member: BrokerId, around: ReplicaContext) -> IsrMember:
        follower = self.followers.get(member)
        if follower is not None:
            epoch = follower.broker_epoch
        else:
            me = around.brokers.get(member)
            epoch = None if me is None else me.broker_epoch
        return IsrMember(
            broker_id=member, broker_epoch=None if epoch is None else BrokerEpoch(epoch)
        )
