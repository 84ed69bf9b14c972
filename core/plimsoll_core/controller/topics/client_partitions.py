"""Adds partitions to topics that no object declares.  Called for AddPartitions.

Each topic for itself.  A topic that an object declares grows through that object.
Source: the protocol's rule for CreatePartitions; KIP-195; Kafka's ReplicationControlManager.
"""

from __future__ import annotations

from collections import Counter

from msgspec.structs import replace

from plimsoll_core.cluster.model import Topic
from plimsoll_core.controller.kernel.decision import DecisionContext
from plimsoll_core.controller.topics import topic_creation
from plimsoll_core.controller.topics.partition_room import PartitionRoom
from plimsoll_core.controller.topics.topic_changes import found, not_a_clients, told
from plimsoll_core.controller.topics.topic_creation import (
    check_rows,
    place_more,
)
from plimsoll_core.controller.topics.topic_limits import check_partitions
from plimsoll_core.errors import Reason, Refusal
from plimsoll_core.messages.requests import Answer
from plimsoll_core.messages.topic_changes import AddPartitions, TopicGrowth, TopicsChanged
from plimsoll_core.planner.placement import EXPLICIT, ROUND_ROBIN, Assignment


def add_partitions(turn: DecisionContext, request: AddPartitions) -> Answer:
    """What is too much for one turn comes again."""
    image, records = turn.image, list(turn.records)
    times = Counter(one.topic for one in request.topics)
    times.update(one.topic for one in request.answered)
    answers, done, added = list(request.answered), 0, 0
    room = PartitionRoom(turn, request.behalf)
    for one in request.topics:
        if done and added >= turn.settings.slice_partitions_max:
            break
        before = len(turn.image.partitions)
        answers.append(told(one.topic, _grow(turn, room, one, times[one.topic])))
        added += len(turn.image.partitions) - before + 1
        done += 1
    if request.validate_only:
        turn.image, turn.records = image, records
    if done < len(request.topics):
        turn.again = replace(request, topics=request.topics[done:], answered=tuple(answers))
    return TopicsChanged(topics=tuple(answers), end_offset=turn.image.next_offset)


def _grow(
    turn: DecisionContext, room: PartitionRoom, wish: TopicGrowth, times: int
) -> Refusal | None:
    """Why nothing was added."""
    topic = found(turn, wish.topic, times)
    if isinstance(topic, Refusal):
        return topic
    rows = not_a_clients(topic, "edit its spec.partitions") or _rows(turn, topic, wish)
    if isinstance(rows, Refusal):
        return rows
    if refusal := room.refusal(rows):
        return refusal
    room.made(rows)
    topic_creation.add_partitions(turn, topic.id, rows, "grown by a client")
    return None


def _rows(turn: DecisionContext, topic: Topic, wish: TopicGrowth) -> Assignment | Refusal:
    if wish.partitions <= topic.partitions:
        message = (
            f"The topic {topic.name} currently has {topic.partitions} partition(s);"
            f" {wish.partitions} would not be an increase."
        )
        if wish.partitions == topic.partitions:
            message = f"Topic already has {topic.partitions} partition(s)."
        return Refusal(reason=Reason.InvalidPartitions, message=message)
    refusal = check_partitions(turn, wish.partitions)
    if refusal:
        return refusal
    extra = wish.partitions - topic.partitions
    if wish.assignment is not None:
        return _assigned(turn, topic, extra, wish.assignment)
    strategy = ROUND_ROBIN if topic.strategy == EXPLICIT else topic.strategy
    return place_more(turn, topic, extra, topic.replication_factor, strategy)


def _assigned(
    turn: DecisionContext, topic: Topic, extra: int, rows: Assignment
) -> Assignment | Refusal:
    factor = topic.replication_factor
    problem = None
    if len(rows) != extra:
        problem = f"The assignment must name the replicas of {extra} partitions, not {len(rows)}."
    elif any(len(row) != factor for row in rows):
        problem = f"Each partition of topic {topic.name} has {factor} replicas."
    if problem is not None:
        return Refusal(reason=Reason.InvalidReplicaAssignment, message=problem)
    return check_rows(turn, rows) or rows
