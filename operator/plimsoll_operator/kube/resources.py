"""Kinds that this operator reads or writes, and their paths on the API server."""

from __future__ import annotations

import functools

import msgspec

from plimsoll_operator.api import GROUP, VERSION
from plimsoll_operator.api.labels import Manifest


class Kind(msgspec.Struct, frozen=True, kw_only=True):
    """An API resource."""

    api_version: str
    kind: str
    plural: str
    namespaced: bool = True

    def path(self, namespace: str | None = None, name: str | None = None) -> str:
        """Return the path of the collection, or of one object."""
        collection = _collection(
            self.api_version, self.plural, namespace if self.namespaced else None
        )
        return collection if name is None else f"{collection}/{name}"


@functools.lru_cache(maxsize=1_000)
def _collection(api_version: str, plural: str, namespace: str | None) -> str:
    root = "/api" if "/" not in api_version else "/apis"
    inside = "" if namespace is None else f"namespaces/{namespace}/"
    return f"{root}/{api_version}/{inside}{plural}"


def _user(kind: str, plural: str) -> Kind:
    return Kind(api_version=f"{GROUP}/{VERSION}", kind=kind, plural=plural)


def _core(kind: str, plural: str, *, namespaced: bool = True) -> Kind:
    return Kind(api_version="v1", kind=kind, plural=plural, namespaced=namespaced)


LOG_CLUSTERS = _user("LogCluster", "logclusters")
TOPICS = _user("Topic", "topics")
REASSIGNMENTS = _user("Reassignment", "reassignments")
REBALANCES = _user("Rebalance", "rebalances")
VERIFICATIONS = _user("Verification", "verifications")
USERS = _user("User", "users")
LOG_BROKERS = _user("LogBroker", "logbrokers")
PODS = _core("Pod", "pods")
CONFIG_MAPS = _core("ConfigMap", "configmaps")
SECRETS = _core("Secret", "secrets")
SERVICES = _core("Service", "services")
SERVICE_ACCOUNTS = _core("ServiceAccount", "serviceaccounts")
VOLUME_CLAIMS = _core("PersistentVolumeClaim", "persistentvolumeclaims")
NAMESPACES = _core("Namespace", "namespaces", namespaced=False)
NODES = _core("Node", "nodes", namespaced=False)
EVENTS = Kind(api_version="events.k8s.io/v1", kind="Event", plural="events")
CORE_EVENTS = _core("Event", "events")
STATEFUL_SETS = Kind(api_version="apps/v1", kind="StatefulSet", plural="statefulsets")
DISRUPTION_BUDGETS = Kind(
    api_version="policy/v1", kind="PodDisruptionBudget", plural="poddisruptionbudgets"
)
NETWORK_POLICIES = Kind(
    api_version="networking.k8s.io/v1", kind="NetworkPolicy", plural="networkpolicies"
)
POD_MONITORS = Kind(api_version="monitoring.coreos.com/v1", kind="PodMonitor", plural="podmonitors")
"""Of the Prometheus operator, if installed."""
CERTIFICATES = Kind(api_version="cert-manager.io/v1", kind="Certificate", plural="certificates")
"""Of cert-manager, if installed."""
TLS_ROUTES = Kind(api_version="gateway.networking.k8s.io/v1", kind="TLSRoute", plural="tlsroutes")
"""TLS routes of the Gateway API, if installed."""
TLS_ROUTE_KINDS = (
    TLS_ROUTES,
    *(
        msgspec.structs.replace(TLS_ROUTES, api_version=f"gateway.networking.k8s.io/{version}")
        for version in ("v1alpha3", "v1alpha2")
    ),
)
"""Versions of TLSRoute, newest first: v1 came with release 1.5 of the Gateway API."""
GATEWAYS = Kind(api_version="gateway.networking.k8s.io/v1", kind="Gateway", plural="gateways")
"""Gateways, which routes attach to."""
LEASES = Kind(api_version="coordination.k8s.io/v1", kind="Lease", plural="leases")
JOBS = Kind(api_version="batch/v1", kind="Job", plural="jobs")
ROLES = Kind(api_version="rbac.authorization.k8s.io/v1", kind="Role", plural="roles")
ROLE_BINDINGS = Kind(
    api_version="rbac.authorization.k8s.io/v1", kind="RoleBinding", plural="rolebindings"
)
CRDS = Kind(
    api_version="apiextensions.k8s.io/v1",
    kind="CustomResourceDefinition",
    plural="customresourcedefinitions",
    namespaced=False,
)
STORAGE_CLASSES = Kind(
    api_version="storage.k8s.io/v1", kind="StorageClass", plural="storageclasses", namespaced=False
)
VALIDATING_WEBHOOKS = Kind(
    api_version="admissionregistration.k8s.io/v1",
    kind="ValidatingWebhookConfiguration",
    plural="validatingwebhookconfigurations",
    namespaced=False,
)
MUTATING_WEBHOOKS = Kind(
    api_version="admissionregistration.k8s.io/v1",
    kind="MutatingWebhookConfiguration",
    plural="mutatingwebhookconfigurations",
    namespaced=False,
)
DEPLOYMENTS = Kind(api_version="apps/v1", kind="Deployment", plural="deployments")
ACCESS_REVIEWS = Kind(
    api_version="authorization.k8s.io/v1",
    kind="SelfSubjectAccessReview",
    plural="selfsubjectaccessreviews",
    namespaced=False,
)
TOKEN_REVIEWS = Kind(
    api_version="authentication.k8s.io/v1",
    kind="TokenReview",
    plural="tokenreviews",
    namespaced=False,
)
SUBJECT_REVIEWS = Kind(
    api_version="authorization.k8s.io/v1",
    kind="SubjectAccessReview",
    plural="subjectaccessreviews",
    namespaced=False,
)
METADATA_BATCHES = Kind(
    api_version=f"internal.{GROUP}/{VERSION}", kind="MetadataBatch", plural="metadatabatches"
)
METADATA_SNAPSHOTS = Kind(
    api_version=f"internal.{GROUP}/{VERSION}", kind="MetadataSnapshot", plural="metadatasnapshots"
)

USER_KINDS = (LOG_CLUSTERS, TOPICS, REASSIGNMENTS, REBALANCES, VERIFICATIONS, USERS)
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
)
_BY_VERSION = {(kind.api_version, kind.kind): kind for kind in _CHILDREN}


def kind_of(manifest: Manifest) -> Kind:
    """Return the kind of one of our own manifests."""
    return _BY_VERSION[manifest["apiVersion"], manifest["kind"]]
