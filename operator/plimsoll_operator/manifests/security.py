"""The restricted security contexts of every pod made here, and what its images are pulled with.

OpenShift's `restricted-v2` gives each namespace users and groups of its own and refuses a pod that
states others: there the chart's `podSecurity.setUser` is false.
"""

from __future__ import annotations

from plimsoll_operator.api.labels import USER_ID, Manifest

USER_FIELDS = ("runAsUser", "runAsGroup", "fsGroup")


def pod_security(*, set_user: bool) -> Manifest:
    """Not root, and the volume belongs to the group: ours, else the one that the cluster sets."""
    own: Manifest = dict.fromkeys(USER_FIELDS, USER_ID) if set_user else {}
    return {
        "runAsNonRoot": True,
        **own,
        # Without it a large volume is walked file by file at every start.
        "fsGroupChangePolicy": "OnRootMismatch",
        "seccompProfile": {"type": "RuntimeDefault"},
    }


def pull_secrets(names: tuple[str, ...]) -> Manifest:
    """The pod's field that names them; none without any, lest a template change."""
    return {"imagePullSecrets": [{"name": name} for name in names]} if names else {}


def container_security() -> Manifest:
    """No capabilities, no way to gain any, nothing writable but what is mounted."""
    return {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
