"""Decides which cluster a LogCluster object is, and whether it may use the metadata log and volumes
that exist under its name and id.

An object is the cluster that `spec.clusterId` states, else the one of its own uid. An object that
was applied again continues by itself the cluster that left volumes under its name in its namespace,
if nothing else claims that cluster's id. All other remains may be the only copy of a
user's data, and are never taken over silently: the user must state the adoption in
`spec.clusterId`, or the operator refuses to run the cluster. A cluster id is no secret, yet it
names controllers and the Secrets of CAs. A LogCluster that states the id of another cluster,
without having that cluster's log in its own namespace, is therefore refused as well. A log alone
proves nothing against a LogCluster with that uid, or the stated owner of the CAs: any user with all
rights in a namespace can make one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from uuid import UUID

from plimsoll_operator.api import labels
from plimsoll_operator.api.cluster_ids import cluster_id, kafka_id
from plimsoll_operator.api.logcluster import LogCluster
from plimsoll_operator.kube.errors import NotFound
from plimsoll_operator.kube.kube_api import KubeApi
from plimsoll_operator.kube.resources import METADATA_BATCHES, SECRETS
from plimsoll_operator.kube.seen_objects import Key
from plimsoll_operator.leadership.cluster_remains import against, former, read_remains

OTHER_LOG = "LogOfAnotherCluster"
OTHER_VOLUME = "VolumeOfAnotherCluster"
CHANGED = "ClusterIdChanged"
TAKEN = "ClusterIdTaken"

Objection = tuple[str, str]
"""The reason why a cluster must not run, as the (reason, sentence) of a condition."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Claimants:
    """What may claim a cluster id. `clusters`: all LogClusters that the operator has seen.
    `continued`: the ids of those that `identity_of` found to be another cluster than their spec and
    uid say. `authorities_in`: the operator's namespace, which holds the CAs; if empty, each
    LogCluster keeps its CAs in its own namespace."""

    clusters: Iterable[LogCluster] = ()
    continued: Mapping[Key, UUID] = field(default_factory=dict)
    authorities_in: str = ""


UNCLAIMED = Claimants()


async def identity_of(kube: KubeApi, cluster: LogCluster, claimants: Claimants = UNCLAIMED) -> UUID:
    """Return the id of the cluster that this LogCluster is: the stated one; else the object's uid
    if a metadata log has it; else that of the cluster that left volumes under this name, if
    nothing else claims it; else the uid. Raises ApiError.

    The parameters are those of `objection`."""
    own = UUID(cluster.metadata.uid)
    if cluster.spec.cluster_id:
        return cluster_id(cluster)
    namespace, name = cluster.key
    if await _has_log(kube, namespace, f"{labels.LOG_CLUSTER_ID}={own}"):
        return own
    found = former(await read_remains(kube, namespace, name))
    if found is None or await _claimed(kube, cluster, found, claimants):
        return own
    return found


async def objection(
    kube: KubeApi, cluster: LogCluster, claimants: Claimants = UNCLAIMED, wanted: UUID | None = None
) -> Objection | None:
    """Return why the operator must not run this LogCluster as its spec stands, or None if it may.
    Raises ApiError if the API server cannot be read. `wanted`: the result of `identity_of`; None:
    the id that spec and uid say."""
    namespace, name = cluster.key
    wanted = cluster_id(cluster) if wanted is None else wanted
    own = UUID(cluster.metadata.uid)
    if wanted != own and await _has_log(kube, namespace, f"{labels.LOG_CLUSTER_ID}={own}"):
        return CHANGED, (
            f"This cluster already has id {kafka_id(own)}; spec.clusterId can only be set when "
            "the object is created. Remove it, or delete and re-apply the object."
        )
    log = f"{labels.CLUSTER}={name},{labels.LOG_CLUSTER_ID}={wanted}"
    has_log = await _has_log(kube, namespace, log)
    if wanted != own and not has_log:
        holder = await _claimed(kube, cluster, wanted, claimants)
        if holder:
            return TAKEN, (
                f"spec.clusterId matches the id of {holder}, but namespace {namespace} has no "
                f"metadata log of that cluster under the name {name}. Remove spec.clusterId, or "
                "set it to the id of a cluster that has its log here. If only its volumes are "
                "left, an administrator must first delete its CAs: kubectl delete secret "
                f"--ignore-not-found -n {claimants.authorities_in or namespace} "
                f"{' '.join(_authorities(wanted))}"
            )
    if wanted != own and has_log and (owner := await _owner(kube, cluster, wanted, claimants)):
        return TAKEN, (
            f"spec.clusterId matches the id of LogCluster {owner}, so the metadata log in "
            f"namespace {namespace} is not used. If that LogCluster is gone, an administrator must "
            "hand its CAs over: kubectl annotate secret --overwrite -n "
            f"{claimants.authorities_in or namespace} {' '.join(_authorities(wanted))} "
            f"{labels.AUTHORITY_OF}={namespace}/{name}"
        )
    remains = await read_remains(kube, namespace, name)
    why = against(remains.volumes, wanted)
    if (strangers := remains.logs - {wanted}) and not has_log:
        found = kafka_id(min(strangers))
        more = why or "No volume of that cluster is in this namespace."
        return OTHER_LOG, (
            f"A metadata log of cluster {found} already exists under this name. {more} To adopt "
            f"that log, create the LogCluster again with spec.clusterId: {found}; for a new "
            "cluster choose another name, or first give up that log: kubectl delete "
            f"metadatabatches,metadatasnapshots -n {namespace} -l {labels.CLUSTER}={name}"
        )
    if not why:
        return None
    left = former(remains)
    holder = "" if left is None else await _claimed(kube, cluster, left, claimants)
    return OTHER_VOLUME, f"{why} The cluster id belongs to {holder}." if holder else why


async def _owner(kube: KubeApi, cluster: LogCluster, wanted: UUID, claimants: Claimants) -> str:
    """Return namespace/name of another LogCluster that owns the cluster id `wanted` for certain:
    its uid is the id, or the CAs of the id state it. Return "" if there is none."""
    short = labels.short_id(wanted)  # object names carry only this part
    for one in claimants.clusters:
        its, uid = claimants.continued.get(one.key) or cluster_id(one), UUID(one.metadata.uid)
        if one.key != cluster.key and its == uid and labels.short_id(its) == short:
            return "/".join(one.key)
    stated = await _stated_owners(kube, cluster, wanted, claimants.authorities_in)
    return next((holder for _, holder in stated if holder), "")


async def _claimed(kube: KubeApi, cluster: LogCluster, wanted: UUID, claimants: Claimants) -> str:
    """Return words that name what claims the cluster id `wanted` besides this LogCluster: another
    LogCluster, or the owner of that id's CAs. Return "" if nothing does."""
    short = labels.short_id(wanted)  # object names carry only this part
    for one in claimants.clusters:
        its = claimants.continued.get(one.key) or cluster_id(one)
        if one.key != cluster.key and labels.short_id(its) == short:
            return "LogCluster " + "/".join(one.key)
    return await _authority_of(kube, cluster, wanted, claimants.authorities_in)


async def _authority_of(kube: KubeApi, cluster: LogCluster, wanted: UUID, namespace: str) -> str:
    """Return words that name the owner of the CA Secrets which are stored under the cluster id
    `wanted` in `namespace`, the operator's. Return "" if there are no such Secrets, if this
    LogCluster owns them, or if `namespace` is empty or the LogCluster's own."""
    for name, holder in await _stated_owners(kube, cluster, wanted, namespace):
        return f"LogCluster {holder}" if holder else f"the cluster that owns Secret {name}"
    return ""


async def _stated_owners(
    kube: KubeApi, cluster: LogCluster, wanted: UUID, namespace: str
) -> list[tuple[str, str]]:
    """Return the names of the CA Secrets of `wanted` that state another owner than this LogCluster,
    each with that owner ("" if it states none)."""
    found: list[tuple[str, str]] = []
    if namespace in ("", cluster.key[0]):
        return found  # a user with write access there has them anyway
    for name in _authorities(wanted):
        try:
            secret = await kube.get(SECRETS, namespace, name)
        except NotFound:
            continue
        holder = (secret["metadata"].get("annotations") or {}).get(labels.AUTHORITY_OF, "")
        if holder != "/".join(cluster.key):
            found.append((name, holder))
    return found


def _authorities(wanted: UUID) -> tuple[str, ...]:
    """Return the names of the Secrets with the CAs of a cluster, in the operator's namespace."""
    names = (labels.listener_authority, labels.inside_authority, labels.client_authority)
    return tuple(named(wanted) for named in names)


async def _has_log(kube: KubeApi, namespace: str, selector: str) -> bool:
    return bool(await kube.first(METADATA_BATCHES, namespace, label_selector=selector))
