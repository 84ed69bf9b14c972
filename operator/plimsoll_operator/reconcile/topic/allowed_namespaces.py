"""Whether a namespace may declare topics of a cluster (`topics.allowedNamespaces`): pure.

The cluster's own namespace always may.
"""

from __future__ import annotations

from collections.abc import Mapping

from plimsoll_core.errors import Reason, Refusal
from plimsoll_operator.api.cluster_topics import (
    Topics,
)
from plimsoll_operator.api.logcluster import LogCluster
from plimsoll_operator.api.selectors import matches
from plimsoll_operator.api.topic import Topic


def is_allowed(namespace: str, cluster: LogCluster, namespace_labels: Mapping[str, str]) -> bool:
    """Whether `namespace` may declare topics in `cluster`."""
    if namespace == cluster.metadata.namespace:
        return True
    allowed = (cluster.spec.topics or Topics()).allowed_namespaces
    match (allowed.from_ if allowed else None) or "Same":
        case "All":
            return True
        case "Selector":
            selector = allowed.selector if allowed else None
            return selector is not None and matches(selector, namespace_labels)
        case _:
            return False


def namespace_refusal(
    topic: Topic, cluster: LogCluster, namespace_labels: Mapping[str, str]
) -> Refusal | None:
    if is_allowed(topic.metadata.namespace, cluster, namespace_labels):
        return None
    return Refusal(
        reason=Reason.NotAllowed,
        message=(
            f"LogCluster {cluster.metadata.namespace}/{cluster.metadata.name} does not take topics "
            f"from namespace {topic.metadata.namespace}; its owner lists namespaces in "
            "spec.topics.allowedNamespaces."
        ),
    )
