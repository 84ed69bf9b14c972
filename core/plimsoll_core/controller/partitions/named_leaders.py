"""Elects the leader that a Topic object names, once, for a partition that has none.

Called for NameLeaders.  In any other leader epoch than the stated one nothing happens.  It also
admits a broker whose volume came back empty (`brokers.empty_volume`).  What an object declares is
decided in the object alone.  Source: the protocol's rule for leaderless partitions.
"""

from __future__ import annotations

from msgspec.structs import replace

from plimsoll_core.cluster.model import Partition, Topic
from plimsoll_core.controller.kernel.decision import DecisionContext
from plimsoll_core.controller.kernel.partition_change import PartitionUpdate
from plimsoll_core.controller.partitions.requested_elections import _elected, _find, _refused
from plimsoll_core.controller.partitions.unclean_recovery import NAMED, cause_of, told
from plimsoll_core.errors import Reason, Refusal
from plimsoll_core.ids import BrokerId
from plimsoll_core.messages.elections import (
    ElectionAnswer,
    ElectionsAnswer,
    NamedLeader,
    NameLeaders,
    PartitionName,
)
from plimsoll_core.messages.requests import (
    Answer,
)
from plimsoll_core.phrasing import replicas_text


def name_leaders(turn: DecisionContext, request: NameLeaders) -> Answer:
    topic = turn.image.topic_of(request.object)
    if topic is None:
        return ElectionsAnswer(partitions=request.answered)
    now = request.leaders[: turn.settings.slice_partitions_max]
    answers = list(request.answered)
    for named in now:
        answer = _name_one(turn, topic, named)
        if answer is not None:
            answers.append(answer)
    if len(now) < len(request.leaders):
        rest = request.leaders[len(now) :]
        turn.again = replace(request, leaders=rest, answered=tuple(answers))
    return ElectionsAnswer(partitions=tuple(answers))


def _name_one(turn: DecisionContext, topic: Topic, named: NamedLeader) -> ElectionAnswer | None:
    """None: it was done, or overtaken, or is not needed."""
    name = PartitionName(topic=topic.name, index=named.partition)
    found = _find(turn.image, name)
    if isinstance(found, Refusal):
        return _refused(name, found)
    if found.leader is not None or found.leader_epoch != named.at_leader_epoch:
        return None
    refusal = _not_eligible(turn, found, named.leader)
    if refusal:
        return _refused(name, refusal)
    cause = cause_of(turn, found, named.leader, NAMED)
    turn.change([(found, PartitionUpdate(unclean=named.leader))], cause)
    return _elected(name, turn.image.partitions[found.key])


def _not_eligible(turn: DecisionContext, partition: Partition, leader: BrokerId) -> Refusal | None:
    where = f"Partition {partition.index} cannot be led by broker {leader}: "
    if leader not in partition.replicas:
        why = f"it is no replica; they are {replicas_text(partition.replicas)}."
    elif leader in turn.soft.emptied and not turn.acceptable(leader):
        turn.soft.given_up[partition.key] = (leader, partition.leader_epoch)
        why = (
            "its volume came back empty. Since you name it, what it held of this partition is given"
            " up: it leads, without any record, when it has started on the empty volume."
        )
    elif not turn.may_lead(leader, partition):
        why = "it does not take part now (not registered, fenced, stopping, or its disk failed)."
    elif partition.isr or not told(turn.image, turn.soft, partition, (leader,)):
        why = "it has not reported yet how complete its log is; the operator retries."
    else:
        return None
    return Refusal(reason=Reason.LeaderNotEligible, message=where + why)
