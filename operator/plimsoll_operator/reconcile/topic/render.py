"""A Topic's status: its partitions' health, and where its replicas are."""

from __future__ import annotations

import msgspec

from plimsoll_core.cluster.model import Topic
from plimsoll_operator.api.topic import TopicStatus
from plimsoll_operator.kube.resources import TOPICS
from plimsoll_operator.kube.seen_objects import Key
from plimsoll_operator.reconcile.reconcile_term import Term
from plimsoll_operator.reconcile.topic import drift
from plimsoll_operator.status.move_progress import Meter
from plimsoll_operator.status.projection import Sight, partitions_of, topic_status
from plimsoll_operator.status.status_writer import StatusDraft, Target
from plimsoll_operator.status.unhealthy_since import Unhealthy


def unhealthy_of(term: Term) -> Unhealthy:
    """The partitions in less than full health, as this term knows them."""
    return term.kept(Unhealthy, Unhealthy)


def render(term: Term, key: Key) -> StatusDraft | None:
    """None before the Topic's first reconcile, and for one of another cluster."""
    found, target = term.objects.topics.get(key), Target(TOPICS, *key)
    if found is None or found.cluster_key != term.key or target not in term.observed:
        return None
    refusal = term.refusals.get(key)
    bound = term.bound_topic(found)
    if bound is not None:
        sight = Sight(outlook=term.controller.outlook, since_ms=unhealthy_of(term).since_ms)
        status = _with_place(term, bound, topic_status(term.image, bound, sight, refusal))
    elif refusal is not None:
        status = TopicStatus(topic_name=found.topic_name, conditions=(refusal,))
    else:
        return None
    return StatusDraft(
        uid=found.metadata.uid,
        status=status,
        generation=term.observed[target],
        shown=term.objects.topics.conditions(key),
        version=found.metadata.resource_version,
    )


def _with_place(term: Term, bound: Topic, status: TopicStatus) -> TopicStatus:
    """Where its replicas are, and where they go."""
    image, meters = term.image, term.meters
    partitions = partitions_of(image, bound)
    moving = [p for p in partitions if p.moving]
    if not moving:
        meters.pop(str(bound.id), None)
    meter = meters.setdefault(str(bound.id), Meter()) if moving else Meter()
    policy = term.controller.settings.rack_policy
    count = drift.drifted(image, bound, partitions, policy)
    more = (drift.reconciling(moving), drift.drift(image, count, len(partitions)))
    copies, now_ms = term.controller.soft.copies, term.monotonic_ms()
    return msgspec.structs.replace(
        status,
        drifted=count,
        move=drift.move(moving, meter, copies, now_ms),
        conditions=(*status.conditions, *more),
    )
