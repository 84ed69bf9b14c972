"""Reads the metadata log that an earlier run left in the directory, before this run leads.

Each declared topic in that log without a Topic object gets one again, since the operator would take
the absence for a deletion. Objects are missing after a crash before they were written.
"""

from __future__ import annotations

from collections.abc import Iterator
from uuid import UUID

import msgspec

from plimsoll_core.cluster.model import ClusterImage, PartitionKey
from plimsoll_core.cluster.model import Topic as Committed
from plimsoll_core.cluster.topic_configs import UNCLEAN_RECOVERY
from plimsoll_operator.api.logcluster import LogCluster
from plimsoll_operator.api.topic import Topic
from plimsoll_operator.controller.commit_queue import replay
from plimsoll_operator.kube.kube_api import Object
from plimsoll_operator.local.layout import DirectoryLayout
from plimsoll_operator.metalog.directory import DirectoryLog
from plimsoll_operator.metalog.interface import MetadataLogError
from plimsoll_operator.reconcile.topic.topic_declaration import OWN_FIELDS


async def committed(layout: DirectoryLayout, cluster_id: UUID) -> ClusterImage:
    """Return the image at the end of the directory's metadata log, changing nothing. It is empty if
    there is no log, or if the log cannot be read: the leader, which reads it again, reports that
    error."""
    empty = ClusterImage(cluster_id=cluster_id)
    if not layout.metadata.exists():
        return empty
    try:
        opened = await DirectoryLog(layout.metadata, cluster_id).read()
        return replay(opened, cluster_id).image
    except (MetadataLogError, OSError):
        return empty


def declared_topics(image: ClusterImage, cluster: LogCluster) -> Iterator[Topic]:
    """Yield a Topic object, with its present settings, for each topic in `image` that an object
    declared and that is not being deleted."""
    for topic in image.topics.values():
        if topic.object is not None and topic.pending_deletion is None:
            yield _object(image, topic, cluster)


def _object(image: ClusterImage, topic: Committed, cluster: LogCluster) -> Topic:
    holder = topic.object
    assert holder is not None
    namespace, name = cluster.key
    strategy = topic.configs.get(UNCLEAN_RECOVERY)
    configs = {key: value for key, value in topic.configs.items() if key not in OWN_FIELDS}
    spec = {
        "clusterRef": {"name": name, "namespace": namespace},
        "partitions": topic.partitions,
        "replicationFactor": topic.replication_factor,
        "minInSyncReplicas": topic.min_isr,
        "placement": _placement(image, topic),
        "config": configs,
        "deletionPolicy": topic.deletion_policy,
        **({} if topic.name == holder.name else {"topicName": topic.name}),
        **({"uncleanRecovery": {"strategy": strategy}} if strategy else {}),
    }
    meta = {"name": holder.name, "namespace": holder.namespace, "uid": holder.uid}
    return msgspec.convert({"metadata": meta, "spec": spec}, Topic)


def _placement(image: ClusterImage, topic: Committed) -> Object:
    if topic.strategy != "Explicit":
        return {"strategy": topic.strategy}
    keys = [PartitionKey(topic.id, number) for number in range(topic.partitions)]
    rows = [
        {"partition": number, "replicas": list(image.partitions[key].replicas)}
        for number, key in enumerate(keys)
    ]
    return {"strategy": topic.strategy, "assignment": rows}
