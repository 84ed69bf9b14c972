"""Creates and deletes topics and adds partitions at the request of clients.

Called for CreateTopics, DeleteTopics and AddPartitions, for topics that no object declares; a
declared topic changes through its object. Each topic is decided independently. Sources: the rules
of docs/protocol.md for CreateTopics, DeleteTopics and CreatePartitions; KIP-195; Kafka's
ReplicationControlManager.
"""

from __future__ import annotations

from collections import Counter
from uuid import UUID

from msgspec.structs import replace

from plimsoll_core.cluster.model import Topic
from plimsoll_core.cluster.records import TopicRemoved
from plimsoll_core.cluster.topic_configs import ClientConfigs, client_configs
from plimsoll_core.cluster.topic_names import CLUSTER_METADATA, check_form
from plimsoll_core.controller.kernel.decision import DecisionContext
from plimsoll_core.controller.topics import topic_creation
from plimsoll_core.controller.topics.config_changes import (
    EACH_TOPIC,
    check_version,
    found,
    not_a_clients,
    told,
)
from plimsoll_core.controller.topics.internal_topics import reserved
from plimsoll_core.controller.topics.topic_creation import (
    PartitionRoom,
    TopicPlan,
    check_factor,
    check_name,
    check_partitions,
    check_rows,
    create,
    created,
    place_more,
    place_new,
    refused,
)
from plimsoll_core.errors import Reason, Refusal
from plimsoll_core.messages.requests import (
    Answer,
    CreateTopics,
    DeleteTopics,
    NewTopic,
    TopicAnswer,
)
from plimsoll_core.messages.requests import TopicsAnswer as Answers
from plimsoll_core.messages.topics import AddPartitions, TopicGrowth, TopicsChanged
from plimsoll_core.planner.placement import EXPLICIT, ROUND_ROBIN, Assignment


def create_topics(turn: DecisionContext, request: CreateTopics) -> Answer:
    """Create topics for a client, or only check that if `request.validate_only`. Topics beyond what
    fits one turn are decided in later turns (`turn.again`)."""
    image, records = turn.image, list(turn.records)
    answers, done, work = list(request.answered), 0, 0
    room = PartitionRoom(turn, request.behalf)
    for wish in request.topics:
        if done and work >= turn.settings.slice_partitions_max:
            break
        answer, placed = _create_one(turn, room, wish)
        answers.append(answer)
        work += EACH_TOPIC + placed
        done += 1
    if request.validate_only:
        turn.image, turn.records = image, records
    if done < len(request.topics):
        turn.again = replace(request, topics=request.topics[done:], answered=tuple(answers))
    return Answers(topics=tuple(answers))


def _create_one(
    turn: DecisionContext, room: PartitionRoom, wish: NewTopic
) -> tuple[TopicAnswer, int]:
    """Create one topic. Return the answer, and the number of partitions that were placed for it,
    also if it is refused for where they were placed."""
    configs = _checked(turn, wish)
    if isinstance(configs, Refusal):
        return refused(wish.name, configs), 0
    rows = _rows(turn, room, wish)
    if isinstance(rows, Refusal):
        return refused(wish.name, rows), 0
    if refusal := room.refusal(rows):
        return refused(wish.name, refusal), len(rows)
    plan = TopicPlan(
        name=wish.name,
        rows=rows,
        min_isr=configs.min_isr or min(turn.settings.default_min_isr, len(rows[0])),
        configs=configs.kept,
        owner=room.owner,
    )
    room.made(rows)
    return created(turn, create(turn, plan, "created by a client")), len(rows)


def _checked(turn: DecisionContext, wish: NewTopic) -> ClientConfigs | Refusal:
    """Return the topic's configs, or a refusal that needs no placement."""
    # As in Kafka, TOPIC_ALREADY_EXISTS comes before errors in the configs: a client that creates a
    # topic if it is missing waits for that code.
    if refusal := _may_create(turn, wish):
        return refusal
    configs = client_configs(wish.configs)
    if isinstance(configs, Refusal):
        return configs
    return check_version(turn, configs.kept) or configs


def _may_create(turn: DecisionContext, wish: NewTopic) -> Refusal | None:
    if refusal := check_form(wish.name):
        return refusal
    if wish.name == CLUSTER_METADATA:
        return Refusal(
            reason=Reason.InvalidRequest,
            message=f"Creation of internal topic {wish.name} is prohibited. Choose another name.",
        )
    if wish.name in turn.image.topic_ids:
        return Refusal(
            reason=Reason.TopicAlreadyExists, message=f"Topic '{wish.name}' already exists."
        )
    if refusal := reserved(wish.name):
        return refusal
    if not turn.settings.client_created_topics:
        return Refusal(
            reason=Reason.PolicyViolation,
            message="Clients may not create topics in this cluster. Apply a Topic object instead.",
        )
    return check_name(turn, wish.name)


def _rows(turn: DecisionContext, room: PartitionRoom, wish: NewTopic) -> Assignment | Refusal:
    settings = turn.settings
    if wish.assignment is None:
        partitions, factor = wish.partitions, wish.replication_factor
        partitions = settings.default_partitions if partitions is None else partitions
        factor = settings.default_replication_factor if factor is None else factor
        refusal = check_partitions(turn, partitions) or check_factor(factor)
        if refusal := refusal or room.refusal_of_number(partitions, factor):
            return refusal
        return place_new(turn, wish.name, partitions, factor)
    if wish.partitions is not None or wish.replication_factor is not None:
        return Refusal(
            reason=Reason.InvalidRequest,
            message=(
                "A request to create a topic must state either an assignment, or partitions and "
                "a replication factor, not both."
            ),
        )
    if not wish.assignment:
        return Refusal(
            reason=Reason.InvalidReplicaAssignment,
            message="The assignment of the new topic lists no partition. List at least one.",
        )
    refusal = check_partitions(turn, len(wish.assignment))
    return refusal or check_rows(turn, wish.assignment) or wish.assignment


def delete_topics(turn: DecisionContext, request: DeleteTopics) -> Answer:
    """Delete topics for a client. Topics beyond what fits one turn are deleted in later turns
    (`turn.again`)."""
    answers, done, before = list(request.answered), 0, len(turn.image.partitions)
    names, ids = request.names, request.ids
    for number in range(len(names) + len(ids)):
        work = done * EACH_TOPIC + before - len(turn.image.partitions)
        if done and work >= turn.settings.slice_partitions_max:
            break
        if number < len(names):
            name = names[number]
            answers.append(_delete_one(turn, turn.image.topic_ids.get(name), name))
        else:
            answers.append(_delete_one(turn, ids[number - len(names)], ""))
        done += 1
    left = names[done:], ids[max(done - len(names), 0) :]
    if any(left):
        turn.again = replace(request, names=left[0], ids=left[1], answered=tuple(answers))
    return Answers(topics=tuple(answers))


def _delete_one(turn: DecisionContext, topic_id: UUID | None, name: str) -> TopicAnswer:
    topic = None if topic_id is None else turn.image.topics.get(topic_id)
    if topic is None:
        by_name = topic_id is None
        reason = Reason.UnknownTopicOrPartition if by_name else Reason.UnknownTopicId
        return refused(
            name,
            Refusal(
                reason=reason,
                message=f"There is no topic {name}."
                if by_name
                else f"There is no topic with id {topic_id}; it may have been deleted already.",
            ),
            topic_id,
        )
    if kept := not_a_clients(topic, "change or delete that object"):
        return refused(topic.name, kept, topic.id)
    turn.add(TopicRemoved(cause="deleted by a client", topic_id=topic.id))
    return TopicAnswer(name=topic.name, topic_id=topic.id)


def add_partitions(turn: DecisionContext, request: AddPartitions) -> Answer:
    """Add partitions to clients' topics, or only check that if `request.validate_only`. Topics
    beyond what fits one turn are decided in later turns (`turn.again`)."""
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
        added += len(turn.image.partitions) - before + EACH_TOPIC
        done += 1
    if request.validate_only:
        turn.image, turn.records = image, records
    if done < len(request.topics):
        turn.again = replace(request, topics=request.topics[done:], answered=tuple(answers))
    return TopicsChanged(topics=tuple(answers), end_offset=turn.image.next_offset)


def _grow(
    turn: DecisionContext, room: PartitionRoom, wish: TopicGrowth, times: int
) -> Refusal | None:
    """Add partitions to one topic. Return None, or a refusal if none was added."""
    topic = found(turn, wish.topic, times)
    if isinstance(topic, Refusal):
        return topic
    kept = not_a_clients(topic, "edit spec.partitions of that object")
    rows = kept or _new_rows(turn, room, topic, wish)
    if isinstance(rows, Refusal):
        return rows
    if refusal := room.refusal(rows):
        return refusal
    room.made(rows)
    topic_creation.add_partitions(turn, topic.id, rows, "grown by a client")
    return None


def _new_rows(
    turn: DecisionContext, room: PartitionRoom, topic: Topic, wish: TopicGrowth
) -> Assignment | Refusal:
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
    if refusal := room.refusal_of_number(extra, topic.replication_factor):
        return refusal
    strategy = ROUND_ROBIN if topic.strategy == EXPLICIT else topic.strategy
    return place_more(turn, topic, extra, topic.replication_factor, strategy)


def _assigned(
    turn: DecisionContext, topic: Topic, extra: int, rows: Assignment
) -> Assignment | Refusal:
    factor = topic.replication_factor
    problem = None
    if len(rows) != extra:
        problem = (
            f"The assignment of the new partitions must name the replicas of {extra} partitions, "
            f"not {len(rows)}."
        )
    elif any(len(row) != factor for row in rows):
        problem = (
            f"Each partition of topic {topic.name} has {factor} replicas; name as many for each "
            "new partition."
        )
    if problem is not None:
        return Refusal(reason=Reason.InvalidReplicaAssignment, message=problem)
    return check_rows(turn, rows) or rows
