"""A leader's state in one epoch: its partition, its followers' progress and the ISR.

Called by `replica.Replica` only.  How far the high watermark may go is `high_watermark`'s to
decide, and which replicas join or leave the ISR, `isr_membership`'s.  Source: KIP-497.
"""

from __future__ import annotations

from plimsoll_core.cluster.model import Partition
from plimsoll_core.ids import BrokerId
from plimsoll_core.replica.follower_progress import FollowerProgress
from plimsoll_core.replica.maximal_isr import CommittedIsr, IsrState


class Leader:
    """One term of leadership.  A new term is a new object: nothing learnt in another term counts,
    since logs may have been cut in terms that this broker never saw."""

    __slots__ = (
        "copied_anew",
        "epoch",
        "followers",
        "isr",
        "min_isr",
        "not_before_ms",
        "partition",
        "quorum",
        "start_offset",
    )

    def __init__(self, me: BrokerId, partition: Partition, log_end: int, now_ms: int) -> None:
        # Who has begun to copy this log from where it begins; None: others may have the same log.
        self.copied_anew: set[int] | None = None
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
        # The progress of all that count for the high watermark (`high_watermark`).
        self.quorum = [
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

    def must_copy_anew(self, broker_id: int, *, empty: bool) -> bool:
        """Whether what a follower holds counts for nothing: this log was elected without the last
        records of keys that it may have.  `empty`: it holds nothing, so it begins."""
        if self.copied_anew is None or self.may_be_next(broker_id):
            return False
        if empty:
            self.copied_anew.add(broker_id)
        return broker_id not in self.copied_anew

    @property
    def enough_in_sync(self) -> bool:
        """Whether the *committed* in-sync set is at its minimum."""
        return len(self.isr.committed) >= self.min_isr

    def may_be_next(self, broker_id: int) -> bool:
        """Whether it may be elected as it is: nothing that it holds is to be doubted."""
        return broker_id in self.isr.maximal or broker_id in self.partition.elr

    def settled(
        self, follower: BrokerId, log_end: int, high_watermark: int
    ) -> FollowerProgress | None:
        """A follower's progress if it is in sync and has everything, and so has every other
        in-sync replica: then its fetches carry nothing new until something changes here."""
        if high_watermark != log_end or follower not in self.isr.committed:
            return None
        progress = self.followers.get(follower)
        return progress if progress is not None and progress.log_end == log_end else None
