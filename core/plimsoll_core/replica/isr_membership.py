"""Selects the replicas that a leader proposes to add to its ISR or to remove; interprets the
controller's answers.

Called by `replica.Replica`: `expansion` after a follower's fetch, `shrinkage` every half of the lag
limit, `outcome` for each answer of the controller. One proposal is in flight at a time
(`leader.IsrState`); the controller commits or rejects it. Sources: the rules of docs/protocol.md
for expanding and shrinking an ISR and for AlterPartition; KIP-497 (AlterPartition), KIP-841 (fenced
brokers), KIP-903 (stale broker epochs).
"""

from __future__ import annotations

from enum import Enum

from plimsoll_core.cluster.model import Recovery
from plimsoll_core.errors import Code
from plimsoll_core.ids import BrokerEpoch, BrokerId, PartitionEpoch
from plimsoll_core.messages.requests import IsrMember, IsrProposal, PartitionAnswer
from plimsoll_core.replica.leader import CommittedIsr, Leader, PendingExpand, PendingShrink
from plimsoll_core.replica.replica_context import ReplicaContext

EXPAND_CAUSE = "IsrExpand"
SHRINK_CAUSE = "IsrShrinkLag"


def expansion(
    leader: Leader,
    follower: BrokerId,
    around: ReplicaContext,
    high_watermark: int,
    log_start: int,
    now_ms: int,
) -> PendingExpand | None:
    """Return a proposal to add `follower`, which has just fetched, or None if the follower may not
    join.

    It must hold everything that may be committed: up to the high watermark, and up to the start of
    this leader epoch, since the old leader may have committed that far. It must hold nothing below
    `log_start`, where the leader's log begins, since a client may have been told that it is
    deleted.
    """
    isr = leader.isr
    if not isinstance(isr, CommittedIsr) or follower in isr.committed:
        return None
    end = leader.followers[follower].log_end
    if end is None or end < high_watermark or end < leader.start_offset:
        return None
    if leader.followers[follower].log_start < log_start:
        return None
    refused = now_ms < leader.followers[follower].join_not_before_ms
    if refused or not _eligible(leader, follower, around):
        return None
    if not leader.enough_in_sync and not _within_lag(leader, follower, around, now_ms):
        return None
    joined = (*isr.committed, follower)
    return PendingExpand(
        committed=isr.committed,
        joining=follower,
        proposal=_proposal(leader, around, joined, EXPAND_CAUSE),
    )


def _eligible(leader: Leader, follower: BrokerId, around: ReplicaContext) -> bool:
    broker = around.brokers.get(follower)
    return (
        broker is not None
        and broker.active
        and broker.broker_epoch == leader.followers[follower].broker_epoch
    )


def _within_lag(leader: Leader, follower: BrokerId, around: ReplicaContext, now_ms: int) -> bool:
    # While the high watermark is frozen it is no yardstick: a follower merely above it would
    # join, be found lagging and leave, over and over.
    caught_up_ms = leader.followers[follower].caught_up_ms
    return caught_up_ms is not None and now_ms - caught_up_ms <= around.lag_time_max_ms


def shrinkage(
    leader: Leader, around: ReplicaContext, log_end: int, now_ms: int
) -> PendingShrink | None:
    """Return a proposal to remove all lagging followers from the ISR, or None if none lags or no
    proposal may be made now."""
    isr = leader.isr
    if not isinstance(isr, CommittedIsr):
        return None
    leaving = lagging(leader, around, log_end, now_ms)
    if not leaving or now_ms < leader.shrink_not_before_ms:
        return None
    staying = tuple(replica for replica in isr.committed if replica not in leaving)
    return PendingShrink(
        committed=isr.committed,
        leaving=leaving,
        proposal=_proposal(leader, around, staying, SHRINK_CAUSE),
    )


def lagging(
    leader: Leader, around: ReplicaContext, log_end: int, now_ms: int
) -> tuple[BrokerId, ...]:
    """Return the members of the committed ISR that have lacked the end of the log for longer than
    the lag limit, as of `now_ms`."""
    return tuple(
        replica
        for replica in leader.isr.committed
        if replica in leader.followers
        and leader.followers[replica].log_end != log_end
        and not _within_lag(leader, replica, around, now_ms)
    )


def _proposal(
    leader: Leader, around: ReplicaContext, members: tuple[BrokerId, ...], cause: str
) -> IsrProposal:
    return IsrProposal(
        topic_id=leader.partition.topic_id,
        index=leader.partition.index,
        leader_epoch=leader.epoch,
        partition_epoch=PartitionEpoch(leader.partition.partition_epoch),
        new_isr=tuple(_member(leader, member, around) for member in members),
        recovery=Recovery.RECOVERED,
        cause=cause,
    )


def _member(leader: Leader, member: BrokerId, around: ReplicaContext) -> IsrMember:
    follower = leader.followers.get(member)
    if follower is not None:
        epoch = follower.broker_epoch
    else:
        me = around.brokers.get(member)
        epoch = None if me is None else me.broker_epoch
    return IsrMember(broker_id=member, broker_epoch=None if epoch is None else BrokerEpoch(epoch))


INELIGIBLE_BACKOFF_MS = 1_000
UNDECIDED = frozenset(
    {
        Code.UNKNOWN_TOPIC_OR_PARTITION,
        Code.UNKNOWN_TOPIC_ID,
        Code.FENCED_LEADER_EPOCH,
        Code.INVALID_UPDATE_VERSION,
        Code.INVALID_REQUEST,
        Code.NEW_LEADER_ELECTED,
    }
)
"""Errors after which a proposal may have been committed or overtaken. Only newer metadata can show
which."""


class ProposalOutcome(Enum):
    """The effect of the controller's answer on the ISR proposal in flight."""

    COMMITTED = "committed"
    NOT_APPLIED = "the proposal was certainly not applied: roll it back"
    UNDECIDED = "the proposal stays in flight until newer metadata arrive"
    UNANSWERED = "the proposal is sent again unchanged"


def outcome(answer: PartitionAnswer | None) -> ProposalOutcome:
    """Classify the controller's answer to an ISR proposal. `answer` is None if no answer came, as
    after a lost connection."""
    if answer is None:
        return ProposalOutcome.UNANSWERED
    if answer.code == Code.NONE:
        return ProposalOutcome.COMMITTED
    if answer.code == Code.INELIGIBLE_REPLICA:
        return ProposalOutcome.NOT_APPLIED
    return ProposalOutcome.UNDECIDED if answer.code in UNDECIDED else ProposalOutcome.UNANSWERED
