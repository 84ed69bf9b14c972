"""Creates the brokers' internal topics, and adjusts the number of their replicas.

Called for EnsureInternalTopic, even if clients may create no topics, and by ticks every few
seconds. An internal topic is created when the first group, or transactional id, is looked up, on as
many brokers as are active then. The number of its partitions never changes, since groups are found
by it. No object
states its replicas: they are raised up to `offsets.topic.replication.factor` once there are more
brokers, and lowered only if brokers leave and too few would remain, never because a broker is away.
While an object moves its replicas, this module leaves them unchanged. Source: docs/protocol.md
§5.8.
"""

from __future__ import annotations

from plimsoll_core.cluster.model import Partition, PartitionKey, Topic
from plimsoll_core.cluster.move_owners import mover_of, running
from plimsoll_core.cluster.records import TopicConfigured
from plimsoll_core.cluster.topic_names import (
    GROUP_OFFSETS,
    INTERNAL_TOPICS,
    METADATA_VERSION,
    TRANSACTION_STATE,
    TRANSACTIONS_VERSION,
    is_internal,
)
from plimsoll_core.controller.kernel.availability_margin import away
from plimsoll_core.controller.kernel.decision import DecisionContext, too_old
from plimsoll_core.controller.kernel.partition_change import PartitionUpdate
from plimsoll_core.controller.kernel.settings import InternalTopic
from plimsoll_core.controller.kernel.voluntary_work import VoluntaryWork, hour_hold
from plimsoll_core.controller.moves.partition_move import begun, check_target
from plimsoll_core.controller.moves.target_choice import choose, wants_of
from plimsoll_core.controller.topics.topic_creation import TopicPlan, create, created, place_new
from plimsoll_core.errors import Reason, Refusal
from plimsoll_core.messages.requests import Answer, TopicsAnswer
from plimsoll_core.messages.topics import EnsureInternalTopic

CAUSE = "more brokers may hold it"
LOWERED = "fewer brokers remain"
LOOK_EVERY_MS = 5_000
MIN_ISR_MAX = 2


def wanted_replicas(stated: int, brokers: int) -> int:
    """Return the replication factor of an internal topic: `stated`, but at most the number of
    eligible brokers, and at least 1."""
    return max(min(stated, brokers), 1)


def adjust_replicas(turn: DecisionContext) -> None:
    """Begin to move the partitions of internal topics that have too few replicas, or too many for
    the brokers that stay: at most one slice of each topic, every `LOOK_EVERY_MS` milliseconds. Do
    nothing in between."""
    due_ms = turn.soft.internal_due_ms
    if due_ms is not None and turn.now_ms < due_ms:
        return
    turn.soft.internal_due_ms = turn.now_ms + LOOK_EVERY_MS
    if hour_hold(turn.settings.hours, VoluntaryWork.INTERNAL_REPLICAS) is not None:
        return
    for name in sorted(INTERNAL_TOPICS):
        topic_id = turn.image.topic_ids.get(name)
        if topic_id is not None:
            _adjust(turn, turn.image.topics[topic_id])


def _adjust(turn: DecisionContext, topic: Topic) -> None:
    stated = _stated(turn, topic.name).replication_factor
    keys = (PartitionKey(topic.id, index) for index in range(topic.partitions))
    partitions = [turn.image.partitions[key] for key in keys]
    # Each broker that stays counts, whether or not it is there now.
    stay = len([b for b in turn.image.brokers if turn.image.takes_replicas(b)])
    lower = bool(turn.image.leaving) and any(len(p.target) > stay for p in partitions)
    if lower:
        factor = max(stay, 1)
    else:
        factor = max(wanted_replicas(stated, len(turn.receivers())), topic.replication_factor)
    movers = running(turn.image)
    free = [
        p
        for p in partitions
        if (lower or len(p.target) <= factor) and mover_of(movers, p.key) is None
    ]
    wants = wants_of(turn, factor, free)[: turn.settings.slice_partitions_max]
    targets = choose(turn, wants)
    if isinstance(targets, Refusal):
        return  # racks that are not known, say: looked at again
    wishes: list[tuple[Partition, PartitionUpdate]] = []
    for p, target in targets:
        wish = check_target(turn, p, target) or begun(
            p, turn.image.name_of(p), target, away(turn.image)
        )
        if isinstance(wish, PartitionUpdate):
            wishes.append((p, wish))
    if wishes:
        _configure(turn, topic, factor, lower=lower)
        turn.change(wishes, LOWERED if lower else CAUSE)


def _configure(turn: DecisionContext, topic: Topic, factor: int, *, lower: bool) -> None:
    """Record the topic's new replication factor and min ISR. This is safe before new replicas are
    in sync, since the effective min ISR of a partition is at most the number of its settled
    replicas."""
    min_isr = min(MIN_ISR_MAX, factor)
    min_isr = min(topic.min_isr, factor) if lower else max(topic.min_isr, min_isr)
    if (topic.replication_factor, topic.min_isr) == (factor, min_isr):
        return
    turn.add(
        TopicConfigured(
            cause=LOWERED if lower else CAUSE,
            topic_id=topic.id,
            configs=dict(sorted(topic.configs.items())),
            min_isr=min_isr,
            replication_factor=factor,
        )
    )


_SINCE = {GROUP_OFFSETS: METADATA_VERSION, TRANSACTION_STATE: TRANSACTIONS_VERSION}
"""The internal topics that brokers have created, with their least metadata versions."""
_CAUSES = {
    GROUP_OFFSETS: "groups are coordinated",
    TRANSACTION_STATE: "transactions are coordinated",
}


def _stated(turn: DecisionContext, name: str) -> InternalTopic:
    """Return the settings of an internal topic."""
    if name == TRANSACTION_STATE:
        return turn.settings.transactions_topic
    return turn.settings.offsets_topic


def ensure_internal_topic(turn: DecisionContext, request: EnsureInternalTopic) -> Answer | Refusal:
    """Create the internal topic that the request names, with at most one replica per active broker,
    unless it exists, and return it. Refuse any name but those of `_SINCE`."""
    name = request.name
    if name not in _SINCE:
        message = f"There is no internal topic {name[:100]!r}."
        return Refusal(reason=Reason.InvalidTopicName, message=message)
    topic_id = turn.image.topic_ids.get(name)
    if topic_id is not None:
        return TopicsAnswer(topics=(created(turn, turn.image.topics[topic_id]),))
    if refusal := too_old(turn, _SINCE[name], f"{name} needs"):
        return refusal
    stated = _stated(turn, name)
    factor = wanted_replicas(stated.replication_factor, len(turn.receivers()))
    rows = place_new(turn, name, stated.partitions, factor)
    if isinstance(rows, Refusal):
        return rows
    plan = TopicPlan(
        name=name,
        rows=rows,
        min_isr=min(MIN_ISR_MAX, factor),
        configs={
            "cleanup.policy": "compact",
            "segment.bytes": str(stated.segment_bytes),
            "unclean.recovery.strategy": "Balanced",
        },
    )
    return TopicsAnswer(topics=(created(turn, create(turn, plan, _CAUSES[name])),))


def reserved(name: str) -> Refusal | None:
    """Return a refusal if the name is that of an internal topic, or None."""
    if not is_internal(name):
        return None
    message = (
        f"Topic {name} is internal: clients cannot create or change it. Brokers create it when "
        "the first group is used; configure it by spec.config of the LogCluster "
        "(offsets.topic.…)."
    )
    return Refusal(reason=Reason.PolicyViolation, message=message)
