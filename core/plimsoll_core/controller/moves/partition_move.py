"""Starts, replaces or rolls back the move of a partition, and keeps its rate limit and progress.

Called for AlterReassignments, LimitMovement and ReportCopies. A move adds the new replicas of its
target to the partition. It ends with the change that brings the whole target into the ISR
(`partition_change`, step 1); until then every former replica stays. A rollback drops the replicas
that the move was adding; it is refused while one of these may be the last that holds an
acknowledged record. The limit is a record, because brokers enforce it; the sizes that brokers
report are not logged and serve status only. Clients may not change a topic that an object
declares, nor a partition that an object moves. Sources: the rule of docs/protocol.md for
reassignments; KAFKA-13972, KAFKA-15665.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from collections.abc import Set as AbstractSet

from msgspec.structs import replace

from plimsoll_core.cluster.model import Partition, PartitionKey, Topic
from plimsoll_core.cluster.move_owners import Mover, mover_of, running
from plimsoll_core.cluster.records import MovementLimited, TopicConfigured
from plimsoll_core.controller.brokers.broker_removal import all_stay
from plimsoll_core.controller.kernel.availability_margin import away, may_become
from plimsoll_core.controller.kernel.decision import DecisionContext, stale_epoch
from plimsoll_core.controller.kernel.partition_change import Ids, PartitionUpdate
from plimsoll_core.controller.kernel.rack_rules import check_spread
from plimsoll_core.controller.kernel.volatile_state import PartitionTraffic
from plimsoll_core.controller.kernel.voluntary_work import VoluntaryWork, hour_hold
from plimsoll_core.controller.moves.move_room import MoveRoom
from plimsoll_core.errors import Reason, Refusal
from plimsoll_core.ids import BrokerId, TopicId
from plimsoll_core.messages.moves import (
    AlterReassignments,
    LimitMovement,
    PartitionTarget,
    ReassignmentsAnswer,
    ReportCopies,
    TargetAnswer,
)
from plimsoll_core.messages.requests import Answer, Done
from plimsoll_core.phrasing import brokers_text, counted, ids_text, is_or_are, replicas_text
from plimsoll_core.planner.placement import EXPLICIT

CANCELLED = "reassignment cancelled"
CAUSE = "reassignment"
BY_CLIENT = "reassignment by a client"
"""The cause in the records of moves that a client requested."""
ASK_AGAIN = "repeat the request when there is room"


def rolled_back(
    p: Partition, name: str, absent: AbstractSet[BrokerId] = frozenset(), *, forced: bool = False
) -> PartitionUpdate | Refusal:
    """Return the change that gives the partition the replicas it had before its move. Return a
    refusal if it is not being moved, or if that would drop a replica that may be needed. `name`:
    the partition in messages (topic-index). `absent` are the brokers with a restart grant. `forced`
    permits fewer than min ISR replicas in sync."""
    if not p.moving:
        return Refusal(
            reason=Reason.NoReassignmentInProgress,
            message=f"Partition {name} is not being moved, so there is no move to cancel.",
        )
    unwanted = frozenset(p.adding)
    isr = [r for r in p.isr if r not in unwanted]
    refusal = check_drop(p, name, unwanted, forced=forced)
    if refusal is None and not forced:
        refusal = check_absent(p, name, isr, (), absent)
    if refusal:
        return refusal
    return PartitionUpdate(isr=isr, replicas=p.settled, adding=(), removing=())


def check_drop(
    p: Partition, name: str, unwanted: AbstractSet[BrokerId], *, forced: bool = False
) -> Refusal | None:
    """Refuse to drop the replicas in `unwanted` if they are the whole ISR. Unless `forced`, refuse
    also if one of them is in the ISR, ELR or last known ELR and fewer than min ISR other replicas
    are in sync."""
    left = [r for r in p.isr if r not in unwanted]
    if p.isr and not left:
        return _refuse_drop(name, unwanted, "no other replica is in sync")
    trusted = {*p.isr, *p.elr, *p.last_known_elr} & unwanted
    if trusted and len(left) < p.effective_min_isr and not forced:
        return _refuse_drop(
            name,
            trusted,
            f"only {counted(len(left), 'other replica')} {is_or_are(len(left))} in sync, which is"
            f" below min ISR {p.effective_min_isr}, so acknowledged records could depend on it",
        )
    return None


def check_absent(
    p: Partition, name: str, isr: Sequence[BrokerId], target: Ids, absent: AbstractSet[BrokerId]
) -> Refusal | None:
    """Refuse if, without the brokers in `absent`, too few replicas are in sync: either with this
    ISR now, or with the replicas `target` at the end of the move."""
    if may_become(p, isr, target, absent):
        return None
    away = absent & {*isr, *target}
    return Refusal(
        reason=Reason.BrokerRestarts,
        message=(
            f"The replicas of partition {name} cannot change while {brokers_text(away)} "
            f"{'restarts' if len(away) == 1 else 'restart'}, because the partition could then have "
            "fewer replicas in sync than min ISR. A change by an object waits for that by itself; "
            "a client must repeat its request."
        ),
    )


def _refuse_drop(name: str, dropped: Iterable[BrokerId], why: str) -> Refusal:
    return Refusal(
        reason=Reason.InvalidReplicaAssignment,
        message=(
            f"The replica of partition {name} on {brokers_text(dropped)} cannot be removed now: "
            f"{why}. Let the move of the partition that is under way end, or repeat this request "
            "when more replicas are in sync."
        ),
    )


# --- one partition ------------------------------------------------------------------------------


def begun(
    p: Partition, name: str, target: Ids, absent: AbstractSet[BrokerId] = frozenset()
) -> PartitionUpdate | Refusal:
    """Return the change that begins the partition's move to `target`, or replaces its present move
    by that one. Return a refusal if that would drop a replica that may be needed.

    Replicas that the present move is adding continue to copy if they are in `target`, and are
    dropped at once if they are not. `name`: the partition in messages (topic-index). `absent` are
    the brokers with a restart grant.
    """
    settled = p.settled
    unwanted = frozenset(p.adding) - frozenset(target)
    isr = [r for r in p.isr if r not in unwanted]
    refusal = check_drop(p, name, unwanted)
    refusal = refusal or check_absent(p, name, isr, target, absent)
    if refusal:
        return refusal
    removing = tuple(r for r in settled if r not in target)
    return PartitionUpdate(
        isr=isr,
        replicas=(*target, *removing),
        adding=tuple(r for r in target if r not in settled),
        removing=removing,
    )


def check_target(turn: DecisionContext, p: Partition, target: Ids) -> Refusal | None:
    """Refuse a target that is empty, repeats a broker, names an unregistered broker, or adds a
    broker that takes no new replicas. Refuse also a target that violates the rack policy."""
    unknown = sorted(set(target) - set(turn.image.brokers))
    problem = None
    if not target:
        problem = "names no broker"
    elif len(set(target)) != len(target):
        problem = "names a broker twice"
    elif unknown:
        problem = f"names brokers that are not registered: {ids_text(unknown)}"
    if problem is None:
        new = [broker for broker in target if broker not in p.target]
        return all_stay(turn.image, new) or check_spread(turn, (target,))
    return Refusal(
        reason=Reason.InvalidReplicaAssignment,
        message=(
            f"The replica list {replicas_text(target)}, to which partition "
            f"{turn.image.name_of(p)} should move, {problem}."
        ),
    )


def contradicts(topic: Topic, p: Partition, replicas: Ids) -> Refusal | None:
    """Return a refusal if the Topic object of the topic states another replication factor or other
    replicas, or None."""
    holder = topic.object
    if holder is None:
        return None
    states = None
    if len(replicas) != topic.replication_factor:
        states = f"the replication factor {topic.replication_factor}"
    elif topic.strategy == EXPLICIT and replicas != p.target:
        states = "the replicas of each partition"
    if states is None:
        return None
    return Refusal(
        reason=Reason.PolicyViolation,
        message=(
            f"The object Topic {holder.namespace}/{holder.name} states {states} of topic"
            f" {topic.name}, which this request would change. Edit that object instead."
        ),
    )


def note_factors(turn: DecisionContext, topic_ids: Iterable[TopicId]) -> None:
    """Record the replication factor of topics that no object declares, once all their partitions
    have the same number of target replicas."""
    for topic_id in dict.fromkeys(topic_ids):
        topic = turn.image.topics.get(topic_id)
        if topic is None or topic.object is not None:
            continue
        keys = (PartitionKey(topic_id, index) for index in range(topic.partitions))
        factors = {len(turn.image.partitions[key].target) for key in keys}
        if factors == {topic.replication_factor} or len(factors) != 1:
            continue
        turn.add(
            TopicConfigured(
                cause=CAUSE,
                topic_id=topic_id,
                configs=dict(sorted(topic.configs.items())),
                replication_factor=factors.pop(),
            )
        )


# --- clients ------------------------------------------------------------------------------------


def alter_reassignments(turn: DecisionContext, request: AlterReassignments) -> Answer:
    """Begin, change or cancel moves for a client, each partition by itself. Partitions beyond one
    slice are decided in later turns."""
    now = request.targets[: turn.settings.slice_partitions_max]
    rest = request.targets[len(now) :]
    times = Counter((one.topic, one.index) for one in request.targets)
    times.update((one.topic, one.index) for one in request.answered)
    movers, room = running(turn.image), MoveRoom(turn, ASK_AGAIN)
    judged: list[tuple[PartitionTarget, PartitionUpdate | Refusal]] = []
    begins: list[tuple[Partition, PartitionUpdate]] = []
    cancels: list[tuple[Partition, PartitionUpdate]] = []
    for one in now:
        found = _find(turn, one)
        if times[one.topic, one.index] > 1:
            found = Refusal(
                reason=Reason.InvalidRequest,
                message=f"The request names partition {one.topic}-{one.index} twice; name it once.",
            )
        if isinstance(found, Partition):
            wish = _check_free(movers, one, found) or _judge(turn, request, one, found, room)
        else:
            wish = found
        judged.append((one, wish))
        if isinstance(wish, PartitionUpdate) and isinstance(found, Partition):
            (cancels if one.replicas is None else begins).append((found, wish))
            room.take(found, one.replicas or ())
    turn.change(begins, BY_CLIENT)
    turn.change(cancels, CANCELLED)
    note_factors(turn, (p.topic_id for p, _ in (*begins, *cancels)))
    answers = (*request.answered, *(_answer(turn, one, wish) for one, wish in judged))
    if rest:
        turn.again = replace(request, targets=rest, answered=answers)
    return ReassignmentsAnswer(partitions=answers)


def _find(turn: DecisionContext, one: PartitionTarget) -> Partition | Refusal:
    return turn.image.partition_named(one.topic, one.index) or Refusal(
        reason=Reason.UnknownTopicOrPartition,
        message=f"The request names partition {one.topic}-{one.index}, which does not exist.",
    )


def _check_free(movers: Sequence[Mover], one: PartitionTarget, p: Partition) -> Refusal | None:
    """Refuse if a Reassignment or Rebalance object is moving the partition."""
    held = mover_of(movers, p.key)
    if held is None:
        return None
    return Refusal(
        reason=Reason.PolicyViolation,
        message=(
            f"Partition {one.topic}-{one.index} is being moved by {held}. Change that object "
            "instead."
        ),
    )


def _judge(
    turn: DecisionContext,
    request: AlterReassignments,
    one: PartitionTarget,
    p: Partition,
    room: MoveRoom,
) -> PartitionUpdate | Refusal:
    topic = turn.image.topics[p.topic_id]
    if one.replicas is None:
        wish = rolled_back(p, turn.image.name_of(p), away(turn.image), forced=request.forced)
        return contradicts(topic, p, p.settled) or wish if p.moving else wish
    if (hold := hour_hold(turn.settings.hours, VoluntaryWork.MOVE)) is not None:
        return hold.refusal
    if not request.allow_factor_change and len(one.replicas) != len(p.settled):
        return Refusal(
            reason=Reason.InvalidReplicationFactor,
            message=(
                f"The replication factor of {one.topic}-{one.index} would change from"
                f" {len(p.settled)} to {len(one.replicas)}, which this request does not allow."
                f" Name {counted(len(p.settled), 'replica')}, or allow the change."
            ),
        )
    refusal = check_target(turn, p, one.replicas) or contradicts(topic, p, one.replicas)
    refusal = refusal or room.refusal([(p, one.replicas)])
    return refusal or begun(p, turn.image.name_of(p), one.replicas, away(turn.image))


def _answer(
    turn: DecisionContext, one: PartitionTarget, wish: PartitionUpdate | Refusal
) -> TargetAnswer:
    if not isinstance(wish, Refusal):
        key = PartitionKey(turn.image.topic_ids[one.topic], one.index)
        epoch = turn.image.partitions[key].partition_epoch
        return TargetAnswer(topic=one.topic, index=one.index, partition_epoch=epoch)
    return TargetAnswer(
        topic=one.topic,
        index=one.index,
        code=wish.reason.code,
        reason=wish.reason.name,
        message=wish.message,
    )


def report_copies(turn: DecisionContext, request: ReportCopies) -> Answer | Refusal:
    refusal = stale_epoch(turn, request.broker_id, request.broker_epoch)
    if refusal:
        return refusal
    for copy in request.copies[: turn.settings.slice_partitions_max]:
        p = turn.image.partitions.get(PartitionKey(copy.topic_id, copy.index))
        if p is None or not p.moving:
            continue
        if request.broker_id == p.leader or request.broker_id in p.adding:
            turn.soft.copies.setdefault(p.key, {})[request.broker_id] = copy.size
    for one in request.sizes[: turn.settings.slice_partitions_max]:
        p = turn.image.partitions.get(PartitionKey(one.topic_id, one.index))
        if p is not None and request.broker_id == p.leader:
            turn.soft.sizes[p.key] = one.size
            if one.bytes_in is not None and one.bytes_out is not None:
                leader = (request.broker_id, request.broker_epoch)
                now = PartitionTraffic(turn.now_ms, leader, one.bytes_in, one.bytes_out)
                before = turn.soft.traffic.get(p.key)
                turn.soft.traffic[p.key] = now if before is None else before.then(now)
            turn.soft.behind[p.key] = {lag.broker_id: lag.records for lag in one.behind}
    return Done()


def limit(turn: DecisionContext, request: LimitMovement) -> Answer | Refusal:
    if request.bytes_per_second < 1:
        text = "The throttle of a move must be at least one byte per second."
        return Refusal(reason=Reason.InvalidRequest, message=text)
    if request.bytes_per_second != turn.image.movement_bytes_per_second:
        turn.add(
            MovementLimited(cause="declared", bytes_per_second=request.bytes_per_second),
        )
    return Done()
