"""State about Topic objects, and the committed topics that they declare, that a term keeps between
passes.

The Topic's reconciler writes it; the status, the leadership and `plimsoll local` read it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from uuid import UUID

from plimsoll_core.cluster.model import Topic as Committed
from plimsoll_operator.api.meta import Condition
from plimsoll_operator.api.topic import Topic
from plimsoll_operator.kube.seen_objects import Key
from plimsoll_operator.reconcile.reconcile_term import Term
from plimsoll_operator.status.copy_meter import Meter
from plimsoll_operator.status.unhealthy_since import Unhealthy


@dataclass(slots=True)
class TopicMemory:
    """State about the cluster's Topic objects and topics that a term keeps between passes."""

    # Condition Ready of each refused Topic, by the object's key.
    refusals: dict[Key, Condition] = field(default_factory=dict)
    # Generation of the spec that was reconciled last, by the object's key.
    observed: dict[Key, int] = field(default_factory=dict)
    # Progress of each topic that is moving, by the topic's id.
    meters: dict[UUID, Meter] = field(default_factory=dict)
    # Unhealthy partitions of the cluster, and since when.
    unhealthy: Unhealthy = field(default_factory=Unhealthy)


def topics_of(term: Term) -> TopicMemory:
    return term.kept(TopicMemory, TopicMemory)


def topic_named(term: Term, name: str) -> Committed | None:
    """Return the committed topic of that name, whatever object declares it. Return None if there is
    none."""
    topic_id = term.image.topic_ids.get(name)
    return None if topic_id is None else term.image.topics.get(topic_id)


def bound_topic(term: Term, found: Topic) -> Committed | None:
    """Return the committed topic that this very object (namespace, name, uid) declares, or None."""
    topic = topic_named(term, found.topic_name)
    holder = topic.object if topic else None
    if holder is None or holder.uid != found.metadata.uid:
        return None
    return topic if (holder.namespace, holder.name) == found.key else None
