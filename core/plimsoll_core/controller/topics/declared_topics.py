"""Reconciles a Topic object with the cluster: create, revive, grow, reconfigure, or refuse.

Called for DeclareTopic and DetachTopic, at each reconcile of an object: a declaration that already
holds adds no record. A refused declaration changes no part of a topic.

A topic's name belongs to the first object that declared it. When that object is proven absent,
another object of its namespace takes the topic over. An object of another namespace does so only if
it names the topic's id, since it must not read by accident records that were not meant for it.
Source: the protocol's rules for topics and for min ISR changes; crds/plimsoll.dev_topics.yaml.
"""

from __future__ import annotations

from immutables import Map
from msgspec.structs import replace

from plimsoll_core.cluster.model import Topic, TopicObject
from plimsoll_core.cluster.records import TopicBound, TopicConfigured
from plimsoll_core.cluster.topic_configs import below_floor, check_configs
from plimsoll_core.controller.kernel.decision import DecisionContext
from plimsoll_core.controller.moves.target_choice import DECLARED, declared_moves
from plimsoll_core.controller.topics.config_changes import check_version, spread_min_isr
from plimsoll_core.controller.topics.internal_topics import reserved
from plimsoll_core.controller.topics.topic_creation import (
    TopicPlan,
    add_partitions,
    beyond_brokers,
    check_name,
    check_partitions,
    check_rows,
    create,
    created,
    place_more,
    place_new,
    too_many_in_cluster,
    too_many_in_namespace,
)
from plimsoll_core.errors import Reason, Refusal
from plimsoll_core.messages.requests import Answer, DeclareTopic, DetachTopic, Done, TopicsAnswer
from plimsoll_core.planner.placement import EXPLICIT, Assignment


def declare(turn: DecisionContext, request: DeclareTopic) -> Answer | Refusal:
    refusal = _check_values(turn, request)
    if refusal:
        return refusal
    if kept := reserved(request.topic_name):
        return kept.renamed(Reason.PolicyViolation, Reason.InvalidConfig)
    topic_id = turn.image.topic_ids.get(request.topic_name)
    before = None if topic_id is None else turn.image.topics[topic_id]
    if low := below_floor(request.configs, {} if before is None else before.configs):
        return low
    topic = _create(turn, request) if before is None else _adjust(turn, before, request)
    if isinstance(topic, Refusal):
        return topic
    return TopicsAnswer(topics=(created(turn, topic),))


def detach(turn: DecisionContext, request: DetachTopic) -> Answer:
    """Detach a topic from its Topic object, and leave the topic itself unchanged. From then on
    another object may declare the topic only by adopting it, but the same object may do so again.
    Do nothing if the object declares no topic."""
    topic = turn.image.topic_of(request.object)
    if topic is not None:
        turn.add(
            TopicBound(
                cause="detached",
                topic_id=topic.id,
                object=None,
                deletion_policy=topic.deletion_policy,
            )
        )
    return Done()


# --- refusals ----------------------------------------------------------------------------------


def _check_values(turn: DecisionContext, request: DeclareTopic) -> Refusal | None:
    if not 1 <= request.min_isr <= request.replication_factor:
        return Refusal(
            reason=Reason.InvalidConfig,
            message=(
                f"minInSyncReplicas must be from 1 to the replication factor"
                f" {request.replication_factor}, not {request.min_isr}."
            ),
        )
    if request.deletion_policy not in ("Delete", "Retain"):
        return Refusal(
            reason=Reason.InvalidConfig,
            message=f"deletionPolicy must be Delete or Retain, not {request.deletion_policy}.",
        )
    refusal = check_configs(request.configs) or check_version(turn, request.configs)
    return refusal or _check_explicit(request)


def _check_explicit(request: DeclareTopic) -> Refusal | None:
    rows = request.assignment
    if request.strategy != EXPLICIT:
        return None
    if rows is None or len(rows) != request.partitions:
        return _invalid_placement(
            f"An Explicit placement must name the replicas of all {request.partitions} "
            f"partitions, but names those of {len(rows or ())}."
        )
    for index, row in enumerate(rows):
        if len(row) != request.replication_factor:
            return _invalid_placement(
                f"The assignment of partition {index} has {len(row)} replicas, but the Topic's "
                f"replicationFactor is {request.replication_factor}; make them equal."
            )
    return None


def _invalid_placement(message: str) -> Refusal:
    return Refusal(reason=Reason.PlacementInvalid, message=message)


def _check_explicit_rows(turn: DecisionContext, rows: Assignment) -> Refusal | None:
    refusal = check_rows(turn, rows)
    if refusal is None:
        return None
    return refusal.renamed(Reason.InvalidReplicaAssignment, Reason.PlacementInvalid)


def _held_by_other(topic: Topic, request: DeclareTopic) -> Refusal | None:
    asker, holder = request.object, topic.object or topic.detached_from
    free = topic.object is None or topic.pending_deletion is not None
    if free and request.adopt == topic.id:
        return None
    if topic.pending_deletion and holder and holder.namespace == asker.namespace:
        return None  # its object is gone, and this one declares it
    if holder and _same_name(holder, asker):
        return None
    if topic.object is None:
        message = (
            f"Topic {topic.name} already exists, since a client created it"
            if holder is None
            else (
                f"Topic {topic.name} already exists: it was kept when the object Topic "
                f"{holder.namespace}/{holder.name} was deleted"
            )
        )
        message += (
            ". Choose another topicName, delete the topic first, or let this object take it over"
            " (kubectl plimsoll adopt)."
        )
    else:
        message = (
            f"Topic {topic.name} belongs to the object Topic"
            f" {topic.object.namespace}/{topic.object.name}"
        )
        if topic.pending_deletion:
            message += (
                ", which was deleted. The topic is not deleted as long as this object declares it"
                " too. Let this object take it over (kubectl plimsoll adopt), or choose another"
                " topicName."
            )
        elif topic.object.namespace == asker.namespace:
            message += (
                ", so this object does not apply yet. It takes the topic over, with all records,"
                " when that object is deleted. To declare another topic, change topicName."
            )
        else:
            message += ", so this object cannot declare it. Choose another topicName."
    return Refusal(reason=Reason.TopicNameTaken, message=message)


def _same_name(one: TopicObject, other: TopicObject) -> bool:
    return (one.namespace, one.name) == (other.namespace, other.name)


def _cannot_change(topic: Topic, request: DeclareTopic) -> Refusal | None:
    if request.partitions < topic.partitions:
        return Refusal(
            reason=Reason.InvalidPartitions,
            message=(
                f"Topic {topic.name} has {topic.partitions} partitions; they cannot decrease to"
                f" {request.partitions}. Set partitions back to {topic.partitions} or more."
            ),
        )
    return None


# --- changes -----------------------------------------------------------------------------------


def _create(turn: DecisionContext, request: DeclareTopic) -> Topic | Refusal:
    refusal = check_name(turn, request.topic_name)
    refusal = refusal or too_many_in_namespace(turn, request, request.partitions)
    rows = refusal or _new_rows(turn, request)
    if isinstance(rows, Refusal):
        return rows
    if refusal := beyond_brokers(turn, rows) or too_many_in_cluster(turn, len(rows)):
        return refusal
    plan = TopicPlan(
        name=request.topic_name,
        rows=rows,
        min_isr=request.min_isr,
        configs=request.configs,
        strategy=request.strategy,
        object=request.object,
        deletion_policy=request.deletion_policy,
    )
    return create(turn, plan, "created by its object")


def _new_rows(turn: DecisionContext, request: DeclareTopic) -> Assignment | Refusal:
    if request.strategy != EXPLICIT or request.assignment is None:
        return place_new(
            turn,
            request.topic_name,
            request.partitions,
            request.replication_factor,
            request.strategy,
        )
    rows = request.assignment
    return check_partitions(turn, len(rows)) or _check_explicit_rows(turn, rows) or rows


def _adjust(turn: DecisionContext, topic: Topic, request: DeclareTopic) -> Topic | Refusal:
    refusal = _held_by_other(topic, request) or _cannot_change(topic, request)
    if refusal:
        return refusal
    more: Assignment | Refusal = ()
    added = request.partitions - topic.partitions
    if added > 0:
        more = too_many_in_namespace(turn, request, added) or _more_rows(turn, topic, request)
    if isinstance(more, Refusal):
        return more
    if refusal := beyond_brokers(turn, more) or too_many_in_cluster(turn, len(more)):
        return refusal
    moves = declared_moves(turn, topic, request)
    if isinstance(moves, Refusal):
        return moves
    _bind(turn, topic, request)
    _configure(turn, topic, request)
    if more:
        add_partitions(turn, topic.id, more, "grown by its object")
    now, more_moves = moves
    turn.change(now, DECLARED)
    if more_moves or spread_min_isr(turn, [topic.id]):
        turn.again = request
    return turn.image.topics[topic.id]


def _bind(turn: DecisionContext, topic: Topic, request: DeclareTopic) -> None:
    if (
        topic.object == request.object
        and topic.deletion_policy == request.deletion_policy
        and topic.pending_deletion is None
    ):
        return
    revived = topic.pending_deletion is not None or topic.object is None
    cause = "revived by its object" if revived else "bound to its object"
    if revived and request.adopt == topic.id:
        cause = "adopted by its object"
    elif topic.object and not _same_name(topic.object, request.object):
        cause = "handed over: its object is gone and another one declares it"
    turn.add(
        TopicBound(
            cause=cause,
            topic_id=topic.id,
            object=request.object,
            deletion_policy=request.deletion_policy,
        )
    )


def _configure(turn: DecisionContext, topic: Topic, request: DeclareTopic) -> None:
    stated = replace(
        topic,
        configs=Map(request.configs),
        min_isr=request.min_isr,
        replication_factor=request.replication_factor,
        strategy=request.strategy,
    )
    if topic == stated:
        return
    turn.add(
        TopicConfigured(
            cause="configured by its object",
            topic_id=topic.id,
            configs=dict(sorted(request.configs.items())),
            min_isr=request.min_isr,
            replication_factor=request.replication_factor,
            strategy=request.strategy,
        )
    )


def _more_rows(turn: DecisionContext, topic: Topic, request: DeclareTopic) -> Assignment | Refusal:
    refusal = check_partitions(turn, request.partitions)
    if refusal:
        return refusal
    if request.strategy == EXPLICIT and request.assignment is not None:
        rows = request.assignment[topic.partitions :]
        return _check_explicit_rows(turn, rows) or rows
    extra = request.partitions - topic.partitions
    return place_more(turn, topic, extra, request.replication_factor, request.strategy)
