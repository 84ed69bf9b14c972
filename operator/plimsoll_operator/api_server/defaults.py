"""Defaults that the API server sets in built-in kinds, as far as the operator sees them.

A reconciler that compares a manifest with the stored object must know them. Defaults of pods,
StatefulSets and Services are set, those of other kinds are not. Source: kubernetes
`pkg/apis/{core,apps}/v1/defaults.go`, release 1.34.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from plimsoll_operator.kube.kube_api import Object
from plimsoll_operator.kube.resources import (
    PODS,
    SERVICES,
    STATEFUL_SETS,
    VOLUME_CLAIMS,
    Kind,
)

_POD_SPEC: Object = {
    "restartPolicy": "Always",
    "dnsPolicy": "ClusterFirst",
    "schedulerName": "default-scheduler",
    "securityContext": {},
    "terminationGracePeriodSeconds": 30,
}
_CONTAINER: Object = {
    "terminationMessagePath": "/dev/termination-log",
    "terminationMessagePolicy": "File",
    "imagePullPolicy": "IfNotPresent",
    "resources": {},
}
_PROBE: Object = {
    "timeoutSeconds": 1,
    "periodSeconds": 10,
    "successThreshold": 1,
    "failureThreshold": 3,
}
_PROBES = ("livenessProbe", "readinessProbe", "startupProbe")
_SERVICE: Object = {
    "type": "ClusterIP",
    "sessionAffinity": "None",
    "internalTrafficPolicy": "Cluster",
}
_SET: Object = {
    "podManagementPolicy": "OrderedReady",
    "replicas": 1,
    "revisionHistoryLimit": 10,
    "persistentVolumeClaimRetentionPolicy": {"whenDeleted": "Retain", "whenScaled": "Retain"},
    "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"partition": 0}},
}


def with_defaults(kind: Kind, body: Object) -> Object:
    """Return a copy of the body with the defaults that a real API server adds. Return the body
    itself if it has no spec, or if this module has no defaults for the kind."""
    add = _BY_KIND.get(kind)
    if add is None or not isinstance(body.get("spec"), dict):
        return body
    return {**body, "spec": add(body["spec"])}


def _service(spec: Object) -> Object:
    ports = [
        {"protocol": "TCP", "targetPort": port.get("port"), **port}
        for port in spec.get("ports", ())
    ]
    return {**_SERVICE, **spec, **({"ports": ports} if ports else {})}


def _stateful_set(spec: Object) -> Object:
    out = {**_SET, **spec}
    template = spec.get("template")
    if isinstance(template, dict) and isinstance(template.get("spec"), dict):
        out["template"] = {**template, "spec": _pod(template["spec"])}
    claims = spec.get("volumeClaimTemplates")
    if claims:
        out["volumeClaimTemplates"] = [
            {**claim, "spec": _claim(claim["spec"]), "status": {"phase": "Pending"}}
            for claim in claims
        ]
    return out


def _claim(spec: Object) -> Object:
    return {"volumeMode": "Filesystem", **spec}


def _pod(spec: Object) -> Object:
    out = {**_POD_SPEC, **spec}
    for part in ("containers", "initContainers"):
        if part in spec:
            out[part] = [_container(one) for one in spec[part]]
    if "volumes" in spec:
        out["volumes"] = [_volume(one) for one in spec["volumes"]]
    if "serviceAccountName" in spec:
        out["serviceAccount"] = spec["serviceAccountName"]
    return out


def _container(container: Object) -> Object:
    out = {**_CONTAINER, **container}
    for name in _PROBES:
        if name in container:
            out[name] = _probe(container[name])
    if "ports" in container:
        out["ports"] = [{"protocol": "TCP", **port} for port in container["ports"]]
    if "env" in container:
        out["env"] = [_variable(one) for one in container["env"]]
    return out


def _probe(probe: Object) -> Object:
    out = {**_PROBE, **probe}
    if "httpGet" in probe:
        out["httpGet"] = {"scheme": "HTTP", **probe["httpGet"]}
    return out


def _variable(variable: Object) -> Object:
    source = variable.get("valueFrom") or {}
    if "fieldRef" not in source:
        return variable
    return {**variable, "valueFrom": {"fieldRef": {"apiVersion": "v1", **source["fieldRef"]}}}


def _volume(volume: Object) -> Object:
    out: dict[str, Any] = dict(volume)
    for name in ("configMap", "secret"):
        if isinstance(volume.get(name), dict):
            out[name] = {"defaultMode": 0o644, **volume[name]}
    return out


_BY_KIND: dict[Kind, Callable[[Object], Object]] = {
    PODS: _pod,
    SERVICES: _service,
    STATEFUL_SETS: _stateful_set,
    VOLUME_CLAIMS: _claim,
}
