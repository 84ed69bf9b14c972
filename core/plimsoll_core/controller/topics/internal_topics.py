"""Makes the topics that brokers keep for themselves.  Called for EnsureInternalTopic.

Also where clients may create no topics: these are the cluster's own.  How many partitions one has
is never changed later, since groups are found by it.  Source: docs/protocol.md §5.8.
"""

from __future__ import annotations

from plimsoll_core.cluster.internal_topics import GROUP_OFFSETS, METADATA_VERSION, is_internal
from plimsoll_core.controller.kernel.decision import DecisionContext
from plimsoll_core.controller.kernel.metadata_version import too_old
from plimsoll_core.controller.topics.internal_replication import MIN_ISR_MAX, wanted_replicas
from plimsoll_core.controller.topics.topic_creation import TopicPlan, create, created, place_new
from plimsoll_core.errors import Reason, Refusal
from plimsoll_core.messages.internal_topics import EnsureInternalTopic
from plimsoll_core.messages.requests import Answer, TopicsAnswer


def ensure_internal_topic(turn: DecisionContext, request: EnsureInternalTopic) -> Answer | Refusal:
    """As it is there, or as it is made now: on as many brokers as there are, if they are few."""
    name = request.name
    if name != GROUP_OFFSETS:
        message = f"There is no internal topic {name[:100]!r}."
        return Refusal(reason=Reason.InvalidTopicName, message=message)
    topic_id = turn.image.topic_ids.get(name)
    if topic_id is not None:
        return TopicsAnswer(topics=(created(turn, turn.image.topics[topic_id]),))
    if refusal := too_old(turn, METADATA_VERSION, f"{name} needs"):
        return refusal
    stated = turn.settings.offsets_topic
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
    return TopicsAnswer(topics=(created(turn, create(turn, plan, "groups are coordinated")),))


def reserved(name: str) -> Refusal | None:
    """Why neither a client nor an object may have a topic of this name."""
    if not is_internal(name):
        return None
    message = (
        f"{name} is the brokers' own topic: it is made when the first group is looked for, and"
        " configured by spec.config of the LogCluster (offsets.topic.…)."
    )
    return Refusal(reason=Reason.PolicyViolation, message=message)
