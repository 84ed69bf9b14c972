"""Builds one StatefulSet with one replica for each broker, so that any broker can be removed, and a
deleted pod is recreated.

With the update strategy `OnDelete`, a changed template reaches no pod until the operator deletes
the pod, for which it needs a grant. After its creation a template is written only while its broker
has a grant: a pod that a node drain evicted must not return with an untried image. Security
contexts are restricted. OpenShift's `restricted-v2` assigns users and groups to each namespace and
refuses a pod that states others; there the chart's `podSecurity.setUser` is false.
"""

from __future__ import annotations

from typing import Any

import msgspec

from plimsoll_operator.api import labels
from plimsoll_operator.api.labels import USER_ID, Manifest
from plimsoll_operator.api.logcluster import Brokers
from plimsoll_operator.api.pod_template import (
    BROKER_CONTAINER,
    GRACE_SECONDS,
    PodTemplate,
    PodTemplateSpec,
)
from plimsoll_operator.kube.resources import STATEFUL_SETS, VOLUME_CLAIMS
from plimsoll_operator.manifests.configmap import DATA, DIRECTORY, FILE, config_map_name
from plimsoll_operator.manifests.listener_secrets import DIRECTORY as TLS_DIRECTORY
from plimsoll_operator.manifests.manifest_context import Context, digest, once_for_a_context

USER_FIELDS = ("runAsUser", "runAsGroup", "fsGroup")


def pod_security(*, set_user: bool) -> Manifest:
    """Return the securityContext of a pod, which forbids root. `set_user`: True: the pod runs as
    the product's user and group; False: as those that the platform assigns."""
    own: Manifest = dict.fromkeys(USER_FIELDS, USER_ID) if set_user else {}
    return {
        "runAsNonRoot": True,
        **own,
        # Otherwise the kubelet changes the owner of every file at each start.
        "fsGroupChangePolicy": "OnRootMismatch",
        "seccompProfile": {"type": "RuntimeDefault"},
    }


def pull_secrets(names: tuple[str, ...]) -> Manifest:
    """Return the pod's field `imagePullSecrets`. Without names return {}, so that the template, and
    thus its revision, is that of earlier releases."""
    return {"imagePullSecrets": [{"name": name} for name in names]} if names else {}


def container_security() -> Manifest:
    """Return the securityContext of a container: no capabilities, no privilege escalation, and a
    read-only root file system."""
    return {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }


CONTAINER = BROKER_CONTAINER
RESOURCES_DEFAULT: Manifest = {
    "requests": {"cpu": "100m", "memory": "256Mi"},
    "limits": {"memory": "1Gi"},
}


def stateful_set(context: Context, broker_id: int, replicas: int = 1) -> Manifest:
    """Build the StatefulSet of a broker. `replicas`: 0 if the broker must not run."""
    name, pool = labels.broker(context.name, broker_id), _pool_label(context, broker_id)
    context = context.of_broker(broker_id)
    metadata = context.metadata(name)
    metadata["labels"] |= {labels.BROKER_ID: str(broker_id), **pool}
    spec: dict[str, Any] = {
        "replicas": replicas,
        "serviceName": labels.brokers_service(context.name),
        "podManagementPolicy": "Parallel",
        "updateStrategy": {"type": "OnDelete"},
        "revisionHistoryLimit": 2,
        "persistentVolumeClaimRetentionPolicy": {"whenDeleted": "Retain", "whenScaled": "Retain"},
        "selector": {
            "matchLabels": labels.selector(context.name) | {labels.BROKER_ID: str(broker_id)}
        },
        "template": _template(context, broker_id),
        "volumeClaimTemplates": [_volume_claim(context, broker_id, pool)],
    }
    return STATEFUL_SETS.manifest(metadata, spec=spec)


@once_for_a_context
def revision(context: Context) -> str:
    """Return the digest of the pod template that the brokers of a context should run. All brokers
    of a pool have the same revision: it is computed for broker 0, and templates differ only by what
    follows from the id."""
    return digest(_bare_template(context, 0))


def _template(context: Context, broker_id: int) -> Manifest:
    """Build the pod template of a broker. An annotation and an environment variable state its
    revision."""
    template = _bare_template(context, broker_id)
    name = revision(context)
    template["metadata"].setdefault("annotations", {})[labels.REVISION] = name
    broker = template["spec"]["containers"][0]
    broker["env"] = [*broker["env"], {"name": "PLIMSOLL_REVISION", "value": name}]
    return template


def _bare_template(context: Context, broker_id: int) -> Manifest:
    added = _added(context)
    meta = added.metadata
    own = labels.labels(context.name, context.cluster_id, "broker")
    own |= {labels.BROKER_ID: str(broker_id), labels.VERSION: context.version}
    metadata: Manifest = {"labels": ((meta.labels if meta else None) or {}) | own}
    annotations = dict((meta.annotations if meta else None) or {})
    if restart := context.cluster.metadata.annotations.get(labels.RESTART):
        annotations[labels.RESTART] = restart
    if annotations:
        metadata["annotations"] = annotations
    pod = _pod(context, broker_id)
    if added.spec:
        _add(pod, added.spec)
    return {"metadata": metadata, "spec": pod}


ADDED_LISTS = ("env", "volumes", "volumeMounts", "containers", "initContainers")
"""Fields of the user's template that are appended to the pod's; the others replace the pod's."""


def _add(pod: Manifest, added: PodTemplateSpec) -> None:
    """Add the user's part of the pod template to the pod. The broker's container stays first."""
    stated: Manifest = msgspec.to_builtins(added)
    lists = {name: stated.pop(name, []) for name in ADDED_LISTS}
    pod |= stated
    (broker,) = pod["containers"]
    broker["env"] = [*broker["env"], *lists["env"]]
    broker["volumeMounts"] = [*broker["volumeMounts"], *lists["volumeMounts"]]
    pod["volumes"] = [*pod["volumes"], *lists["volumes"]]
    pod["containers"] = [broker, *map(_restricted, lists["containers"])]
    if lists["initContainers"]:
        pod["initContainers"] = [*map(_restricted, lists["initContainers"])]


def _restricted(container: Manifest) -> Manifest:
    """Return the user's container with a securityContext that Pod Security calls restricted, as far
    as it states none itself. Its root file system stays writable."""
    own = {key: value for key, value in container_security().items() if key in RESTRICTED}
    return {**container, "securityContext": own | container.get("securityContext", {})}


RESTRICTED = ("allowPrivilegeEscalation", "capabilities")


def _added(context: Context) -> PodTemplate:
    brokers = context.cluster.spec.brokers
    return (brokers.template if brokers else None) or PodTemplate()


def _pod(context: Context, broker_id: int) -> Manifest:
    return {
        "serviceAccountName": labels.service_account(context.name),
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        # A drill kills the broker from another container; otherwise processes stay hidden.
        "shareProcessNamespace": _drills(context),
        "terminationGracePeriodSeconds": GRACE_SECONDS,
        **pull_secrets(context.image_pull_secrets),
        "securityContext": pod_security(set_user=context.set_user),
        "affinity": _spread(context),
        "containers": [_container(context, broker_id)],
        "volumes": [
            {"name": "config", "configMap": {"name": config_map_name(context)}},
            {"name": "tls", "secret": _certificates(context, broker_id)},
            {"name": "tmp", "emptyDir": {"sizeLimit": "64Mi"}},
        ],
    }


def _drills(context: Context) -> bool:
    maintenance = context.cluster.spec.maintenance
    return bool(maintenance and maintenance.allow_drills)


def _certificates(context: Context, broker_id: int) -> Manifest:
    """Return the volume source of the broker's certificates. It is optional, since a cluster may
    have none."""
    return {
        "secretName": labels.broker_tls(context.name, broker_id),
        "optional": True,
        "defaultMode": 0o440,
    }


def _spread(context: Context) -> Manifest:
    """Return an affinity that prefers a node of its own for each broker, but lets them share
    nodes."""
    term = {
        "topologyKey": labels.HOSTNAME,
        "labelSelector": {"matchLabels": labels.selector(context.name)},
    }
    return {
        "podAntiAffinity": {
            "preferredDuringSchedulingIgnoredDuringExecution": [
                {"weight": 100, "podAffinityTerm": term}
            ]
        }
    }


def _container(context: Context, broker_id: int) -> Manifest:
    host = (
        f"{labels.broker_pod(context.name, broker_id)}."
        f"{labels.brokers_service(context.name)}.{context.namespace}.svc"
    )
    brokers = context.cluster.spec.brokers or Brokers()
    resources = msgspec.to_builtins(brokers.resources) if brokers.resources else RESOURCES_DEFAULT
    return {
        "name": CONTAINER,
        "image": context.cluster.spec.image or context.broker_image,
        "imagePullPolicy": context.image_pull_policy,
        "args": ["--config", f"{DIRECTORY}/{FILE}"],
        "env": [
            {"name": "PLIMSOLL_BROKER_ID", "value": str(broker_id)},
            {"name": "PLIMSOLL_ADVERTISED_HOST", "value": host},
            {
                "name": "PLIMSOLL_POD_UID",
                "valueFrom": {"fieldRef": {"fieldPath": "metadata.uid"}},
            },
            *([{"name": "PLIMSOLL_ALLOW_DRILLS", "value": "true"}] if _drills(context) else []),
        ],
        "ports": [
            {"name": "kafka", "containerPort": labels.KAFKA_PORT, "protocol": "TCP"},
            {
                "name": "replication",
                "containerPort": labels.REPLICATION_PORT,
                "protocol": "TCP",
            },
            {"name": "metrics", "containerPort": labels.METRICS_PORT, "protocol": "TCP"},
            {"name": "health", "containerPort": labels.HEALTH_PORT, "protocol": "TCP"},
        ],
        # No liveness probe: a kubelet cannot tell a hung broker from one without processor time,
        # and would restart all brokers of a busy node at once.  A hung one ends by itself
        # (`plimsoll_process.hang_watch`).
        "readinessProbe": _probe("/readyz", period=2, failures=2),
        "resources": resources,
        "securityContext": container_security(),
        "volumeMounts": [
            {"name": "data", "mountPath": DATA},
            {"name": "config", "mountPath": DIRECTORY, "readOnly": True},
            {"name": "tls", "mountPath": TLS_DIRECTORY, "readOnly": True},
            {"name": "tmp", "mountPath": "/tmp"},
        ],
    }


def _probe(path: str, *, period: int, failures: int) -> Manifest:
    return {
        "httpGet": {"path": path, "port": "health"},
        "periodSeconds": period,
        "timeoutSeconds": 2,
        "failureThreshold": failures,
    }


def _pool_label(context: Context, broker_id: int) -> dict[str, str]:
    pool = context.cluster.pool_of(broker_id)
    return {} if pool is None else {labels.POOL: pool.name}


def claim_metadata(context: Context, broker_id: int) -> Manifest:
    """Return the labels and annotations of the broker's volume claim."""
    return _claim_metadata(context.of_broker(broker_id), broker_id, _pool_label(context, broker_id))


def _claim_metadata(context: Context, broker_id: int, pool: dict[str, str]) -> Manifest:
    added = _added(context).volume_claim_metadata
    own = labels.labels(context.name, context.cluster_id, "broker")
    own |= {labels.BROKER_ID: str(broker_id), **pool}
    found: Manifest = {"labels": ((added.labels if added else None) or {}) | own}
    if added and added.annotations:
        found["annotations"] = dict(added.annotations)
    return found


def _volume_claim(context: Context, broker_id: int, pool: dict[str, str]) -> Manifest:
    storage = context.cluster.spec.storage
    spec: Manifest = {
        "accessModes": ["ReadWriteOncePod"],
        "resources": {"requests": {"storage": storage.size}},
    }
    if storage.storage_class_name:
        spec["storageClassName"] = storage.storage_class_name
    metadata = {"name": "data", **_claim_metadata(context, broker_id, pool)}
    return VOLUME_CLAIMS.manifest(metadata, spec=spec)
