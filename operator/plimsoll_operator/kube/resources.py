"""Kinds that this operator reads or writes, and their paths on the API server."""

from __future__ import annotations

import functools
from typing import Any

import msgspec

from plimsoll_operator.api import GROUP, VERSION
from plimsoll_operator.api.labels import Manifest


class Kind(msgspec.Struct, frozen=True, kw_only=True):
    """One kind of object on the API server, of this product or of Kubernetes."""

    api_version: str
    kind: str
    plural: str
    namespaced: bool = True

    def path(self, namespace: str | None = None, name: str | None = None) -> str:
        """Return the URL path of one object, or of all objects if `name` is None, in one namespace
        (None: in all)."""
        collection = _collection(
            self.api_version, self.plural, namespace if self.namespaced else None
        )
        return collection if name is None else f"{collection}/{name}"

    def manifest(self, metadata: Manifest, **fields: Any) -> Manifest:
        """Return an object of the kind with this metadata. `fields`: its other top-level fields,
        such as `spec`."""
        head = {"apiVersion": self.api_version, "kind": self.kind, "metadata": metadata}
        return head | fields


@functools.lru_cache(maxsize=1_000)
def _collection(api_version: str, plural: str, namespace: str | None) -> str:
    root = "/api" if "/" not in api_version else "/apis"
    inside = "" if namespace is None else f"namespaces/{namespace}/"
    return f"{root}/{api_version}/{inside}{plural}"


def _kind(api_version: str, kind: str, plural: str = "", *, namespaced: bool = True) -> Kind:
    """Return a kind. If `plural` is empty, it is the kind in lower case and an s."""
    plural = plural or f"{kind.lower()}s"
    return Kind(api_version=api_version, kind=kind, plural=plural, namespaced=namespaced)


_USERS = f"{GROUP}/{VERSION}"
_INTERNAL = f"internal.{_USERS}"
LOG_CLUSTERS = _kind(_USERS, "LogCluster")
TOPICS = _kind(_USERS, "Topic")
REASSIGNMENTS = _kind(_USERS, "Reassignment")
REBALANCES = _kind(_USERS, "Rebalance")
VERIFICATIONS = _kind(_USERS, "Verification")
VERIFICATION_SCHEDULES = _kind(_USERS, "VerificationSchedule")
USERS = _kind(_USERS, "User")
LOG_BROKERS = _kind(_USERS, "LogBroker")
PODS = _kind("v1", "Pod")
CONFIG_MAPS = _kind("v1", "ConfigMap")
SECRETS = _kind("v1", "Secret")
SERVICES = _kind("v1", "Service")
SERVICE_ACCOUNTS = _kind("v1", "ServiceAccount")
VOLUME_CLAIMS = _kind("v1", "PersistentVolumeClaim")
NAMESPACES = _kind("v1", "Namespace", namespaced=False)
NODES = _kind("v1", "Node", namespaced=False)
EVENTS = _kind("events.k8s.io/v1", "Event")
CORE_EVENTS = _kind("v1", "Event")
STATEFUL_SETS = _kind("apps/v1", "StatefulSet")
EVICTIONS = _kind("policy/v1", "Eviction")
DISRUPTION_BUDGETS = _kind("policy/v1", "PodDisruptionBudget")
NETWORK_POLICIES = _kind("networking.k8s.io/v1", "NetworkPolicy", "networkpolicies")
POD_MONITORS = _kind("monitoring.coreos.com/v1", "PodMonitor")
"""A kind of the Prometheus operator, which may not be installed."""
CERTIFICATES = _kind("cert-manager.io/v1", "Certificate")
"""A kind of cert-manager, which may not be installed."""
TLS_ROUTES = _kind("gateway.networking.k8s.io/v1", "TLSRoute")
"""A kind of the Gateway API, which may not be installed."""
TLS_ROUTE_KINDS = (
    TLS_ROUTES,
    *(
        msgspec.structs.replace(TLS_ROUTES, api_version=f"gateway.networking.k8s.io/{version}")
        for version in ("v1alpha3", "v1alpha2")
    ),
)
"""TLSRoute in each API version, newest first: v1 came with release 1.5 of the Gateway API."""
GATEWAYS = _kind("gateway.networking.k8s.io/v1", "Gateway")
"""The kind of the Gateway API to which TLSRoutes attach."""
LEASES = _kind("coordination.k8s.io/v1", "Lease")
JOBS = _kind("batch/v1", "Job")
ROLES = _kind("rbac.authorization.k8s.io/v1", "Role")
ROLE_BINDINGS = _kind("rbac.authorization.k8s.io/v1", "RoleBinding")
CRDS = _kind("apiextensions.k8s.io/v1", "CustomResourceDefinition", namespaced=False)
STORAGE_CLASSES = _kind("storage.k8s.io/v1", "StorageClass", "storageclasses", namespaced=False)
VALIDATING_WEBHOOKS = _kind(
    "admissionregistration.k8s.io/v1", "ValidatingWebhookConfiguration", namespaced=False
)
MUTATING_WEBHOOKS = _kind(
    "admissionregistration.k8s.io/v1", "MutatingWebhookConfiguration", namespaced=False
)
DEPLOYMENTS = _kind("apps/v1", "Deployment")
ACCESS_REVIEWS = _kind("authorization.k8s.io/v1", "SelfSubjectAccessReview", namespaced=False)
TOKEN_REVIEWS = _kind("authentication.k8s.io/v1", "TokenReview", namespaced=False)
SUBJECT_REVIEWS = _kind("authorization.k8s.io/v1", "SubjectAccessReview", namespaced=False)
METADATA_BATCHES = _kind(_INTERNAL, "MetadataBatch", "metadatabatches")
METADATA_SNAPSHOTS = _kind(_INTERNAL, "MetadataSnapshot")

USER_KINDS = (
    LOG_CLUSTERS,
    TOPICS,
    REASSIGNMENTS,
    REBALANCES,
    VERIFICATIONS,
    VERIFICATION_SCHEDULES,
    USERS,
)
"""Kinds that users apply."""
WATCHED_KINDS = (*USER_KINDS, LOG_BROKERS)
"""Kinds that the operator watches: those that users apply, and those it makes for users to read."""
RUN_ONCE = (REASSIGNMENTS, REBALANCES, VERIFICATIONS)
"""Kinds that are carried out once and then remain as a record."""
_CHILDREN = (
    CONFIG_MAPS,
    SERVICES,
    SERVICE_ACCOUNTS,
    STATEFUL_SETS,
    DISRUPTION_BUDGETS,
    NETWORK_POLICIES,
    POD_MONITORS,
    CERTIFICATES,
    *TLS_ROUTE_KINDS,
    JOBS,
    ROLES,
    ROLE_BINDINGS,
    SECRETS,
)
_BY_VERSION = {(kind.api_version, kind.kind): kind for kind in _CHILDREN}


def kind_of(manifest: Manifest) -> Kind:
    """Return the kind of a manifest that the operator has built. Raises KeyError for any other
    kind."""
    return _BY_VERSION[manifest["apiVersion"], manifest["kind"]]
