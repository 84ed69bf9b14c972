"""A leader's state in one leader epoch: its ISR, and the progress of its followers.

`replica.Replica` holds a `Leader`; a new leader epoch gets a new object. `IsrState` is the ISR as
the leader holds it: committed, or committed with one proposal in flight. While a proposal is in
flight the controller may or may not have committed it. The leader therefore counts the *maximal*
ISR when it advances the high watermark, and the *committed* ISR when it compares with min ISR.
`FollowerProgress` holds what the fetches of one follower prove.

`isr_membership` decides which replicas join or leave the ISR, and `commit` how far the high
watermark may advance. Sources: KIP-497, KIP-966; KIP-227 (fetch sessions).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import assert_never

from plimsoll_core.cluster.model import Partition
from plimsoll_core.ids import BrokerId
from plimsoll_core.messages.requests import IsrProposal
from plimsoll_core.replica.replica_values import FollowerFetch
from plimsoll_core.replica.verified_writers import VerifiedWriters


@dataclass(frozen=True, slots=True, kw_only=True)
class CommittedIsr:
    """The committed ISR, with no proposal in flight."""

    committed: tuple[BrokerId, ...]

    @property
    def maximal(self) -> tuple[BrokerId, ...]:
        return self.committed


@dataclass(frozen=True, slots=True, kw_only=True)
class PendingExpand:
    """The committed ISR and a proposal in flight to add `joining`. This replica counts for the high
    watermark even before the proposal is sent."""

    committed: tuple[BrokerId, ...]
    joining: BrokerId
    proposal: IsrProposal

    @property
    def maximal(self) -> tuple[BrokerId, ...]:
        return (*self.committed, self.joining)


@dataclass(frozen=True, slots=True, kw_only=True)
class PendingShrink:
    """The committed ISR and a proposal in flight to remove `leaving`. These replicas count for the
    high watermark until the removal is committed."""

    committed: tuple[BrokerId, ...]
    leaving: tuple[BrokerId, ...]
    proposal: IsrProposal

    @property
    def maximal(self) -> tuple[BrokerId, ...]:
        return self.committed


IsrState = CommittedIsr | PendingExpand | PendingShrink


def proposal_in_flight(state: IsrState) -> IsrProposal | None:
    match state:
        case CommittedIsr():
            return None
        case PendingExpand() | PendingShrink():
            return state.proposal
        case _:
            assert_never(state)


class Presence:
    """The times of a follower's last fetch in one fetch session, and of the reply that this fetch
    acknowledges (None: it acknowledges none), in ms of the leader's clock. All partitions of the
    session share it.

    A follower that is caught up on a partition no longer names it in its incremental fetches. Its
    `FollowerProgress` reads the times here, so that such a fetch costs nothing per partition.
    """

    __slots__ = ("acknowledged_ms", "fetch_ms")

    def __init__(self) -> None:
        self.fetch_ms = 0
        self.acknowledged_ms: int | None = None


class FollowerProgress:
    """A leader's knowledge of one follower in this leader epoch, mostly from its fetches. Until the
    follower has fetched, `log_end` and `broker_epoch` are None, and `log_start` is 0. A member of
    the ISR counts as caught up at the beginning of the leader epoch."""

    __slots__ = (
        "_acknowledged_ms",
        "_caught_up_ms",
        "_fetch_leader_end",
        "_fetch_ms",
        "_presence",
        "broker_epoch",
        "join_not_before_ms",
        "log_end",
        "log_start",
    )

    def __init__(self, caught_up_ms: int | None) -> None:
        self.log_end: int | None = None
        self.log_start = 0
        self.broker_epoch: int | None = None
        # When it may be proposed for the ISR again, after the controller refused it.
        self.join_not_before_ms = 0
        self._fetch_ms = 0
        self._fetch_leader_end: int | None = None
        self._caught_up_ms = caught_up_ms
        self._acknowledged_ms: int | None = None
        self._presence: Presence | None = None

    @property
    def caught_up_ms(self) -> int | None:
        """Return the last time at which the follower certainly had the leader's whole log, or
        None."""
        return self._caught_up_ms if self._presence is None else self._presence.fetch_ms

    @property
    def acknowledged_ms(self) -> int | None:
        """Return the time when the leader sent the newest reply that the follower has acknowledged
        with another fetch: at that time it still followed this leader epoch. Return None if there
        is no such reply."""
        return self._acknowledged_ms if self._presence is None else self._presence.acknowledged_ms

    def settle(self, presence: Presence) -> None:
        """Record that the follower has the whole log. Until the leader's log end moves, each fetch
        of its session counts as a fetch of this partition."""
        self._presence = presence

    def unsettle(self, session: Presence) -> None:
        """End the state that `settle` began, because the leader's log end moved or the session
        ended. Keep the times of the session's last fetch. Do nothing if a newer session of the
        follower has replaced this one."""
        if self._presence is session:
            self._leave_session(session)

    def _leave_session(self, presence: Presence | None) -> None:
        if presence is not None:
            self._presence = None
            self._caught_up_ms = self._fetch_ms = presence.fetch_ms
            self._fetch_leader_end = self.log_end
            self._acknowledged_ms = presence.acknowledged_ms

    def fetched(self, fetch: FollowerFetch, leader_end: int, now_ms: int) -> None:
        """Record a fetch at `now_ms`, which proves that the follower has every record below its
        offset. The follower counts as caught up now if the offset is `leader_end` (the leader's log
        end) or above, as of its previous fetch if it has reached the log end of that time, and
        otherwise as of the time that the fetch states (`had_all_ms`)."""
        self._leave_session(self._presence)
        offset = fetch.offset
        if offset >= leader_end:
            self._caught_up_ms = now_ms
        elif self._fetch_leader_end is not None and offset >= self._fetch_leader_end:
            self._caught_up_ms = self._fetch_ms
        elif fetch.had_all_ms is not None:
            self._caught_up_ms = max(fetch.had_all_ms, self._caught_up_ms or 0)
        self._fetch_ms = now_ms
        self._fetch_leader_end = leader_end
        self.log_end = offset
        self.log_start = fetch.log_start
        self.broker_epoch = fetch.broker_epoch
        if fetch.leader_epoch is not None:
            self._acknowledged_ms = fetch.acknowledged_ms


class Leader:
    """The state of a replica that leads its partition in one leader epoch. `start_offset`: the log
    end at the beginning of this epoch. `quorum`: the progress of the followers in the maximal ISR.
    `copied_anew`: the followers that copy this log from its start; None if none has to discard its
    own. `verified`: the producers that may begin a transaction.

    Each leader epoch gets a new object. What followers proved in an earlier epoch does not count,
    since their logs may have been truncated in between under other leaders.
    """

    __slots__ = (
        "copied_anew",
        "epoch",
        "followers",
        "isr",
        "min_isr",
        "partition",
        "quorum",
        "shrink_not_before_ms",
        "start_offset",
        "verified",
    )

    def __init__(self, me: BrokerId, partition: Partition, log_end: int, now_ms: int) -> None:
        # Followers that copy this log from its start; None if no follower has to discard its own.
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
        self.shrink_not_before_ms = 0
        self.verified = VerifiedWriters()
        self.set_isr(CommittedIsr(committed=partition.isr))

    def set_isr(self, state: IsrState) -> None:
        """Set the ISR and derive `quorum` from it. The only place that changes either."""
        self.isr = state
        # The progress of all that count for the high watermark (`commit`).
        self.quorum = [
            self.followers[replica] for replica in state.maximal if replica in self.followers
        ]

    def stay(self, partition: Partition, now_ms: int) -> None:
        """Apply newer metadata in the same leader epoch: take the ISR, the replicas and min ISR
        from them, and drop the proposal in flight. Known followers keep their progress; delays
        after refused proposals end."""
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
        self.shrink_not_before_ms = 0
        for progress in self.followers.values():
            progress.join_not_before_ms = 0
        self.set_isr(CommittedIsr(committed=partition.isr))

    def refused(self, until_ms: int) -> None:
        """Record that the controller refused the ISR proposal in flight because a member is
        ineligible. Do not propose the same expansion, or any shrink, before `until_ms`."""
        if isinstance(self.isr, PendingExpand):
            self.followers[self.isr.joining].join_not_before_ms = until_ms
        else:
            self.shrink_not_before_ms = until_ms

    def must_copy_anew(self, broker_id: int, *, empty: bool) -> bool:
        """Return True if the follower must discard its log and copy this one from the start. If it
        must and `empty` is True (it holds no record), record that its new copy begins with this
        fetch, and return False.

        This leader was elected without the last records of some keys, which the follower may have.
        A member of the ISR or the ELR keeps its log.
        """
        if self.copied_anew is None or self.may_be_next(broker_id):
            return False
        if empty:
            self.copied_anew.add(broker_id)
        return broker_id not in self.copied_anew

    @property
    def enough_in_sync(self) -> bool:
        """True if the committed ISR has at least min ISR members."""
        return len(self.isr.committed) >= self.min_isr

    def may_be_next(self, broker_id: int) -> bool:
        """Return True if the controller may elect the broker cleanly: it is in the maximal ISR or
        in the ELR."""
        return broker_id in self.isr.maximal or broker_id in self.partition.elr

    def settled(
        self, follower: BrokerId, log_end: int, high_watermark: int
    ) -> FollowerProgress | None:
        """Return the follower's progress if it may be settled: it is in the committed ISR, it has
        the whole log, and all of the log is committed. Its fetches then bring nothing new until the
        log grows. Otherwise return None."""
        if high_watermark != log_end or follower not in self.isr.committed:
            return None
        progress = self.followers.get(follower)
        return progress if progress is not None and progress.log_end == log_end else None
