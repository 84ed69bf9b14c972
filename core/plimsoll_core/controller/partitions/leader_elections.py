"""Elects leaders on request, and returns leaderships to the preferred replicas.

`elect_leaders` is called for ElectLeaders.  A preferred leader comes from the ISR, so its election
costs only a new leader epoch.  An unclean leader is the most complete of the replicas that reported
their logs.  `name_leaders` is called for NameLeaders: it elects, once, the named leader of a
partition that has none, in the stated leader epoch only.  It also admits a broker with a volume
that came back empty (`brokers.registration`).

`return_leaders` is called by ticks, in bounded batches, and `lead_by_preferred` by Rebalances and
Reassignments at the end of their moves. Leadership does not return to a broker that has just
failed. Sources: the rules of docs/protocol.md for elections on request and for leaderless
partitions; KIP-460.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice

from msgspec.structs import replace

from plimsoll_core.cluster.model import ClusterImage, Partition, PartitionKey, Topic
from plimsoll_core.controller.kernel.decision import DecisionContext
from plimsoll_core.controller.kernel.partition_change import PartitionUpdate
from plimsoll_core.controller.partitions.failed_disks import is_short
from plimsoll_core.controller.partitions.unclean_recovery import (
    ASKED,
    NAMED,
    cause_of,
    most_complete,
    told,
)
from plimsoll_core.errors import Reason, Refusal
from plimsoll_core.ids import BrokerId
from plimsoll_core.messages.elections import (
    ElectionAnswer,
    ElectionsAnswer,
    ElectLeaders,
    NamedLeader,
    NameLeaders,
    PartitionName,
)
from plimsoll_core.messages.requests import (
    Answer,
)
from plimsoll_core.phrasing import replicas_text

PREFERRED = "leadership goes back to the preferred replica"
"""The beginning of the cause in the records of all elections of preferred leaders."""
PREFERRED_BY_CLIENT = f"{PREFERRED}, as a client asked"
BY_ITSELF = f"{PREFERRED}, by itself"
AFTER_MOVE = f"{PREFERRED}, at the end of its move by "
"""The beginning of the cause in the records of elections after a move. Kind, namespace and name of
the moving object follow."""


# --- for clients ---------------------------------------------------------------------------------


def elect_leaders(turn: DecisionContext, request: ElectLeaders) -> Answer:
    names, needed_only = request.partitions, request.needed_only
    if names is None:
        names, needed_only = tuple(_all_leaderless_or_displaced(turn.image)), True
    names = tuple(dict.fromkeys(names))
    now = names[: turn.settings.slice_partitions_max]
    answers = list(request.answered)
    for name in now:
        answer = _elect_one(turn, request, name)
        if not (needed_only and answer.code == Reason.ElectionNotNeeded.code):
            answers.append(answer)
    if len(now) < len(names):
        rest = names[len(now) :]
        turn.again = replace(
            request, partitions=rest, needed_only=needed_only, answered=tuple(answers)
        )
    return ElectionsAnswer(partitions=tuple(answers))


def _all_leaderless_or_displaced(image: ClusterImage) -> Iterator[PartitionName]:
    for name, topic_id in sorted(image.topic_ids.items()):
        for index in range(image.topics[topic_id].partitions):
            p = image.partitions[PartitionKey(topic_id, index)]
            if p.leader != p.replicas[0]:
                yield PartitionName(topic=name, index=index)


def _elect_one(turn: DecisionContext, request: ElectLeaders, name: PartitionName) -> ElectionAnswer:
    found = _find(turn.image, name)
    if isinstance(found, Refusal):
        return _refused(name, found)
    wish = (
        _preferred(turn, found) if request.kind == "Preferred" else _unclean(turn, request, found)
    )
    if isinstance(wish, Refusal):
        return _refused(name, wish)
    cause = PREFERRED_BY_CLIENT
    if wish.unclean is not None:
        cause = cause_of(turn, found, wish.unclean, ASKED)
    turn.change([(found, wish)], cause)
    after = turn.image.partitions[found.key]
    if after is found:
        return _refused(name, _not_available(turn, found))
    return _elected(name, after)


def _find(image: ClusterImage, name: PartitionName) -> Partition | Refusal:
    return image.partition_named(name.topic, name.index) or Refusal(
        reason=Reason.UnknownTopicOrPartition,
        message=f"The request names partition {name.topic}-{name.index}, which does not exist.",
    )


def _preferred(turn: DecisionContext, partition: Partition) -> PartitionUpdate | Refusal:
    if partition.leader == partition.replicas[0]:
        return _not_needed(
            f"Partition {turn.image.name_of(partition)} is already led by its preferred replica, "
            f"broker {partition.leader}; nothing needs to be done."
        )
    if partition.replicas[0] in turn.image.leaving:
        return _not_available(turn, partition)
    return PartitionUpdate(preferred=True)


def _not_available(turn: DecisionContext, partition: Partition) -> Refusal:
    first, where = partition.replicas[0], turn.image.name_of(partition)
    if first in turn.image.leaving:
        return Refusal(
            reason=Reason.PreferredLeaderNotAvailable,
            message=(
                f"Partition {where} cannot be led by its preferred replica, because broker {first} "
                "is leaving the cluster. Retry when the partition has moved to other brokers."
            ),
        )
    why = (
        "has not caught up with the leader (it is not in the ISR)"
        if turn.may_lead(first, partition)
        else "is not active (not registered, fenced, stopping, or its disk failed)"
    )
    return Refusal(
        reason=Reason.PreferredLeaderNotAvailable,
        message=(
            f"Partition {where} cannot be led by its preferred replica now, because broker {first} "
            f"{why}. Retry when it is in the ISR again."
        ),
    )


def _unclean(
    turn: DecisionContext, request: ElectLeaders, partition: Partition
) -> PartitionUpdate | Refusal:
    if partition.leader is not None and (request.needed_only or request.partitions is None):
        return _not_needed("")
    topic = turn.image.topics[partition.topic_id]
    if topic.object is not None:
        return Refusal(
            reason=Reason.PolicyViolation,
            message=(
                f"A client cannot start an unclean election for topic {topic.name}, because the "
                f"object Topic {topic.object.namespace}/{topic.object.name} declares it; name the "
                "leader in spec.uncleanRecovery.elect of that object."
            ),
        )
    if partition.leader is not None:
        return _not_needed(
            f"Partition {turn.image.name_of(partition)} is already led by broker "
            f"{partition.leader}; nothing needs to be done."
        )
    logs = {} if partition.isr else told(turn.image, turn.soft, partition, partition.replicas)
    able = {
        broker_id: log for broker_id, log in logs.items() if turn.may_lead(broker_id, partition)
    }
    leader = most_complete(able)
    if leader is not None:
        return PartitionUpdate(unclean=leader)
    return Refusal(
        reason=Reason.EligibleLeadersNotAvailable,
        message=(
            f"Partition {turn.image.name_of(partition)} cannot get a leader: of the brokers that "
            f"hold its replicas ({replicas_text(partition.replicas)}), none is both active and "
            "known to have reported its log. Start one of them, and retry after some seconds."
        ),
    )


def _not_needed(message: str) -> Refusal:
    return Refusal(reason=Reason.ElectionNotNeeded, message=message)


# --- answers -------------------------------------------------------------------------------------


def _refused(name: PartitionName, refusal: Refusal) -> ElectionAnswer:
    return ElectionAnswer(
        topic=name.topic,
        index=name.index,
        code=refusal.reason.code,
        reason=refusal.reason.name,
        message=refusal.message,
    )


def _elected(name: PartitionName, after: Partition) -> ElectionAnswer:
    return ElectionAnswer(
        topic=name.topic, index=name.index, leader=after.leader, leader_epoch=after.leader_epoch
    )


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
    """Elect the leader that a Topic object names for one partition. Return None if the request is
    outdated or not needed, otherwise the election's result or refusal."""
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
    where = turn.image.name_of(partition)
    if leader not in partition.replicas:
        text = (
            f"Broker {leader} cannot lead partition {where}, because it has no replica of it. Name "
            f"one of the brokers that have: {replicas_text(partition.replicas)}."
        )
    elif leader in turn.soft.emptied and not turn.acceptable(leader):
        turn.soft.given_up[partition.key] = (leader, partition.leader_epoch)
        text = (
            f"Broker {leader} becomes the leader of partition {where} later: its volume came back "
            "empty, and it must first start on it. It leads without any record, because naming it "
            "gives up the records that it had of this partition. To keep records that another "
            "replica has, name that replica's broker instead."
        )
    elif not turn.may_lead(leader, partition):
        text = (
            f"Broker {leader} cannot lead partition {where}, because it is not active now (not "
            "registered, fenced, stopping, or its disk failed). Start the broker, or name another "
            "leader."
        )
    elif partition.isr or not told(turn.image, turn.soft, partition, (leader,)):
        text = (
            f"Broker {leader} cannot lead partition {where} yet, because it has not reported where "
            "its log of the partition ends. The operator tries again by itself."
        )
    else:
        return None
    return Refusal(reason=Reason.LeaderNotEligible, message=text)


def return_leaders(turn: DecisionContext) -> None:
    """Every `preferred_leader_interval_ms`, elect the preferred replicas of partitions that other
    replicas lead; at other times do nothing. One call looks at one slice at most, and the next one
    continues. All elections at once would disturb clients noticeably."""
    due_ms = turn.soft.leaders_due_ms
    if due_ms is None:
        due_ms = turn.soft.leaders_due_ms = turn.now_ms + turn.settings.preferred_leader_interval_ms
    if turn.now_ms < due_ms:
        return
    left = turn.soft.displaced_left
    if not left:
        left.extend(reversed(turn.soft.displaced))
    first = max(0, len(left) - turn.settings.slice_partitions_max)
    now = [key for key in reversed(left[first:]) if key in turn.soft.displaced]
    del left[first:]
    batch = _returning(turn, now)
    turn.change([(p, PartitionUpdate(preferred=True)) for p in batch], BY_ITSELF)
    if not left:
        turn.soft.leaders_due_ms = turn.now_ms + turn.settings.preferred_leader_interval_ms


def lead_by_preferred(turn: DecisionContext, keys: Iterable[PartitionKey], mover: str) -> None:
    """Elect the preferred replicas of the partitions `keys`, which the object `mover` (a name as by
    `mover_name`) has moved, where others lead. At most one slice is changed here; ticks change the
    rest."""
    displaced = (key for key in keys if key in turn.soft.displaced)
    batch = islice(_returning(turn, displaced), turn.settings.slice_partitions_max)
    turn.change([(p, PartitionUpdate(preferred=True)) for p in batch], AFTER_MOVE + mover)


def _returning(turn: DecisionContext, keys: Iterable[PartitionKey]) -> Iterator[Partition]:
    steady: dict[BrokerId, bool] = {}
    for key in keys:
        p = turn.image.partitions[key]
        first = p.replicas[0]
        if first not in p.isr or first in turn.image.leaving:
            continue
        if first not in steady:
            steady[first] = _is_steady(turn, first)
        if steady[first] and turn.may_lead(first, p):
            yield p


def _is_steady(turn: DecisionContext, broker_id: BrokerId) -> bool:
    """Return True if leaderships may return to the broker: it has not failed lately, and its disk
    is not nearly full."""
    if is_short(turn, broker_id):
        return False  # it would refuse what clients write
    fell_out = turn.soft.flaps.get(broker_id)
    return not fell_out or turn.now_ms - fell_out[-1] >= turn.settings.flap_wait_ms_max
