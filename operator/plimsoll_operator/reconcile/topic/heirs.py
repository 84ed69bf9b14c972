"""Live objects that declare a topic with a deleted object, and the one that takes the topic over.

Called by the proof of absence, with a list made after the absence was proven: a topic that a live
object declares is never removed. An object in the topic's own namespace takes it over; one in
another namespace does so once its annotation names the topic's id. An object that may not declare
topics of that name here (`allowed_namespaces`) declares none. One with an unreadable spec declares
it if its cluster and name can be read.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import msgspec

from plimsoll_core.cluster.model import Topic as Committed
from plimsoll_core.cluster.model import TopicObject
from plimsoll_operator.api.cluster_ids import from_kafka_id
from plimsoll_operator.api.labels import ADOPT
from plimsoll_operator.api.logcluster import LogCluster
from plimsoll_operator.api.meta import ClusterRef, ObjectMeta
from plimsoll_operator.api.topic import Topic, TopicSpec
from plimsoll_operator.kube.errors import ApiError
from plimsoll_operator.kube.kube_api import Object
from plimsoll_operator.kube.resources import NAMESPACES
from plimsoll_operator.reconcile.reconcile_term import Term
from plimsoll_operator.reconcile.topic.allowed_namespaces import namespace_refusal
from plimsoll_operator.reconcile.work_queue import Retry


def declares(term: Term, found: Object, topic_name: str) -> bool:
    """Return True if an object declares the topic in this cluster, as far as it can be read."""
    meta, spec = found["metadata"], found.get("spec") or {}
    ref = spec.get("clusterRef") or {}
    cluster = (ref.get("namespace") or meta["namespace"], ref.get("name"))
    return (cluster, spec.get("topicName") or meta["name"]) == (term.key, topic_name)


class TopicClaims(NamedTuple):
    """`heir`: the oldest object that takes the topic over; `any`: True if any object declares
    it."""

    heir: TopicObject | None
    any: bool


async def claims_on(term: Term, topic: Committed, objects: Iterable[Object]) -> TopicClaims:
    """Return the claims of those of `objects` that may declare the topic and are not being
    deleted."""
    cluster = term.cluster
    if cluster is None:
        return TopicClaims(None, any=False)
    claimed = False
    others = [
        one
        for one in objects
        if not one["metadata"].get("deletionTimestamp") and declares(term, one, topic.name)
    ]
    for one in sorted(others, key=_age):
        stated = _identity(one, cluster, topic.name)
        labels = await namespace_labels(term, stated, cluster)
        if namespace_refusal(stated, cluster, labels) is not None:
            continue
        claimed, meta = True, stated.metadata
        own = topic.object is not None and topic.object.namespace == meta.namespace
        if own or from_kafka_id(meta.annotations.get(ADOPT, "")) == topic.id:
            heir = TopicObject(namespace=meta.namespace, name=meta.name, uid=meta.uid)
            return TopicClaims(heir, any=True)
    return TopicClaims(None, any=claimed)


def _age(found: Object) -> tuple[str, str, str]:
    meta = found["metadata"]
    return meta.get("creationTimestamp") or "", meta["namespace"], meta["name"]


def _identity(found: Object, cluster: LogCluster, topic_name: str) -> Topic:
    """Return the object with its topic and cluster only."""
    namespace, name = cluster.key
    return Topic(
        metadata=msgspec.convert(found["metadata"], ObjectMeta),
        spec=TopicSpec(
            cluster_ref=ClusterRef(name=name, namespace=namespace), topic_name=topic_name
        ),
    )


async def namespace_labels(term: Term, topic: Topic, cluster: LogCluster) -> dict[str, str]:
    """Return the labels of the topic's namespace, if they matter. Raises Retry."""
    namespace = topic.metadata.namespace
    allowed = cluster.spec.topics.allowed_namespaces if cluster.spec.topics else None
    if namespace == cluster.metadata.namespace or allowed is None or allowed.from_ != "Selector":
        return {}
    try:
        found = await term.kube.get(NAMESPACES, None, namespace)
    except ApiError as error:
        raise Retry(f"cannot read namespace {namespace}: {error}") from error
    return dict(found["metadata"].get("labels") or {})
