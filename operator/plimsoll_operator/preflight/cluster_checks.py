"""Checks Kubernetes' version, its volumes, and priority and fairness of the operator's requests.

Pure. Called by `checklist`.
"""

from __future__ import annotations

import re

from plimsoll_operator.preflight.facts import NotRead, StorageClass, Verdict
from plimsoll_operator.preflight.unread_facts import unread

MINOR_MIN = 30
"""The oldest minor version of Kubernetes 1, as in the chart's `kubeVersion`."""
BINDING = "WaitForFirstConsumer"

VERSION = "kubernetes-version"
STORAGE = "storage-class"
FAIRNESS = "priority-and-fairness"


def version(found: str | NotRead) -> Verdict:
    """`found`: as the API server's `/version` reports it, `v1.31.4-eks-1`."""
    if isinstance(found, NotRead):
        return unread(VERSION, found)
    parts = re.match(r"v?(\d+)\.(\d+)", found)
    if parts is None:
        text = f"The API server reports version {found!r}; Plimsoll needs 1.{MINOR_MIN} or later."
        return Verdict(check=VERSION, result="warning", message=text)
    if (int(parts[1]), int(parts[2])) < (1, MINOR_MIN):
        text = f"Kubernetes is {found}; upgrade it to 1.{MINOR_MIN} or later."
        return Verdict(check=VERSION, result="failed", message=text)
    return Verdict(check=VERSION, result="ok", message=f"Kubernetes is {found}.")


def storage(found: tuple[StorageClass, ...] | NotRead, wanted: str) -> Verdict:
    """`wanted`: the StorageClass that LogClusters will name; empty: the default one."""
    if isinstance(found, NotRead):
        return unread(STORAGE, found)
    chosen = _chosen(found, wanted)
    if isinstance(chosen, str):
        return Verdict(check=STORAGE, result="failed", message=chosen)
    grows = "can grow later" if chosen.expandable else "cannot grow later (allowVolumeExpansion)"
    default = " (the default one)" if chosen.is_default else ""
    text = f"StorageClass {chosen.name}{default}: {chosen.binding_mode}; volumes {grows}."
    if chosen.binding_mode == BINDING:
        return Verdict(check=STORAGE, result="ok", message=text)
    text += (
        " Volumes are provisioned before their pods are scheduled: brokers may end up in one "
        f"zone or stay unschedulable. Use a class with volumeBindingMode {BINDING}."
    )
    return Verdict(check=STORAGE, result="warning", message=text)


def _chosen(found: tuple[StorageClass, ...], wanted: str) -> StorageClass | str:
    """Return the class, or the sentence that says why there is none."""
    if not found:
        return "There is no StorageClass, so brokers cannot get volumes: install a CSI driver."
    names = ", ".join(sorted(one.name for one in found))
    if wanted:
        named = [one for one in found if one.name == wanted]
        return named[0] if named else f"StorageClass {wanted} does not exist; available: {names}."
    defaults = [one for one in found if one.is_default]
    if defaults:
        return max(defaults, key=lambda one: (one.created, one.name))
    return (
        f"No StorageClass is the default; available: {names}. Select one with --storage-class, "
        "and set spec.storage.storageClassName in each LogCluster."
    )


def fairness(served: bool | NotRead) -> Verdict:
    """`served`: True if the API server serves flowcontrol.apiserver.k8s.io/v1."""
    if isinstance(served, NotRead):
        return unread(FAIRNESS, served)
    if served:
        text = (
            "The API server serves FlowSchemas: Leases and the metadata log get a priority "
            "level of their own."
        )
        return Verdict(check=FAIRNESS, result="ok", message=text)
    text = (
        "The API server does not serve flowcontrol.apiserver.k8s.io/v1, so the chart's FlowSchema"
        " cannot be made. Enable API Priority and Fairness; or, here and in the chart, set"
        " priorityAndFairness.enabled=false: then a busy API server delays Lease renewals too."
    )
    return Verdict(check=FAIRNESS, result="failed", message=text)
