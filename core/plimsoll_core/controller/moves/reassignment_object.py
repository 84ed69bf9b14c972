"""Reconciles a Reassignment object with its partitions: begin, continue, pause, roll back, forget.

Called for RunReassignment and ReassignmentObjectGone, at each reconcile of the object. A
reassignment begins as a whole or not at all, and never twice: a stored state in the image records
its beginning for as long as the object exists. Missing names are waited for until the object is a
minute old; an error in the object itself is final at once; a partition that another object moves is
waited for. Progress is read from the partitions themselves. The stored state is written last: after
a crash before that, the partitions are sent to the same targets again. Source: the protocol's rule
for reassignments; crds/plimsoll.dev_reassignments.yaml.
"""

from __future__ import annotations

from collections.abc import Iterable
from uuid import UUID

from msgspec.structs import replace

from plimsoll_core.cluster.model import (
    MovedPartitions,
    MovePhase,
    Partition,
    PartitionKey,
    Reassignment,
)
from plimsoll_core.cluster.move_owners import Mover, mover_name, mover_of, running
from plimsoll_core.cluster.records import ReassignmentForgotten, ReassignmentNoted
from plimsoll_core.controller.kernel.availability_margin import away
from plimsoll_core.controller.kernel.decision import DecisionContext
from plimsoll_core.controller.kernel.partition_change import Ids, PartitionUpdate, ranges
from plimsoll_core.controller.kernel.voluntary_work import VoluntaryWork, hour_hold
from plimsoll_core.controller.moves.move_room import DISK_FULL, MoveRoom, stuck_on_disk
from plimsoll_core.controller.moves.partition_move import (
    CANCELLED,
    CAUSE,
    begun,
    check_target,
    contradicts,
    note_factors,
    rolled_back,
)
from plimsoll_core.controller.moves.target_choice import (
    Want,
    choose,
    lost_targets,
    replans,
    waited_for,
)
from plimsoll_core.controller.partitions.leader_elections import lead_by_preferred
from plimsoll_core.errors import Reason, Refusal
from plimsoll_core.ids import BrokerId
from plimsoll_core.messages.moves import (
    ReassignmentObjectGone,
    ReassignmentState,
    RunReassignment,
    TopicMove,
)
from plimsoll_core.messages.requests import Answer
from plimsoll_core.phrasing import brokers_text, counted, down_text, first_few, ids_text, is_or_are

FINAL = frozenset({Reason.InvalidRequest, Reason.PolicyViolation})
"""The reasons of refusals that end a Reassignment as Failed: the object is wrong, and waiting does
not help."""


MISSING_MS = 60_000
"""Age of an object, in milliseconds, up to which missing names are waited for: objects are often
applied together."""


Named = list[tuple[TopicMove, list[Partition]]]
ROWS_MAX = 1_000
"""The most Reassignment objects in the image."""
TARGET_DOWN = "TargetDown"
NO_LEADER = "NoLeader"
TOPIC_GONE = "TopicGone"
NAMED_MAX = 5
"""The most topics that a message names."""


def wrong_form(request: RunReassignment) -> Refusal | None:
    """Return a refusal for an error in the Reassignment itself, or None. No change of the cluster
    makes it valid, so this is checked before anything is waited for."""
    listed: dict[str, set[int]] = {}
    whole: set[str] = set()
    for move in request.moves:
        if refusal := _check_form(move):
            return refusal
        named, indexes = listed.setdefault(move.topic, set()), set(move.partitions or ())
        if both := named & indexes:
            return _invalid(
                f"Two entries of spec.moves name partition {move.topic}-{min(both)}. Name it once."
            )
        named |= indexes
        # With `awayFrom` and no list, only where replicas are says which ones it is about.
        all_of_it = move.partitions is None and move.away_from is None
        if (all_of_it and named) or (move.topic in whole and (all_of_it or indexes)):
            return _invalid(
                f"One entry of spec.moves names all partitions of topic {move.topic}, and "
                "another names some of them. Name each partition once."
            )
        if all_of_it:
            whole.add(move.topic)
    return None


def missing_names(turn: DecisionContext, request: RunReassignment) -> Refusal | None:
    """Refuse a topic, partition or broker that does not exist. Accept a member that has not
    registered yet."""
    for move in request.moves:
        partitions = _partitions(turn, move)
        if isinstance(partitions, Refusal):
            return partitions
        unknown = set(move.replicas or ()) - set(turn.image.brokers) - set(turn.image.members)
        if unknown:
            text = (
                f"The Reassignment cannot move topic {move.topic}, because these brokers do not "
                f"exist: {ids_text(unknown)}. Name brokers of the cluster."
            )
            return Refusal(reason=Reason.InvalidReplicaAssignment, message=text)
    return None


def named_partitions(turn: DecisionContext, request: RunReassignment) -> Named | Refusal:
    """Return each entry of the request with the partitions that it names. Refuse an unknown name, a
    partition that is named twice, is moved by another object or has other replicas stated by its
    Topic object, and a request that names no partition. An entry that moves replicas away from
    brokers may have none left."""
    found: Named = []
    seen: set[PartitionKey] = set()
    movers = running(turn.image)
    for move in request.moves:
        partitions = _partitions(turn, move)
        if isinstance(partitions, Refusal):
            return partitions
        for p in partitions:
            refusal = _check_free(movers, move, p) or _check_stated(turn, move, p)
            if p.key in seen:
                refusal = _invalid(
                    f"Two entries of spec.moves name partition {move.topic}-{p.index}. Name it "
                    "once."
                )
            if refusal:
                return refusal
            seen.add(p.key)
        found.append((move, partitions))
    leaves = any(move.away_from and move.partitions != () for move in request.moves)
    return (
        found
        if seen or leaves
        else _invalid(
            "spec.moves of the Reassignment matches no partition; name existing topics and "
            "partitions."
        )
    )


def _check_form(move: TopicMove) -> Refusal | None:
    ways = [
        way for way in (move.replicas, move.replication_factor, move.away_from) if way is not None
    ]
    if len(ways) != 1:
        return _invalid(
            "Each entry of spec.moves must have exactly one of replicas, replicationFactor and "
            "awayFrom."
        )
    if move.replicas is not None and len(set(move.replicas)) != len(move.replicas):
        return _invalid(f"A move of topic {move.topic} names a broker twice.")
    if move.replication_factor is not None and move.replication_factor < 1:
        return _invalid("The replicationFactor of a move must be at least 1.")
    return None


def _partitions(turn: DecisionContext, move: TopicMove) -> list[Partition] | Refusal:
    topic_id = turn.image.topic_ids.get(move.topic)
    if topic_id is None:
        return _unknown(f"The Reassignment names topic {move.topic}, which does not exist.")
    count = turn.image.topics[topic_id].partitions
    indexes = range(count) if move.partitions is None else dict.fromkeys(move.partitions)
    missing = [index for index in indexes if not 0 <= index < count]
    if missing:
        return _unknown(
            f"The Reassignment names partition {missing[0]} of topic {move.topic}, which has only "
            f"{counted(count, 'partition')}."
        )
    found = [turn.image.partitions[PartitionKey(topic_id, index)] for index in indexes]
    if move.away_from is None:
        return found
    return [p for p in found if not set(p.replicas).isdisjoint(move.away_from)]


def _check_free(movers: Iterable[Mover], move: TopicMove, p: Partition) -> Refusal | None:
    held = mover_of(movers, p.key)
    if held is None:
        return None
    return Refusal(
        reason=Reason.ReassignmentInProgress,
        message=(
            f"Partition {move.topic}-{p.index} is being moved by {held}. This Reassignment "
            "begins when that move has ended."
        ),
    )


def _check_stated(turn: DecisionContext, move: TopicMove, p: Partition) -> Refusal | None:
    """Refuse if the Topic object of the partition's topic states other replicas, or another number
    of them, than the move."""
    replicas: Ids = move.replicas or ()
    if move.replicas is None:
        size = move.replication_factor or len(p.target)
        replicas = tuple(BrokerId(-1 - n) for n in range(size))  # whichever will be chosen
    return contradicts(turn.image.topics[p.topic_id], p, replicas)


def _invalid(message: str) -> Refusal:
    return Refusal(reason=Reason.InvalidRequest, message=message)


def _unknown(message: str) -> Refusal:
    return Refusal(reason=Reason.UnknownTopicOrPartition, message=message)


def run(turn: DecisionContext, request: RunReassignment) -> Answer | Refusal:
    row = turn.image.reassignments.get(request.object.uid)
    if row is None:
        return _begin(turn, request)
    if row.phase != "Running":
        return _state(row)
    if (row.paused, row.bytes_per_second) != (request.paused, request.bytes_per_second):
        row = replace(row, paused=request.paused, bytes_per_second=request.bytes_per_second)
        _note(turn, row, CAUSE)
    if request.cancelled:
        return _roll_back(turn, row, request)
    return _go_on(turn, row, request)


def object_gone(turn: DecisionContext, request: ReassignmentObjectGone) -> Answer:
    row = turn.image.reassignments.get(request.object.uid)
    if row is None:
        return ReassignmentState(phase=None)
    if row.phase == "Running":
        state = _roll_back(turn, row, request)
        if state.phase == "Running":
            return state
    turn.add(ReassignmentForgotten(cause="its object is gone", uid=row.object.uid))
    return ReassignmentState(phase=None)


# --- begin --------------------------------------------------------------------------------------


def _begin(turn: DecisionContext, request: RunReassignment) -> Answer | Refusal:
    row = Reassignment(
        object=request.object,
        phase="Running",
        bytes_per_second=request.bytes_per_second,
        paused=request.paused,
        started_ms=request.wall_ms,
    )
    if request.cancelled:
        return _end(turn, row, "Cancelled", request.wall_ms)
    if (wrong := wrong_form(request)) is not None:
        return _refused(turn, row, wrong, request.wall_ms)
    if request.paused:
        return ReassignmentState(phase=None)
    if (hold := hour_hold(turn.settings.hours, VoluntaryWork.MOVE)) is not None:
        return hold.refusal
    if len(turn.image.reassignments) >= ROWS_MAX:
        text = (
            f"The Reassignment cannot start: the cluster already keeps {ROWS_MAX} Reassignments. "
            "Delete old Reassignment objects."
        )
        return Refusal(reason=Reason.TooManyWaiting, message=text)
    if (missing := missing_names(turn, request)) is not None:
        if request.waited_ms < MISSING_MS:
            text = f"{missing.message} If this lasts for a minute, the Reassignment fails."
            return replace_message(missing, text)
        failed = replace(row, reason=missing.reason.name, message=missing.message)
        return _end(turn, failed, "Failed", request.wall_ms)
    return _begin_moves(turn, row, request)


def _begin_moves(
    turn: DecisionContext, row: Reassignment, request: RunReassignment
) -> Answer | Refusal:
    named = named_partitions(turn, request)
    if isinstance(named, Refusal):
        return _refused(turn, row, named, request.wall_ms)
    found = _targets(turn, named)
    if isinstance(found, tuple) and (full := MoveRoom(turn).refusal(found[0])) is not None:
        return full
    wishes = found if isinstance(found, Refusal) else _all_begun(turn, found[0])
    if isinstance(wishes, Refusal) or isinstance(found, Refusal):
        assert isinstance(wishes, Refusal)
        return _refused(turn, row, wishes, request.wall_ms)
    turn.change(wishes, CAUSE)
    if found[1]:
        turn.again = request
        return _state(row)
    note_factors(turn, (p.topic_id for _, found in named for p in found))
    keys = [p.key for _, found in named for p in found]
    moving = [key for key in keys if turn.image.partitions[key].moving]
    begun_row = replace(row, partitions=_grouped(moving), total=len(keys))
    if not moving:
        lead_by_preferred(turn, keys, mover_name(row))
        return _end(turn, begun_row, "Completed", request.wall_ms)
    _note(turn, begun_row, CAUSE)
    return _waiting_for(turn, begun_row, moving)


def _refused(
    turn: DecisionContext, row: Reassignment, refusal: Refusal, wall_ms: int
) -> Answer | Refusal:
    """End the Reassignment as Failed, with the refusal as its reason, if the reason is in `FINAL`.
    Return any other refusal unchanged: the next reconcile tries to begin again."""
    if refusal.reason not in FINAL:
        return refusal
    failed = replace(row, reason=refusal.reason.name, message=refusal.message)
    return _end(turn, failed, "Failed", wall_ms)


def _targets(
    turn: DecisionContext, named: Named
) -> tuple[list[tuple[Partition, Ids]], bool] | Refusal:
    """Return the partitions that begin to move in this turn, with their targets, and True if more
    follow in later turns. Leave out partitions that already move to their target. Return a Refusal
    if no target can be chosen."""
    targets: list[tuple[Partition, Ids]] = []
    wants: list[Want] = []
    for move, partitions in named:
        for p in partitions:
            if move.replicas is not None:
                targets.append((p, move.replicas))
            elif move.replication_factor is not None:
                wants.append(Want(partition=p, size=move.replication_factor))
            else:
                off = frozenset(move.away_from or ())
                wants.append(Want(partition=p, size=len(p.target), off=off))
    targets = [(p, target) for p, target in targets if target != p.target]
    wants = [want for want in wants if not want.fulfilled]
    at_once = turn.settings.slice_partitions_max
    more = len(targets) + len(wants) > at_once
    chosen = choose(turn, wants[: max(0, at_once - len(targets))])
    return chosen if isinstance(chosen, Refusal) else ([*targets[:at_once], *chosen], more)


def _all_begun(
    turn: DecisionContext, targets: Iterable[tuple[Partition, Ids]]
) -> list[tuple[Partition, PartitionUpdate]] | Refusal:
    wishes: list[tuple[Partition, PartitionUpdate]] = []
    for p, target in targets:
        topic = turn.image.topics[p.topic_id]
        if (refusal := check_target(turn, p, target)) is not None:
            return replace_message(refusal, f"Topic {topic.name}: {refusal.message}")
        wish = begun(p, _name(turn, p), target, away(turn.image))
        if isinstance(wish, Refusal):
            return wish
        wishes.append((p, wish))
    return wishes


def replace_message(refusal: Refusal, message: str) -> Refusal:
    """Return a refusal with the same reason and another message."""
    return Refusal(reason=refusal.reason, message=message)


# --- go on --------------------------------------------------------------------------------------


def _go_on(turn: DecisionContext, row: Reassignment, request: RunReassignment) -> ReassignmentState:
    moving = _moving(turn, row)
    if not moving:
        return _settle(turn, row, request)
    lost = [p for p in moving if lost_targets(turn, p)]
    replannable = [p for p in lost if replans(turn, request, p)]
    if replannable:
        wants = [
            Want(partition=p, size=len(p.target), off=lost_targets(turn, p)) for p in replannable
        ]
        chosen = choose(turn, wants[: turn.settings.slice_partitions_max])
        wishes = chosen if isinstance(chosen, Refusal) else _all_begun(turn, chosen)
        if isinstance(wishes, Refusal):
            return _state(row, wishes.reason.name, wishes.message)
        turn.change(wishes, f"{CAUSE}: another target for one that stayed away")
    return _waiting_for(turn, row, [p.key for p in moving])


def _settle(
    turn: DecisionContext, row: Reassignment, request: RunReassignment
) -> ReassignmentState:
    """End a Reassignment of which no partition moves any more, and elect preferred leaders for its
    partitions: Completed, or Failed if some of them do not exist any more."""
    image, named = turn.image, list(row.named())
    there = [key for key in named if key in image.partitions]
    lead_by_preferred(turn, there, mover_name(row))
    gone = len(named) - len(there)
    topics = {move.topic for move in request.moves if move.topic not in image.topic_ids}
    lost_ids = {one for one in _ids(row) if one not in image.topics}
    other = {m.topic for m in request.moves if image.topic_ids.get(m.topic) not in _ids(row)}
    if len(other) == len(lost_ids):
        topics = other  # those that were made again, too
    if not (gone or topics):
        return _end(turn, row, "Completed", request.wall_ms)
    which = f" ({', '.join(sorted(topics)[:NAMED_MAX])})" if topics else ""
    text = (
        f"{gone} of {row.total} partitions no longer exist: their topics{which} were deleted, or "
        "deleted and recreated. The other partitions are where they should be. For a recreated "
        "topic, apply another Reassignment."
    )
    left = replace(row, total=row.total - gone, reason=TOPIC_GONE, message=text)
    return _end(turn, left, "Failed", request.wall_ms)


def _ids(row: Reassignment) -> set[UUID]:
    return {moved.topic_id for moved in row.partitions}


def _moving(turn: DecisionContext, row: Reassignment) -> list[Partition]:
    found = (turn.image.partitions.get(key) for key in row.named())
    return [p for p in found if p is not None and p.moving]


def _waiting_for(
    turn: DecisionContext, row: Reassignment, keys: Iterable[PartitionKey]
) -> ReassignmentState:
    """Return the state of a running Reassignment. Its message names what a move waits for: a
    leader, room on a disk, or an inactive broker."""
    missing: dict[BrokerId, list[Partition]] = {}
    for key in keys:
        p = turn.image.partitions[key]
        if p.moving and p.leader is None:
            text = (
                f"Partition {_name(turn, p)} has no leader, so its new replicas cannot be copied "
                "yet. The move goes on by itself when the partition has a leader again."
            )
            return _state(row, NO_LEADER, text)
        if p.moving and (full := stuck_on_disk(turn, p)) is not None:
            return _state(row, DISK_FULL, full)
        for broker in waited_for(turn, p) if p.moving else ():
            missing.setdefault(broker, []).append(p)
    if not missing:
        return _state(row)
    broker, waiting = min(missing.items())
    down = missing.keys() - {broker}
    others = f" (so {is_or_are(len(down))} {brokers_text(down)})" if down else ""
    names = first_few([_name(turn, p) for p in waiting])
    text = (
        f"{down_text(broker)}{others}; the moves of {counted(len(waiting), 'partition')} ({names}) "
        f"go on when broker {broker} is back."
    )
    return _state(row, TARGET_DOWN, text)


# --- back ---------------------------------------------------------------------------------------


def _roll_back(
    turn: DecisionContext, row: Reassignment, request: RunReassignment | ReassignmentObjectGone
) -> ReassignmentState:
    """Roll back the moves of a cancelled Reassignment where that is safe, at most one slice in a
    turn. The other moves wait until more replicas are in sync. End the Reassignment as Cancelled
    when no move is left."""
    wishes: list[tuple[Partition, PartitionUpdate]] = []
    refusal: Refusal | None = None
    for p in _moving(turn, row):
        wish = rolled_back(p, _name(turn, p), away(turn.image))
        if isinstance(wish, Refusal):
            refusal = refusal or wish
        elif len(wishes) < turn.settings.slice_partitions_max:
            wishes.append((p, wish))
        else:
            turn.again = request
    turn.change(wishes, CANCELLED)
    if wishes:
        row = replace(row, rolled_back=row.rolled_back + len(wishes))
        _note(turn, row, CANCELLED)
    if turn.again is not None:
        return _state(row)
    if refusal is not None:
        return _state(row, refusal.reason.name, refusal.message)
    note_factors(turn, (moved.topic_id for moved in row.partitions))
    return _end(turn, row, "Cancelled", request.wall_ms)


# --- rows ---------------------------------------------------------------------------------------


def _note(turn: DecisionContext, row: Reassignment, cause: str) -> None:
    turn.add(ReassignmentNoted(cause=cause, reassignment=row))


def _end(
    turn: DecisionContext, row: Reassignment, phase: MovePhase, wall_ms: int
) -> ReassignmentState:
    ended = replace(row, phase=phase, partitions=(), paused=False, ended_ms=wall_ms)
    _note(turn, ended, CANCELLED if phase == "Cancelled" else CAUSE)
    return _state(ended)


def _state(row: Reassignment, reason: str = "", message: str = "") -> ReassignmentState:
    return ReassignmentState(
        phase=row.phase, reason=reason or row.reason, message=message or row.message
    )


def _grouped(keys: Iterable[PartitionKey]) -> tuple[MovedPartitions, ...]:
    by_topic: dict[UUID, list[int]] = {}
    for key in sorted(keys):
        by_topic.setdefault(key.topic_id, []).append(key.index)
    return tuple(
        MovedPartitions(topic_id=topic_id, ranges=ranges(indexes))
        for topic_id, indexes in by_topic.items()
    )


def _name(turn: DecisionContext, p: Partition) -> str:
    return turn.image.name_of(p)
