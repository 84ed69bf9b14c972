"""Labels, annotations, names and ports of all objects that the operator creates. They stand in one
module because label selectors must match them.

Labels of a user's object are never copied to the objects created for it.
"""

from __future__ import annotations

import hashlib
from typing import Any
from uuid import UUID

from plimsoll_operator.api import API_VERSION

CLUSTER = "plimsoll.dev/cluster"
CLUSTER_ID = "plimsoll.dev/cluster-id"
BROKER_ID = "plimsoll.dev/broker-id"
POOL = "plimsoll.dev/pool"
"""Label of a broker's StatefulSet and volume claim, if the LogCluster has pools: the name of the
broker's pool. Pods do not have it, so that naming pools restarts no broker."""
LOG_CLUSTER_ID = "internal.plimsoll.dev/cluster-id"
"""Label of each object of a metadata log, and of each broker's volume claim: the whole cluster id.
Objects are found by it after the LogCluster is gone, since log and volumes outlive it."""
WRITTEN_MS = "internal.plimsoll.dev/written-ms"
"""Annotation of a slot (MetadataBatch) of a metadata log: when its batch was written, in
milliseconds since 1970 by the writer's clock."""
LOG_PART = "internal.plimsoll.dev/part"
"""Label of an object that is part of a metadata snapshot: the snapshot's index, or one of its
chunks."""
ROTATE_INSIDE = "plimsoll.dev/rotate-internal-ca"
"""Annotation of a LogCluster. A new value requests the rotation of the authority (CA) for
connections between brokers and the operator."""
ROTATE_LISTENERS = "plimsoll.dev/rotate-listener-ca"
"""Annotation of a LogCluster. A new value makes the rotation of the listeners' authority (CA) take
its next step now instead of when that is due."""
ROTATE_CLIENTS = "plimsoll.dev/rotate-client-ca"
"""Annotation of a LogCluster. A new value makes the rotation of the authority (CA) of client
certificates take its next step now instead of when that is due."""
LISTENER = "plimsoll.dev/listener"
"""Label of a listener's outside Services and routes, and of its Certificate: the listener's
name."""
LISTENER_COMPONENT = "listener"
AUTHORITY_OF = "plimsoll.dev/authority-of"
"""Annotation of a Secret with an authority (CA): the `<namespace>/<name>` of its LogCluster."""
VERIFICATION = "plimsoll.dev/verification"
SCHEDULE = "plimsoll.dev/schedule"
"""Label of a Verification: the VerificationSchedule that started it."""
PAUSED_UNTIL = "plimsoll.dev/paused-until"
"""Annotation of a broker's pod that the kubelet of `plimsoll local` obeys: the time (RFC 3339)
until which the broker's process is suspended (SIGSTOP)."""
DUE_TIME = "plimsoll.dev/due-time"
"""Annotation of a Verification that a VerificationSchedule started: the time (RFC 3339) at which
the start was due."""
EXECUTOR_OF = "plimsoll.dev/executor-of"
"""Label of the pod of a Spark executor: the Verification that it works for."""
EXECUTOR = "executor"
RPC_SECRET = "plimsoll.dev/rpc"
"""The type (not a label) of the Secret that a Verification's driver and executors share."""
PURPOSE = "plimsoll.dev/purpose"
USER_LOGIN = "plimsoll.dev/user"
"""Type (`type`, not a label) of a Secret with a User's credentials."""
REVISION = "plimsoll.dev/revision"
"""Annotation of a broker's pod template: the revision of the template, so that a pod shows from
which revision it was made."""
RESTART = "plimsoll.dev/restart"
"""Annotation of a LogCluster, set by its owner. A new value restarts all brokers, one safe restart
at a time."""
ACKNOWLEDGE_VIOLATION = "plimsoll.dev/acknowledge-violation"
"""Annotation of a continuous Verification, set by its owner: a time. It acknowledges all violated
windows that ended until then."""
ACKNOWLEDGE = "plimsoll.dev/acknowledge-deletion"
"""Annotation of a LogCluster, set by its owner: a time. It acknowledges all disappearances of Topic
objects up to then."""
ACKNOWLEDGE_USERS = "plimsoll.dev/acknowledge-user-deletion"
"""Annotation of a LogCluster, set by its owner: `<namespace>@<time>`, comma-separated. It
acknowledges all disappearances of User objects of the namespace up to the time."""
RESTORE_METADATA = "plimsoll.dev/restore-metadata"
"""Annotation of a LogCluster, set by a person: the end offset and digest of the history of the
metadata that is to be restored although it is uncertain."""
RESTORE_FROM_BACKUP = "plimsoll.dev/restore-from-backup"
"""Annotation of a LogCluster, set by a person: the point of its backup to restore: `newest`, a time
in RFC 3339, or a metadata offset. What is found is restored only with `RESTORE_METADATA`."""
WITHDRAWN = "plimsoll.dev/withdrawn"
"""Annotation of a broker's StatefulSet: the revision of the last restart that was granted and then
withdrawn."""
WOKEN = "plimsoll.dev/woken"
"""Annotation of a broker's StatefulSet: the controller epoch and the metadata offset at which the
cluster last woke from hibernation."""
ADOPT = "plimsoll.dev/adopt"
"""Annotation of a Topic, set by its owner: the id (status.topicId) of a topic that has no Topic
object. The annotated object declares that topic from now on."""
TOPICS_CRD = "plimsoll.dev/topics-crd-uid"
"""Annotation of a cluster's Lease: the uid of the CustomResourceDefinition of Topic. If the CRD has
another uid, absent Topic objects do not count as deleted."""
USERS_CRD = "plimsoll.dev/users-crd-uid"
"""Annotation of a cluster's Lease: the uid of the CustomResourceDefinition of User. If the CRD has
another uid, absent User objects do not count as deleted."""
REPORTING_CONTROLLER = "plimsoll.dev/operator"
"""Value of `reportingController` (not a label) in the operator's Events."""
VERSION = "app.kubernetes.io/version"
"""Label of a broker's pod: the release that it runs."""
VIEW_AUDIENCE = "plimsoll.dev/view"
"""Audience of the ServiceAccount tokens with which clients read the operator's HTTP view."""
VIEW_HEADER = "X-Plimsoll-Authorization"
"""HTTP header that carries the ServiceAccount token for the operator's HTTP view: the API server's
proxy removes `Authorization`."""
NAME = "app.kubernetes.io/name"
COMPONENT = "app.kubernetes.io/component"
INSTANCE = "app.kubernetes.io/instance"
SCRAPER = "plimsoll.dev/scraper"
"""Label of a namespace. Its pods may read the brokers' metrics if the chart's values name no
readers."""
MANAGED_BY = "app.kubernetes.io/managed-by"
OPERATOR = "plimsoll-operator"

# Kubernetes' own, on nodes, namespaces, pods of a StatefulSet or a Job, and volume claims.
HOSTNAME = "kubernetes.io/hostname"
NAMESPACE_NAME = "kubernetes.io/metadata.name"
ZONE = "topology.kubernetes.io/zone"
OUT_OF_SERVICE = "node.kubernetes.io/out-of-service"
"""Taint of a node, set by a person who vouches that nothing runs on the node any more."""
POD_NAME = "statefulset.kubernetes.io/pod-name"
POD_INDEX = "apps.kubernetes.io/pod-index"
JOB_NAME = "batch.kubernetes.io/job-name"
JOB_UID = "batch.kubernetes.io/controller-uid"
DEFAULT_CLASS = "storageclass.kubernetes.io/is-default-class"
"""Annotation of the default StorageClass, which volume claims without a class get."""
LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"
"""Annotation in which `kubectl apply` keeps a copy of the whole object."""
VOLUME_PROTECTION = "kubernetes.io/pvc-protection"
"""Finalizer of a volume claim: the claim is not removed while a pod uses it."""

TLS_SECRET = "plimsoll.dev/tls"
"""Type of a Secret with certificates of Plimsoll."""

KAFKA_PORT = 9092
REPLICATION_PORT = 9091
METRICS_PORT = 9100
HEALTH_PORT = 9101
API_SERVER_PORTS = (443, 6443)
"""Ports on which API servers usually listen behind their Service."""
CONTROLLER_PORT = 9093

USER_ID = 10001

NAME_MAX = 253
"""Bound on the number of characters of an object's name."""
DIGEST_CHARACTERS = 10

Manifest = dict[str, Any]


def derived_name(name: str, suffix: str) -> str:
    """Return `name` followed by `suffix`, as the name of an object that is made for another one. A
    digest replaces the end of a long name, so that the result stays within the bound and no two
    objects share one name."""
    whole = f"{name}{suffix}"
    if len(whole) <= NAME_MAX:
        return whole
    end = f"-{hashlib.sha256(name.encode()).hexdigest()[:DIGEST_CHARACTERS]}{suffix}"
    return name[: NAME_MAX - len(end)].rstrip("-.") + end


def short_id(cluster_id: UUID) -> str:
    """Return the first 12 hex digits of the cluster id, used in names and labels."""
    return cluster_id.hex[:12]


def selector(cluster: str) -> dict[str, str]:
    """Return the labels that select a cluster's broker pods."""
    return {CLUSTER: cluster, COMPONENT: "broker"}


def labels(cluster: str, cluster_id: UUID, component: str) -> dict[str, str]:
    """Return the labels of an object that the operator creates for a cluster. `component`: the
    object's role."""
    return {
        NAME: "plimsoll",
        INSTANCE: cluster,
        COMPONENT: component,
        MANAGED_BY: OPERATOR,
        CLUSTER: cluster,
        CLUSTER_ID: short_id(cluster_id),
    }


def owner(kind: str, name: str, uid: str) -> list[Manifest]:
    """Return the ownerReferences with which the garbage collector removes an object after its
    owner. `blockOwnerDeletion` stays unset: the operator's objects must not delay a deletion."""
    return [
        {
            "apiVersion": API_VERSION,
            "kind": kind,
            "name": name,
            "uid": uid,
            "controller": True,
            "blockOwnerDeletion": False,
        }
    ]


def brokers_service(cluster: str) -> str:
    """Return the name of the headless Service that gives every broker pod its DNS name."""
    return f"{cluster}-brokers"


def bootstrap_service(cluster: str) -> str:
    """Return the name of the Service that clients connect to first."""
    return f"{cluster}-bootstrap"


def external_service(cluster: str, listener: str, broker_id: int | None) -> str:
    """Return the name of a listener's Service (and route) for clients outside: that of one broker,
    or the bootstrap one if `broker_id` is None."""
    whose = bootstrap_service(cluster) if broker_id is None else broker(cluster, broker_id)
    return f"{whose}-{listener}"


def listener_certificate(cluster: str, listener: str) -> str:
    """Return the name of a listener's cert-manager Certificate, and of the Secret that cert-manager
    fills."""
    return f"{cluster}-listener-{listener}"


def broker_tls(cluster: str, broker_id: int) -> str:
    """Return the name of the Secret with a broker's certificates and keys."""
    return f"{broker(cluster, broker_id)}-tls"


def listener_authority(cluster_id: UUID) -> str:
    """Return the name of the Secret, in the operator's namespace, with the authority (CA) of
    listeners."""
    return f"plimsoll-{short_id(cluster_id)}-listener-ca"


def inside_authority(cluster_id: UUID) -> str:
    """Return the name of the Secret, in the operator's namespace, with the internal authority (CA),
    which signs certificates of brokers and controllers."""
    return f"plimsoll-{short_id(cluster_id)}-internal-ca"


def client_authority(cluster_id: UUID) -> str:
    """Return the name of the Secret, in the operator's namespace, with the authority (CA) that
    signs users' certificates."""
    return f"plimsoll-{short_id(cluster_id)}-client-ca"


def listener_authority_map(cluster: str) -> str:
    """Return the name of the ConfigMap with the authorities (CAs) that clients must trust."""
    return f"{cluster}-listener-ca"


def config_map(cluster: str, content: str) -> str:
    return f"{cluster}-broker-config-{content}"


def service_account(cluster: str) -> str:
    return f"{cluster}-broker"


def broker(cluster: str, broker_id: int) -> str:
    """Return the name of a broker's StatefulSet."""
    return f"{cluster}-broker-{broker_id}"


def broker_of(cluster: str, stateful_set: str) -> int | None:
    """Return the id of the broker with this StatefulSet name, or None if the name is not one of the
    cluster's brokers. The inverse of `broker`. A name, unlike a label, is never edited."""
    number = stateful_set.removeprefix(f"{cluster}-broker-")
    known = number.isascii() and number.isdecimal() and len(number) < 10
    return int(number) if known and broker(cluster, int(number)) == stateful_set else None


def log_broker(cluster: str, broker_id: int) -> str:
    """Return the name of a broker's LogBroker."""
    return f"{cluster}-{broker_id}"


def broker_pod(cluster: str, broker_id: int) -> str:
    return f"{broker(cluster, broker_id)}-0"


def bootstrap_address(cluster: str, namespace: str, port: int = KAFKA_PORT) -> str:
    return f"{bootstrap_service(cluster)}.{namespace}.svc:{port}"
