"""The YAML files given to a local cluster: which cluster it is, and which topics it gets. Pure.

Without a LogCluster in the files there is one by default, and every Topic belongs to it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID, uuid5

from msgspec.structs import replace

from plimsoll_core.errors import Reason, Refusal
from plimsoll_core.messages.requests import DeclareTopic
from plimsoll_operator.api.load import Resource
from plimsoll_operator.api.logcluster import Brokers, LogCluster, LogClusterSpec, Storage
from plimsoll_operator.api.meta import ObjectMeta
from plimsoll_operator.api.reassignment import Reassignment
from plimsoll_operator.api.rebalance import Rebalance
from plimsoll_operator.api.topic import Topic
from plimsoll_operator.local import rebalances
from plimsoll_operator.local.moves import with_uid
from plimsoll_operator.reconcile.topic.request import declare

_OBJECTS = UUID("5b1f7a3e-2f5c-4a3e-9a0c-61d2a5c1c0de")


@dataclass(frozen=True, slots=True, kw_only=True)
class Documents:
    """What the files ask for."""

    cluster: LogCluster
    implicit: bool
    topics: tuple[Topic, ...]
    reassignments: tuple[Reassignment, ...] = ()
    rebalances: tuple[Rebalance, ...] = ()


def gather(resources: Sequence[Resource], brokers: int | None) -> Documents | Refusal:
    """`brokers` on the command line wins over the LogCluster's count."""
    clusters = [resource for resource in resources if isinstance(resource, LogCluster)]
    topics = tuple(_with_uid(resource) for resource in resources if isinstance(resource, Topic))
    if len(clusters) > 1:
        names = ", ".join(cluster.metadata.name for cluster in clusters)
        return Refusal(
            reason=Reason.InvalidRequest,
            message=f"A local cluster is one LogCluster; the files hold {names}.",
        )
    implicit = not clusters
    cluster = clusters[0] if clusters else _default_cluster(topics)
    if brokers is not None:
        wanted = replace(cluster.spec.brokers or Brokers(), count=brokers)
        cluster = replace(cluster, spec=replace(cluster.spec, brokers=wanted))
    moves = [found for found in resources if isinstance(found, Reassignment)]
    plans = [found for found in resources if isinstance(found, Rebalance)]
    return Documents(
        cluster=cluster,
        implicit=implicit,
        topics=topics,
        reassignments=tuple(with_uid(found, _OBJECTS) for found in moves),
        rebalances=tuple(rebalances.with_uid(found, _OBJECTS) for found in plans),
    )


def declaration(documents: Documents, topic: Topic) -> DeclareTopic | Refusal:
    """What the topic asks of the controller."""
    cluster = documents.cluster
    if documents.implicit:
        # Nobody said whose topics these are: the default cluster takes them all.
        meta = replace(cluster.metadata, namespace=topic.metadata.namespace)
        cluster = replace(cluster, metadata=meta)
    elif topic.cluster_key != cluster.key:
        return Refusal(
            reason=Reason.ClusterNotFound,
            message=(
                "It belongs to LogCluster "
                f"{'/'.join(topic.cluster_key)}, which is not in the files."
            ),
        )
    return declare(topic, cluster)


def _default_cluster(topics: tuple[Topic, ...]) -> LogCluster:
    namespace, name = topics[0].cluster_key if topics else ("default", "local")
    return LogCluster(
        metadata=ObjectMeta(name=name, namespace=namespace),
        spec=LogClusterSpec(storage=Storage(size="1Gi")),
    )


def _with_uid(topic: Topic) -> Topic:
    """A file has no uid; the same name is the same object."""
    if topic.metadata.uid:
        return topic
    uid = str(uuid5(_OBJECTS, "/".join(topic.key)))
    return replace(topic, metadata=replace(topic.metadata, uid=uid))
