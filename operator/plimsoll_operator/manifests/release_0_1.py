"""Builds brokers' pods and configuration exactly as release 0.1 made them, to the byte.

A cluster keeps `spec.version: "0.1"` until its owner changes it, whichever operator runs. So the
template of its pods must still be built, and 0.1 refuses a configuration with unknown keys. Nothing
here is ever improved; it is removed with the support of 0.1. Called by `statefulset` and
`configmap`.
"""

from __future__ import annotations

from typing import Any

import msgspec

from plimsoll_operator.api import labels
from plimsoll_operator.api.labels import Manifest
from plimsoll_operator.api.logcluster import Brokers, PodTemplate
from plimsoll_operator.manifests.manifest_context import Context

RELEASE = "0.1"
RESOURCES: Manifest = {
    "requests": {"cpu": "100m", "memory": "256Mi"},
    "limits": {"memory": "1Gi"},
}


def broker_config(context: Context, configs: dict[str, str]) -> dict[str, Any]:
    """Return the content of broker.json. `configs`: broker configs by their Kafka names."""
    config: dict[str, Any] = {
        "cluster_id": str(context.cluster_id),
        "data_dir": "/var/lib/plimsoll/log",
        "listen": {"host": "0.0.0.0", "port": 9092},
        "controllers": list(context.controllers),
        "metrics": {"host": "0.0.0.0", "port": 9100},
        "configs": configs,
    }
    if context.cluster.on_controller_loss != "KeepServing":
        config["on_controller_loss"] = context.cluster.on_controller_loss
    return config


def template(context: Context, broker_id: int, config_map: str) -> Manifest:
    """Build the pods' template, without its revision. `config_map`: the name of the
    configuration."""
    brokers = context.cluster.spec.brokers
    added = (brokers.template if brokers else None) or PodTemplate()
    meta = added.metadata
    own = labels.labels(context.name, context.cluster_id, "broker")
    own[labels.BROKER_ID] = str(broker_id)
    metadata: Manifest = {"labels": ((meta.labels if meta else None) or {}) | own}
    annotations = dict((meta.annotations if meta else None) or {})
    if restart := context.cluster.metadata.annotations.get(labels.RESTART):
        annotations[labels.RESTART] = restart
    if annotations:
        metadata["annotations"] = annotations
    extra = msgspec.to_builtins(added.spec) if added.spec else {}
    return {"metadata": metadata, "spec": _pod(context, broker_id, config_map) | extra}


def _pod(context: Context, broker_id: int, config_map: str) -> Manifest:
    anti_affinity = {
        "topologyKey": labels.HOSTNAME,
        "labelSelector": {"matchLabels": labels.selector(context.name)},
    }
    return {
        "serviceAccountName": labels.service_account(context.name),
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "shareProcessNamespace": True,
        "terminationGracePeriodSeconds": 40,
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": 10001,
            "runAsGroup": 10001,
            "fsGroup": 10001,
            "fsGroupChangePolicy": "OnRootMismatch",
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "affinity": {
            "podAntiAffinity": {
                "preferredDuringSchedulingIgnoredDuringExecution": [
                    {"weight": 100, "podAffinityTerm": anti_affinity}
                ]
            }
        },
        "containers": [_container(context, broker_id)],
        "volumes": [
            {"name": "config", "configMap": {"name": config_map}},
            {"name": "tmp", "emptyDir": {"sizeLimit": "64Mi"}},
        ],
    }


def _container(context: Context, broker_id: int) -> Manifest:
    host = (
        f"{labels.broker_pod(context.name, broker_id)}."
        f"{labels.brokers_service(context.name)}.{context.namespace}.svc"
    )
    brokers = context.cluster.spec.brokers or Brokers()
    return {
        "name": "broker",
        "image": context.cluster.spec.image or context.broker_image,
        "imagePullPolicy": context.image_pull_policy,
        "args": ["--config", "/etc/plimsoll/broker.json"],
        "env": [
            {"name": "PLIMSOLL_BROKER_ID", "value": str(broker_id)},
            {"name": "PLIMSOLL_ADVERTISED_HOST", "value": host},
            {
                "name": "PLIMSOLL_POD_UID",
                "valueFrom": {"fieldRef": {"fieldPath": "metadata.uid"}},
            },
        ],
        "ports": [
            {"name": "kafka", "containerPort": 9092, "protocol": "TCP"},
            {"name": "metrics", "containerPort": 9100, "protocol": "TCP"},
        ],
        "startupProbe": _probe("/healthz", period=2, failures=300),
        "livenessProbe": _probe("/healthz", period=10, failures=6),
        "readinessProbe": _probe("/readyz", period=2, failures=2),
        "resources": msgspec.to_builtins(brokers.resources) if brokers.resources else RESOURCES,
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        },
        "volumeMounts": [
            {"name": "data", "mountPath": "/var/lib/plimsoll"},
            {"name": "config", "mountPath": "/etc/plimsoll", "readOnly": True},
            {"name": "tmp", "mountPath": "/tmp"},
        ],
    }


def _probe(path: str, *, period: int, failures: int) -> Manifest:
    return {
        "httpGet": {"path": path, "port": "metrics"},
        "periodSeconds": period,
        "timeoutSeconds": 2,
        "failureThreshold": failures,
    }
