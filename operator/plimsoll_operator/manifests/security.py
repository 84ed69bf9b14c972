"""Builds the restricted security contexts of the operator's pods, and their image pull secrets.

OpenShift's `restricted-v2` assigns users and groups to each namespace and refuses a pod that states
others. There the chart's `podSecurity.setUser` is false.
"""

from __future__ import annotations

from plimsoll_operator.api.labels import USER_ID, Manifest

USER_FIELDS = ("runAsUser", "runAsGroup", "fsGroup")


def pod_security(*, set_user: bool) -> Manifest:
    """Return a context that forbids root. The volume belongs to the product's group, or to the one
    that the cluster assigns."""
    own: Manifest = dict.fromkeys(USER_FIELDS, USER_ID) if set_user else {}
    return {
        "runAsNonRoot": True,
        **own,
        # Otherwise the kubelet changes the owner of every file at each start.
        "fsGroupChangePolicy": "OnRootMismatch",
        "seccompProfile": {"type": "RuntimeDefault"},
    }


def pull_secrets(names: tuple[str, ...]) -> Manifest:
    """Return the pod's field; empty without names, so that templates do not change."""
    return {"imagePullSecrets": [{"name": name} for name in names]} if names else {}


def container_security() -> Manifest:
    """Return a context without capabilities, privilege escalation, or a writable root file
    system."""
    return {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
