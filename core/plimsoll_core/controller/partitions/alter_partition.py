"""Commits or rejects a leader's proposed ISRs. Called for AlterPartition.

Each proposal is judged independently of the others. The checks run in order, and the first that
fails gives the answer. Sources: the rule of docs/protocol.md for proposals; KIP-497; KIP-841 and
KIP-903 (eligible members).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from plimsoll_core.cluster.model import Partition, PartitionKey, Recovery
from plimsoll_core.controller.kernel.decision import DecisionContext, is_held_back, stale_epoch
from plimsoll_core.controller.kernel.partition_change import PartitionUpdate
from plimsoll_core.errors import Reason, Refusal
from plimsoll_core.ids import BrokerId
from plimsoll_core.messages.requests import (
    AlterPartition,
    Answer,
    IsrProposal,
    PartitionAnswer,
    PartitionsAnswer,
)

CAUSE_LENGTH_MAX = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One proposed ISR, with the inputs of its checks: the decision's context, the broker that sent
    the proposal, and the partition as it is committed."""

    turn: DecisionContext
    sender: BrokerId
    partition: Partition
    proposal: IsrProposal

    def refuse(self, reason: Reason, message: str) -> Refusal:
        topic = self.turn.image.topics[self.partition.topic_id].name
        where = f"Partition {topic}-{self.partition.index}"
        return Refusal(reason=reason, message=f"{where}: {message}")


Check = Callable[[Case], Refusal | None]


def alter_partition(turn: DecisionContext, request: AlterPartition) -> Answer | Refusal:
    refusal = stale_epoch(turn, request.broker_id, request.broker_epoch)
    if refusal:
        return refusal
    answers = tuple(_judge(turn, request.broker_id, one) for one in request.proposals)
    return PartitionsAnswer(partitions=answers)


def _judge(turn: DecisionContext, sender: BrokerId, proposal: IsrProposal) -> PartitionAnswer:
    found = _find(turn, proposal)
    if isinstance(found, Refusal):
        return _refused(proposal, found)
    case = Case(turn=turn, sender=sender, partition=found, proposal=proposal)
    for check in CHECKS:
        refusal = check(case)
        if refusal:
            return _refused(proposal, refusal)
    wish = PartitionUpdate(
        isr=[member.broker_id for member in proposal.new_isr], recovery=proposal.recovery
    )
    turn.change([(found, wish)], proposal.cause[:CAUSE_LENGTH_MAX])
    for member in proposal.new_isr:
        if member.broker_id not in found.isr:
            turn.soft.in_service(found.key, member.broker_id)  # it follows: its disk has room again
    after = turn.image.partitions[found.key]
    if after.leader != found.leader:
        now = "has no leader now"
        if after.leader is not None:
            now = f"is led by broker {after.leader} now"
        moved = Refusal(
            reason=Reason.NewLeaderElected,
            message=(
                f"The ISR that the leader of partition {turn.image.name_of(after)} proposed is in "
                f"effect. The partition {now} because of it, so the former leader learns this as a "
                "refusal; nothing needs to be done."
            ),
        )
        return _refused(proposal, moved)
    return PartitionAnswer(
        topic_id=after.topic_id,
        index=after.index,
        leader=after.leader,
        leader_epoch=after.leader_epoch,
        partition_epoch=after.partition_epoch,
        isr=after.isr,
        recovery=after.recovery,
    )


def _find(turn: DecisionContext, proposal: IsrProposal) -> Partition | Refusal:
    topic = turn.image.topics.get(proposal.topic_id)
    if topic is None:
        return Refusal(
            reason=Reason.UnknownTopicId,
            message=(
                f"The proposed ISR is ignored, because the topic with id {proposal.topic_id} was "
                "deleted. Nothing needs to be done: the broker that proposed it learns of the "
                "deletion from the metadata."
            ),
        )
    partition = turn.image.partitions.get(PartitionKey(proposal.topic_id, proposal.index))
    if partition is None:
        return Refusal(
            reason=Reason.UnknownTopicOrPartition,
            message=(
                f"Topic {topic.name} has no partition {proposal.index}; it has {topic.partitions}."
            ),
        )
    return partition


def _refused(proposal: IsrProposal, refusal: Refusal) -> PartitionAnswer:
    return PartitionAnswer(
        topic_id=proposal.topic_id,
        index=proposal.index,
        code=refusal.reason.code,
        message=refusal.message,
    )


# --- checks ------------------------------------------------------------------------------------


def controller_is_not_behind(case: Case) -> Refusal | None:
    theirs, ours = case.proposal, case.partition
    ahead = theirs.leader_epoch > ours.leader_epoch or theirs.partition_epoch > ours.partition_epoch
    if not ahead:
        return None
    return case.refuse(
        Reason.NotController,
        "the leader that proposed an ISR has newer metadata than this controller, so the leader "
        "must ask the newer controller; it does so by itself.",
    )


def leader_epoch_is_current(case: Case) -> Refusal | None:
    if case.proposal.leader_epoch == case.partition.leader_epoch:
        return None
    return case.refuse(
        Reason.FencedLeaderEpoch,
        f"the proposed ISR is refused, because it is from leader epoch "
        f"{case.proposal.leader_epoch}, and the partition now has leader epoch "
        f"{case.partition.leader_epoch}. Nothing needs to be done: the broker learns that from "
        "the metadata.",
    )


def sender_is_leader(case: Case) -> Refusal | None:
    if case.sender == case.partition.leader:
        return None
    return case.refuse(
        Reason.InvalidRequest,
        f"the ISR that broker {case.sender} proposed is refused, because this broker does not "
        "lead the partition. Nothing needs to be done: it learns the leader from the metadata.",
    )


def partition_epoch_is_current(case: Case) -> Refusal | None:
    if case.proposal.partition_epoch == case.partition.partition_epoch:
        return None
    return case.refuse(
        Reason.InvalidUpdateVersion,
        f"the proposed ISR is refused, because it is from partition epoch "
        f"{case.proposal.partition_epoch}, and the partition now has partition epoch "
        f"{case.partition.partition_epoch}. The leader learns that from the metadata and proposes "
        "again.",
    )


def members_are_replicas(case: Case) -> Refusal | None:
    members = [member.broker_id for member in case.proposal.new_isr]
    if len(set(members)) != len(members):
        return case.refuse(
            Reason.InvalidRequest,
            "the ISR that the leader proposed names a broker twice; this is a bug of the broker, "
            "please report it.",
        )
    strangers = set(members) - set(case.partition.replicas)
    if strangers:
        return case.refuse(
            Reason.InvalidRequest,
            f"the ISR that the leader proposed names broker {min(strangers)}, which has no "
            "replica of the partition; this is a bug of the broker, please report it.",
        )
    if case.sender not in members:
        return case.refuse(
            Reason.InvalidRequest,
            "the ISR that the leader proposed does not contain the leader itself; this is a bug "
            "of the broker, please report it.",
        )
    return None


def recovery_only_ends(case: Case) -> Refusal | None:
    if case.proposal.recovery is Recovery.RECOVERED:
        return None
    if case.partition.recovery is Recovery.RECOVERED:
        return case.refuse(
            Reason.InvalidRequest,
            "the leader proposed an ISR of a partition under recovery, but the recovery has "
            "ended. Nothing needs to be done: the leader learns that from the metadata.",
        )
    if len(case.proposal.new_isr) > 1:
        return case.refuse(
            Reason.InvalidRequest,
            "no replica may join the ISR while the leader recovers the partition. The "
            "leader proposes it again afterwards.",
        )
    return None


def members_are_eligible(case: Case) -> Refusal | None:
    for member in case.proposal.new_isr:
        broker = case.turn.image.brokers.get(member.broker_id)
        if broker is None or not case.turn.acceptable(member.broker_id):
            return case.refuse(
                Reason.IneligibleReplica,
                f"broker {member.broker_id} may not be in the ISR now, because it is fenced, "
                "shutting down or not registered. The leader proposes it again when the broker "
                "is back.",
            )
        if member.broker_epoch not in (None, broker.broker_epoch):
            return case.refuse(
                Reason.IneligibleReplica,
                f"broker {member.broker_id} has since restarted (stale broker epoch). The leader"
                " proposes it again once it has caught up.",
            )
    return None


def newcomers_stay(case: Case) -> Refusal | None:
    """Refuse to add a replica to the ISR if its broker has a restart grant: it would soon leave the
    ISR again."""
    image, isr = case.turn.image, case.partition.isr
    if not image.grants:
        return None
    for member in case.proposal.new_isr:
        if member.broker_id not in isr and image.restart_granted(member.broker_id):
            return case.refuse(
                Reason.IneligibleReplica,
                f"broker {member.broker_id} is about to be restarted, and joins the ISR after "
                "that. Nothing needs to be done.",
            )
    return None


def newcomers_are_not_held_back(case: Case) -> Refusal | None:
    """Refuse to add a replica to the ISR if its broker is held back after failures and the ISR has
    at least min ISR members without it."""
    turn, partition = case.turn, case.partition
    if not turn.soft.flaps or len(partition.isr) < partition.effective_min_isr:
        return None
    for member in case.proposal.new_isr:
        if member.broker_id not in partition.isr and is_held_back(turn, member.broker_id):
            return case.refuse(
                Reason.IneligibleReplica,
                f"broker {member.broker_id} has failed repeatedly, so it joins the ISR only after "
                "a while. The leader proposes it again by itself.",
            )
    return None


# Order matters: a stale leader must hear that it is stale before it hears that its proposal is
# wrong, and a controller that is behind must not call a request stale.
CHECKS: tuple[Check, ...] = (
    controller_is_not_behind,
    leader_epoch_is_current,
    sender_is_leader,
    partition_epoch_is_current,
    members_are_replicas,
    recovery_only_ends,
    members_are_eligible,
    newcomers_stay,
    newcomers_are_not_held_back,
)
