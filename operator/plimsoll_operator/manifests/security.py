"""The restricted security contexts of every pod made here."""

from __future__ import annotations

from plimsoll_operator.api.labels import USER_ID, Manifest


def pod_security() -> Manifest:
    """Not root, and the volume belongs to the group."""
    return {
        "runAsNonRoot": True,
        "runAsUser": USER_ID,
        "runAsGroup": USER_ID,
        "fsGroup": USER_ID,
        # Without it a large volume is walked file by file at every start.
        "fsGroupChangePolicy": "OnRootMismatch",
        "seccompProfile": {"type": "RuntimeDefault"},
    }


def container_security() -> Manifest:
    """No capabilities, no way to gain any, nothing writable but what is mounted."""
    return {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
