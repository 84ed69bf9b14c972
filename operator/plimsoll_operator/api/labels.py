"""Labels, annotations, names and ports of all objects that the operator makes, in one place:
selectors match them.

Labels of a user's object are never copied to its children.
"""

from __future__ import annotations

import hashlib
from typing import Any
from uuid import UUID

from plimsoll_operator.api import API_VERSION

CLUSTER = "plimsoll.dev/cluster"
CLUSTER_ID = "plimsoll.dev/cluster-id"
BROKER_ID = "plimsoll.dev/broker-id"
LOG_CLUSTER_ID = "internal.plimsoll.dev/cluster-id"
"""On each object of a metadata log: the whole cluster id, since the log outlives the cluster."""
WRITTEN_MS = "internal.plimsoll.dev/written-ms"
"""An annotation of a metadata log's slot: when its batch was written, by the writer's clock."""
LOG_PART = "internal.plimsoll.dev/part"
"""On an object of a snapshot: an index, or a chunk."""
ROTATE_INSIDE = "plimsoll.dev/rotate-internal-ca"
"""An annotation of a LogCluster: a new value requests the rotation of the internal authority."""
ROTATE_LISTENERS = "plimsoll.dev/rotate-listener-ca"
"""An annotation of a LogCluster: a new value takes the next step of the listener authority's
rotation now, instead of when it is due."""
ROTATE_CLIENTS = "plimsoll.dev/rotate-client-ca"
"""An annotation of a LogCluster: the same for the authority of clients."""
LISTENER = "plimsoll.dev/listener"
"""The listener's name, on its outside Services and routes and on its Certificate."""
LISTENER_COMPONENT = "listener"
AUTHORITY_OF = "plimsoll.dev/authority-of"
"""An annotation of an authority's Secret: <namespace>/<name> of its LogCluster."""
VERIFICATION = "plimsoll.dev/verification"
SCHEDULE = "plimsoll.dev/schedule"
"""On a Verification: the VerificationSchedule that started it."""
PAUSED_UNTIL = "plimsoll.dev/paused-until"
"""An annotation of a broker's pod that the kubelet of `plimsoll local` obeys: until then the
process stands still (SIGSTOP)."""
DUE_TIME = "plimsoll.dev/due-time"
"""An annotation of such a Verification: the time at which it was to start."""
EXECUTOR_OF = "plimsoll.dev/executor-of"
"""On a pod of a Spark executor: its Verification."""
EXECUTOR = "executor"
RPC_SECRET = "plimsoll.dev/rpc"
"""The type (not a label) of the Secret that a Verification's driver and executors share."""
PURPOSE = "plimsoll.dev/purpose"
USER_LOGIN = "plimsoll.dev/user"
"""The type (not a label) of a User's Secret."""
REVISION = "plimsoll.dev/revision"
"""On a broker's pod template: its own revision, so that a pod states what it runs."""
RESTART = "plimsoll.dev/restart"
"""On a LogCluster, by its owner: a new value restarts all brokers, one safe restart at a time."""
ACKNOWLEDGE = "plimsoll.dev/acknowledge-deletion"
"""On a LogCluster, by its owner: acknowledges the Topic objects that had disappeared by this
time."""
ACKNOWLEDGE_USERS = "plimsoll.dev/acknowledge-user-deletion"
"""On a LogCluster, by its owner, <namespace>@<time>, comma-separated: acknowledges the namespace's
User objects that had disappeared by then."""
WITHDRAWN = "plimsoll.dev/withdrawn"
"""On a broker's StatefulSet: the revision of the last restart that was granted and withdrawn."""
ADOPT = "plimsoll.dev/adopt"
"""On a Topic, by its owner: the id (status.topicId) of an undeclared topic that this object
declares from now on."""
TOPICS_CRD = "plimsoll.dev/topics-crd-uid"
"""An annotation of a cluster's Lease: the uid of the CRD under which its Topic objects count."""
USERS_CRD = "plimsoll.dev/users-crd-uid"
"""An annotation of a cluster's Lease: the uid of the CRD under which its User objects count."""
REPORTING_CONTROLLER = "plimsoll.dev/operator"
"""The reporting controller (not a label) of the operator's Events."""
VERSION = "app.kubernetes.io/version"
"""On a broker's pod: the release that it runs."""
VIEW_AUDIENCE = "plimsoll.dev/view"
"""The audience of tokens for the operator's HTTP view."""
VIEW_HEADER = "X-Plimsoll-Authorization"
"""The header with that token: the API server's proxy removes `Authorization`."""
NAME = "app.kubernetes.io/name"
COMPONENT = "app.kubernetes.io/component"
INSTANCE = "app.kubernetes.io/instance"
SCRAPER = "plimsoll.dev/scraper"
"""On a namespace: its pods may read brokers' metrics, if the chart names no readers."""
MANAGED_BY = "app.kubernetes.io/managed-by"
OPERATOR = "plimsoll-operator"

# Kubernetes' own, on nodes, namespaces, pods of a StatefulSet or a Job, and volume claims.
HOSTNAME = "kubernetes.io/hostname"
NAMESPACE_NAME = "kubernetes.io/metadata.name"
ZONE = "topology.kubernetes.io/zone"
OUT_OF_SERVICE = "node.kubernetes.io/out-of-service"
"""A taint: a person vouches that nothing runs on the node any more."""
POD_NAME = "statefulset.kubernetes.io/pod-name"
POD_INDEX = "apps.kubernetes.io/pod-index"
JOB_NAME = "batch.kubernetes.io/job-name"
JOB_UID = "batch.kubernetes.io/controller-uid"
DEFAULT_CLASS = "storageclass.kubernetes.io/is-default-class"
"""An annotation of a StorageClass: claims without a class get it."""
LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"
"""An annotation that `kubectl apply` leaves: a copy of the whole object."""
VOLUME_PROTECTION = "kubernetes.io/pvc-protection"
"""A finalizer: a volume claim stays while a pod uses it."""

TLS_SECRET = "plimsoll.dev/tls"
"""The type of Secrets with certificates."""

KAFKA_PORT = 9092
REPLICATION_PORT = 9091
METRICS_PORT = 9100
HEALTH_PORT = 9101
API_SERVER_PORTS = (443, 6443)
"""The usual ports of API servers behind their Service."""
CONTROLLER_PORT = 9093

USER_ID = 10001

NAME_MAX = 253
"""Bound on the characters of an object's name."""
DIGEST_CHARACTERS = 10

Manifest = dict[str, Any]


def derived_name(name: str, suffix: str) -> str:
    """Return the name of an object that is made for another one: a digest replaces the end of a
    long name, so that no two objects share one."""
    whole = f"{name}{suffix}"
    if len(whole) <= NAME_MAX:
        return whole
    end = f"-{hashlib.sha256(name.encode()).hexdigest()[:DIGEST_CHARACTERS]}{suffix}"
    return name[: NAME_MAX - len(end)].rstrip("-.") + end


def short_id(cluster_id: UUID) -> str:
    """Return the cluster id in names and labels: its first 12 hex digits."""
    return cluster_id.hex[:12]


def selector(cluster: str) -> dict[str, str]:
    """Return the labels that select a cluster's broker pods."""
    return {CLUSTER: cluster, COMPONENT: "broker"}


def labels(cluster: str, cluster_id: UUID, component: str) -> dict[str, str]:
    """Return the labels of a cluster's child."""
    return {
        NAME: "plimsoll",
        INSTANCE: cluster,
        COMPONENT: component,
        MANAGED_BY: OPERATOR,
        CLUSTER: cluster,
        CLUSTER_ID: short_id(cluster_id),
    }


def owner(kind: str, name: str, uid: str) -> list[Manifest]:
    """Return the ownerReference that makes the garbage collector remove a child after its owner.

    `blockOwnerDeletion` stays off: the operator's objects must not delay a deletion.
    """
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
    """Return the headless Service that gives every broker pod its DNS name."""
    return f"{cluster}-brokers"


def bootstrap_service(cluster: str) -> str:
    """Return the Service that clients connect to first."""
    return f"{cluster}-bootstrap"


def external_service(cluster: str, listener: str, broker_id: int | None) -> str:
    """Return a listener's Service for clients outside, and its route: a broker's, or the bootstrap
    one."""
    whose = bootstrap_service(cluster) if broker_id is None else broker(cluster, broker_id)
    return f"{whose}-{listener}"


def listener_certificate(cluster: str, listener: str) -> str:
    """Return the Certificate of a listener, and the Secret that cert-manager fills."""
    return f"{cluster}-listener-{listener}"


def broker_tls(cluster: str, broker_id: int) -> str:
    """Return the Secret of a broker's certificates and keys."""
    return f"{broker(cluster, broker_id)}-tls"


def listener_authority(cluster_id: UUID) -> str:
    """Return the Secret, in the operator's namespace, of the authority of listeners."""
    return f"plimsoll-{short_id(cluster_id)}-listener-ca"


def inside_authority(cluster_id: UUID) -> str:
    """Return the Secret, in the operator's namespace, of the internal authority, which signs
    certificates of brokers and controllers."""
    return f"plimsoll-{short_id(cluster_id)}-internal-ca"


def client_authority(cluster_id: UUID) -> str:
    """Return the Secret, in the operator's namespace, of the authority that signs users'
    certificates."""
    return f"plimsoll-{short_id(cluster_id)}-client-ca"


def listener_authority_map(cluster: str) -> str:
    """Return the ConfigMap of the authorities that clients must trust."""
    return f"{cluster}-listener-ca"


def config_map(cluster: str, content: str) -> str:
    return f"{cluster}-broker-config-{content}"


def service_account(cluster: str) -> str:
    return f"{cluster}-broker"


def broker(cluster: str, broker_id: int) -> str:
    """Return a broker's StatefulSet."""
    return f"{cluster}-broker-{broker_id}"


def broker_of(cluster: str, stateful_set: str) -> int | None:
    """Invert `broker`: a name, unlike a label, is never edited. None if it is not a broker's."""
    number = stateful_set.removeprefix(f"{cluster}-broker-")
    known = number.isascii() and number.isdecimal() and len(number) < 10
    return int(number) if known and broker(cluster, int(number)) == stateful_set else None


def log_broker(cluster: str, broker_id: int) -> str:
    """Return a broker's LogBroker."""
    return f"{cluster}-{broker_id}"


def broker_pod(cluster: str, broker_id: int) -> str:
    return f"{broker(cluster, broker_id)}-0"


def bootstrap_address(cluster: str, namespace: str, port: int = KAFKA_PORT) -> str:
    return f"{bootstrap_service(cluster)}.{namespace}.svc:{port}"
