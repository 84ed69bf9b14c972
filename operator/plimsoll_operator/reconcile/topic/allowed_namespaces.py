"""Namespaces that may declare topics of a cluster (`topics.allowedNamespaces`), and their topic
names (`topics.prefix`). Pure.

The cluster's own namespace always may.
"""

from __future__ import annotations

from collections.abc import Mapping

from plimsoll_core.errors import Reason, Refusal
from plimsoll_operator.api.cluster_topics import (
    Topics,
)
from plimsoll_operator.api.logcluster import LogCluster
from plimsoll_operator.api.name_prefix import prefix_of
from plimsoll_operator.api.selectors import allows
from plimsoll_operator.api.topic import Topic


def is_allowed(namespace: str, cluster: LogCluster, namespace_labels: Mapping[str, str]) -> bool:
    """Return True if `namespace` may declare topics in `cluster`."""
    if namespace == cluster.metadata.namespace:
        return True
    allowed = (cluster.spec.topics or Topics()).allowed_namespaces
    return allows(allowed, namespace_labels)


def namespace_refusal(
    topic: Topic, cluster: LogCluster, namespace_labels: Mapping[str, str]
) -> Refusal | None:
    if is_allowed(topic.metadata.namespace, cluster, namespace_labels):
        return _name_refusal(topic, cluster)
    return Refusal(
        reason=Reason.NotAllowed,
        message=(
            f"LogCluster {cluster.metadata.namespace}/{cluster.metadata.name} does not accept "
            f"Topics from namespace {topic.metadata.namespace}; its owner can add the namespace "
            "to spec.topics.allowedNamespaces."
        ),
    )


def _name_refusal(topic: Topic, cluster: LogCluster) -> Refusal | None:
    """Return why the topic's name is refused, or None; the cluster's own namespace may use every
    name."""
    stated = cluster.spec.topics.prefix if cluster.spec.topics else None
    namespace = topic.metadata.namespace
    if stated is None or namespace == cluster.metadata.namespace:
        return None
    prefix = prefix_of(stated, namespace)
    if topic.topic_name.startswith(prefix):
        return None
    text = (
        f"Topic names in namespace {namespace} must begin with {prefix}; {topic.topic_name} "
        "does not (spec.topics.prefix of the LogCluster)."
    )
    return Refusal(reason=Reason.NotAllowed, message=text)
