"""Interprets the YAML files of a local cluster: its LogCluster, and the objects declared for it.
Pure.

If the files contain no LogCluster, a default one is used, and all their objects belong to it. With
`--secure` the LogCluster gets a TLS listener of the cluster's own CA that requires a password or a
certificate, enforced rights, internal certificates, and a super user `admin` with credentials in
DIR/users/admin. Fields that the LogCluster states stay unchanged.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID, uuid5

import msgspec
from msgspec.structs import replace

from plimsoll_core.errors import Reason, Refusal
from plimsoll_operator.api import API_VERSION
from plimsoll_operator.api.authorization import DeclaredAuthorization
from plimsoll_operator.api.certificates import Certificates, InternalCertificates
from plimsoll_operator.api.cluster_topics import AllowedNamespaces, Topics
from plimsoll_operator.api.listeners import DeclaredListener, ListenerTls
from plimsoll_operator.api.load import Resource
from plimsoll_operator.api.logcluster import (
    Brokers,
    LogCluster,
    LogClusterSpec,
    Racks,
    Storage,
)
from plimsoll_operator.api.meta import ClusterRef, LocalClusterRef, ObjectMeta
from plimsoll_operator.api.reassignment import Reassignment
from plimsoll_operator.api.rebalance import Rebalance
from plimsoll_operator.api.topic import Topic
from plimsoll_operator.api.user import Authentication, Scram, User, UserSpec
from plimsoll_operator.api.verification import Verification
from plimsoll_operator.api.verification_schedule import VerificationSchedule
from plimsoll_operator.kube.kube_api import Object
from plimsoll_operator.kube.resources import USER_KINDS, Kind

_OBJECTS = UUID("5b1f7a3e-2f5c-4a3e-9a0c-61d2a5c1c0de")
Other = Topic | Reassignment | Rebalance | Verification | VerificationSchedule | User
"""Kinds of resources in the files other than LogCluster. Each belongs to a LogCluster."""
OPEN_INSIDE = Certificates(internal=InternalCertificates(mode="Off"))
KIND_OF: dict[str, Kind] = {kind.kind: kind for kind in USER_KINDS}


@dataclass(frozen=True, slots=True, kw_only=True)
class Documents:
    """Objects that the files of a local cluster declare."""

    cluster: LogCluster
    others: tuple[Other, ...]
    """The other objects, in the order in which they are applied."""


def gather(resources: Sequence[Resource], brokers: int | None) -> Documents | Refusal:
    """Return what the resources of the files declare, with a default LogCluster if they declare
    none. `brokers`: the number on the command line, which overrides the LogCluster's; None: not
    stated. Return a Refusal if there are several LogClusters."""
    clusters = [resource for resource in resources if isinstance(resource, LogCluster)]
    others = [with_uid(found) for found in resources if not isinstance(found, LogCluster)]
    if len(clusters) > 1:
        names = ", ".join(cluster.metadata.name for cluster in clusters)
        return Refusal(
            reason=Reason.InvalidRequest,
            message=f"A local cluster needs exactly one LogCluster; the files hold {names}.",
        )
    if clusters:
        cluster = clusters[0]
    else:
        cluster = _default_cluster([found for found in others if isinstance(found, Topic)])
        others = [_adopted(found, cluster) for found in others]
    if brokers is not None and cluster.spec.pools:
        return Refusal(
            reason=Reason.InvalidRequest,
            message=(
                f"LogCluster {cluster.metadata.name} has pools, so leave out --brokers: each pool "
                "states its number of brokers."
            ),
        )
    if brokers is not None:
        wanted = replace(cluster.spec.brokers or Brokers(), count=brokers)
        cluster = replace(cluster, spec=replace(cluster.spec, brokers=wanted))
    order = (Topic, Reassignment, Rebalance, Verification, VerificationSchedule, User)
    others.sort(key=lambda found: order.index(type(found)))
    return Documents(cluster=cluster, others=tuple(others))


def stranger(documents: Documents) -> str:
    """Return a sentence about the first Topic or User that names a LogCluster other than the files'
    one; "" if there is none."""
    for found in documents.others:
        if isinstance(found, Topic | User) and found.cluster_key != documents.cluster.key:
            where = "/".join(found.cluster_key)
            return (
                f"{type(found).__name__} {found.metadata.name} names LogCluster {where}, which "
                f"is not in the files; the files hold {'/'.join(documents.cluster.key)}."
            )
    return ""


def local_cluster(cluster: LogCluster) -> LogCluster:
    """Return the LogCluster adapted to one machine: racks are ignored, since there are no nodes,
    and all brokers run this release, since there are no images. Unless it states otherwise, brokers
    and the operator talk in plaintext: nothing leaves the machine, and a process that could listen
    on it could also read the keys."""
    spec = replace(cluster.spec, racks=Racks(policy="Ignored"), version=None, image=None)
    if cluster.stated_inside is None:
        spec = replace(spec, certificates=OPEN_INSIDE)
    return replace(cluster, spec=spec)


def ignored(cluster: LogCluster) -> str:
    """Return a sentence about the pod templates that processes on one machine cannot follow; "" if
    there are none."""
    brokers, pools = cluster.spec.brokers, cluster.spec.pools or ()
    found = ["brokers"] if brokers and brokers.template else []
    found += [f"pools[{pool.name}]" for pool in pools if pool.template]
    if not found:
        return ""
    return (
        f"The pod templates of {', '.join(found)} are ignored: brokers are processes here, and "
        "have no pods."
    )


def manifest(resource: Resource) -> Object:
    """Return the resource as a JSON object for the API server, without status, as `kubectl apply`
    sends it."""
    meta = resource.metadata
    metadata: Object = {"name": meta.name, "namespace": meta.namespace}
    if meta.labels:
        metadata["labels"] = meta.labels
    if meta.annotations:
        metadata["annotations"] = meta.annotations
    return {
        "apiVersion": API_VERSION,
        "kind": type(resource).__name__,
        "metadata": metadata,
        "spec": msgspec.to_builtins(resource.spec),
    }


def _default_cluster(topics: Sequence[Topic]) -> LogCluster:
    namespace, name = topics[0].cluster_key if topics else ("default", "local")
    allowed = Topics(allowed_namespaces=AllowedNamespaces(from_="All"))
    return LogCluster(
        metadata=ObjectMeta(name=name, namespace=namespace),
        spec=LogClusterSpec(storage=Storage(size="1Gi"), topics=allowed),
    )


def _adopted(found: Other, cluster: LogCluster) -> Other:
    """Return the object with its clusterRef set to the LogCluster `cluster`. Used if the files
    declare no LogCluster: all their objects then belong to the default one."""
    namespace, name = cluster.key
    if isinstance(found, Topic):
        ref = ClusterRef(name=name, namespace=namespace)
        return replace(found, spec=replace(found.spec, cluster_ref=ref))
    meta = replace(found.metadata, namespace=namespace)
    if isinstance(found, User):
        own = replace(found.spec, cluster_ref=ClusterRef(name=name))
        return replace(found, metadata=meta, spec=own)
    if isinstance(found, VerificationSchedule):
        template = replace(found.spec.template, cluster_ref=LocalClusterRef(name=name))
        return replace(found, metadata=meta, spec=replace(found.spec, template=template))
    spec = replace(found.spec, cluster_ref=LocalClusterRef(name=name))
    return replace(found, metadata=meta, spec=spec)


def with_uid(
    found: Other,
) -> Other:
    """Return the object with a uid: its own, or else one that is the same at every start. That is
    derived from the object's namespace and name, and for objects that run once also from their
    spec."""
    if found.metadata.uid:
        return found
    words = list(found.key)
    if isinstance(found, Reassignment):
        words.append(msgspec.json.encode(found.spec.moves).decode())
    elif isinstance(found, Rebalance):
        words.append(f"{found.spec.mode} {sorted(found.spec.brokers or ())}")
    elif isinstance(found, Verification):
        words += ["Verification", msgspec.json.encode(found.spec).decode()]
    elif isinstance(found, VerificationSchedule | User):
        words.append(type(found).__name__)
    uid = str(uuid5(_OBJECTS, "/".join(words)))
    return replace(found, metadata=replace(found.metadata, uid=uid))


LISTENER = "secure"
PORT_DEFAULT = 9094
"""Default port of broker 0 with `--secure`. Each broker adds its id."""
ADMIN = "admin"
CLOSED_INSIDE = Certificates(internal=InternalCertificates(mode="Required"))


def secured(documents: Documents, port: int | None) -> Documents:
    """Return the documents with what `--secure` adds, as far as the LogCluster does not state it: a
    TLS listener, enforced rights, internal certificates and the User `admin`. `port`: that of the
    listener at broker 0; None: `PORT_DEFAULT`."""
    cluster, spec = documents.cluster, documents.cluster.spec
    listener = DeclaredListener(
        name=LISTENER,
        port=port or PORT_DEFAULT,
        tls=ListenerTls(),
        authentication=("ScramSha256", "ScramSha512", "Tls"),
    )
    spec = replace(
        spec,
        listeners=spec.listeners or (listener,),
        authorization=spec.authorization
        or DeclaredAuthorization(mode="Enforce", super_users=(f"User:{ADMIN}",)),
        certificates=spec.certificates if cluster.stated_inside else CLOSED_INSIDE,
    )
    others = list(documents.others)
    if not any(isinstance(one, User) and one.metadata.name == ADMIN for one in others):
        metadata = ObjectMeta(name=ADMIN, namespace=cluster.metadata.namespace)
        ref = ClusterRef(name=cluster.metadata.name)
        login = Authentication(scram=Scram())
        admin = User(metadata=metadata, spec=UserSpec(cluster_ref=ref, authentication=login))
        others.append(with_uid(admin))
    return Documents(cluster=replace(cluster, spec=spec), others=tuple(others))
