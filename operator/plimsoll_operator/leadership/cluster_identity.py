"""Checks, by reading the API server, whether a LogCluster may use the metadata log and volumes that
exist under its name and id.

A metadata log or a volume of another cluster id under the same name is never taken over silently:
it may be the only copy of a user's data. The user must state the adoption in `spec.clusterId`;
otherwise the operator refuses to run the cluster. A cluster id is no secret, yet it names
controllers and the Secrets of CAs. A LogCluster that states the id of another cluster, without
having that cluster's log in its own namespace, is therefore refused as well.
"""

from __future__ import annotations

from collections.abc import Iterable
from uuid import UUID

from plimsoll_operator.api import labels
from plimsoll_operator.api.cluster_ids import cluster_id, kafka_id
from plimsoll_operator.api.logcluster import LogCluster
from plimsoll_operator.kube.errors import NotFound
from plimsoll_operator.kube.kube_api import KubeApi
from plimsoll_operator.kube.resources import METADATA_BATCHES, SECRETS, VOLUME_CLAIMS

OTHER_LOG = "LogOfAnotherCluster"
OTHER_VOLUME = "VolumeOfAnotherCluster"
CHANGED = "ClusterIdChanged"
TAKEN = "ClusterIdTaken"

Objection = tuple[str, str]
"""The reason why a cluster must not run, as the (reason, sentence) of a condition."""


async def objection(
    kube: KubeApi,
    cluster: LogCluster,
    others: Iterable[LogCluster] = (),
    authorities_in: str = "",
) -> Objection | None:
    """Return why the operator must not run this LogCluster as its spec stands, or None if it may.
    Raises ApiError if the API server cannot be read.

    `others`: all LogClusters that the operator has seen. `authorities_in`: the operator's
    namespace, which holds the CAs; if empty, each LogCluster keeps its CAs in its own namespace.
    """
    namespace, name = cluster.key
    wanted = cluster_id(cluster)
    own = UUID(cluster.metadata.uid)
    if wanted != own and await _has_log(kube, namespace, f"{labels.LOG_CLUSTER_ID}={own}"):
        return CHANGED, (
            f"This cluster already has id {kafka_id(own)}; spec.clusterId can only be set when "
            "the object is created. Remove it, or delete and re-apply the object."
        )
    log = f"{labels.CLUSTER}={name},{labels.LOG_CLUSTER_ID}={wanted}"
    if wanted != own and not await _has_log(kube, namespace, log):
        holder = _holder(cluster, others) or await _authority_of(kube, cluster, authorities_in)
        if holder:
            return TAKEN, (
                f"spec.clusterId matches the id of {holder}, but namespace {namespace} has no "
                f"metadata log of that cluster under the name {name}. Remove spec.clusterId, or "
                "set it to the id of a cluster that has its log here. If only its volumes are "
                "left, an administrator must first delete the Secrets of its CAs (label "
                f"{labels.AUTHORITY_OF}) in the operator's namespace."
            )
    found = await _other_log(kube, namespace, name, wanted)
    if found is not None and not await _has_log(kube, namespace, log):
        return OTHER_LOG, (
            f"A metadata log of cluster {kafka_id(found)} already exists under this name. To "
            "adopt it with its volumes, re-apply the object with spec.clusterId: "
            f"{kafka_id(found)}; for a new cluster choose another name, or first delete that "
            "log's MetadataBatches."
        )
    return await _volume_objection(kube, namespace, name, wanted)


def _holder(cluster: LogCluster, others: Iterable[LogCluster]) -> str:
    short = labels.short_id(cluster_id(cluster))  # object names carry only this part
    found = (one for one in others if labels.short_id(cluster_id(one)) == short)
    return next(("LogCluster " + "/".join(one.key) for one in found if one.key != cluster.key), "")


async def _authority_of(kube: KubeApi, cluster: LogCluster, namespace: str) -> str:
    """Return words that name the owner of the CA Secrets which are stored under this cluster's id
    in `namespace`, the operator's. Return "" if there are no such Secrets, if this LogCluster owns
    them, or if `namespace` is empty or the LogCluster's own."""
    if namespace in ("", cluster.key[0]):
        return ""  # a user with write access there has them anyway
    wanted = cluster_id(cluster)
    names = (labels.listener_authority, labels.inside_authority, labels.client_authority)
    for name in (named(wanted) for named in names):
        try:
            secret = await kube.get(SECRETS, namespace, name)
        except NotFound:
            continue
        holder = (secret["metadata"].get("annotations") or {}).get(labels.AUTHORITY_OF, "")
        if holder != "/".join(cluster.key):
            return f"LogCluster {holder}" if holder else f"the cluster that owns Secret {name}"
    return ""


async def _has_log(kube: KubeApi, namespace: str, selector: str) -> bool:
    return bool(await kube.first(METADATA_BATCHES, namespace, label_selector=selector))


async def _other_log(kube: KubeApi, namespace: str, name: str, wanted: UUID) -> UUID | None:
    selector = f"{labels.CLUSTER}={name},{labels.LOG_CLUSTER_ID}!={wanted}"
    found = await kube.first(METADATA_BATCHES, namespace, label_selector=selector)
    return UUID(found["metadata"]["labels"][labels.LOG_CLUSTER_ID]) if found else None


async def _volume_objection(
    kube: KubeApi, namespace: str, name: str, wanted: UUID
) -> Objection | None:
    selector = f"{labels.CLUSTER}={name},{labels.CLUSTER_ID}!={labels.short_id(wanted)}"
    found = await kube.first(VOLUME_CLAIMS, namespace, label_selector=selector)
    if found is None:
        return None
    volume = found["metadata"]["name"]
    return OTHER_VOLUME, (
        f"The volume {volume} belongs to another cluster of this name (its id begins with "
        f"{found['metadata']['labels'].get(labels.CLUSTER_ID)}). Adopt it with spec.clusterId, "
        "choose another name, or delete the volume."
    )
