"""The checks of `plimsoll preflight`: each judges one fact. Pure.

A fact that could not be read is a warning if the caller may not see it, else a failure. The caller
must hold every right of the operator: Kubernetes lets users grant by a role only rights that they
hold. A webhook with failurePolicy Fail that intercepts Leases or the metadata log leaves a cluster
without a controller while the webhook is down; `matchConditions` and object selectors are not
evaluated, so a webhook that has them is named although it may not intercept the request. Every
change of a partition's leader or ISR waits for one write to etcd, so its latency is measured.
Called by `checklist`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping

from plimsoll_operator.api.selectors import matches
from plimsoll_operator.kube.resources import METADATA_BATCHES, METADATA_SNAPSHOTS, WATCHED_KINDS
from plimsoll_operator.preflight.facts import (
    Appends,
    NotRead,
    OperatorPods,
    PermissionAnswer,
    StorageClass,
    Verdict,
    Webhook,
    WebhookRule,
    Webhooks,
)
from plimsoll_operator.preflight.rights import RIGHTS


def unread(check: str, found: NotRead) -> Verdict:
    """Return the verdict of a check for which the fact could not be read: a warning if the API
    server refused to show the fact, a failure if it did not answer."""
    if found.refused:
        return Verdict(
            check=check,
            result="warning",
            message=(
                "This check was not made, because the API server refused to show what it needs: "
                f"{found.message}."
            ),
        )
    text = (
        f"The API server is unreachable: {found.message}. Repeat the check when the API server "
        "responds."
    )
    return Verdict(check=check, result="failed", message=text)


MINOR_MIN = 30
"""The oldest supported minor version of Kubernetes 1, also in the chart's `kubeVersion`."""
BINDING = "WaitForFirstConsumer"

VERSION = "kubernetes-version"
STORAGE = "storage-class"
FAIRNESS = "priority-and-fairness"


def version(found: str | NotRead) -> Verdict:
    """Judge the version of Kubernetes. `found`: as the API server's `/version` reports it, such as
    `v1.31.4-eks-1`. Failed if it is older than 1.`MINOR_MIN`, a warning if it cannot be parsed."""
    if isinstance(found, NotRead):
        return unread(VERSION, found)
    parts = re.match(r"v?(\d+)\.(\d+)", found)
    if parts is None:
        text = f"The API server reports version {found!r}; Plimsoll needs 1.{MINOR_MIN} or later."
        return Verdict(check=VERSION, result="warning", message=text)
    if (int(parts[1]), int(parts[2])) < (1, MINOR_MIN):
        text = f"Kubernetes is {found}; upgrade it to 1.{MINOR_MIN} or later."
        return Verdict(check=VERSION, result="failed", message=text)
    return Verdict(
        check=VERSION,
        result="ok",
        message=f"The API server reports Kubernetes version {found}, which is recent enough.",
    )


def storage(found: tuple[StorageClass, ...] | NotRead, wanted: str) -> Verdict:
    """Judge the StorageClass for brokers' volumes. `wanted`: the class that LogClusters will name;
    empty: the default one. Failed if there is no such class, a warning if it provisions volumes
    before their pods are scheduled."""
    if isinstance(found, NotRead):
        return unread(STORAGE, found)
    chosen = chosen_class(found, wanted)
    if isinstance(chosen, str):
        return Verdict(check=STORAGE, result="failed", message=chosen)
    grows = "can grow later" if chosen.expandable else "cannot grow later (allowVolumeExpansion)"
    default = " (the default one)" if chosen.is_default else ""
    text = (
        f"Brokers can get volumes of StorageClass {chosen.name}{default} "
        f"(volumeBindingMode {chosen.binding_mode}); the volumes {grows}."
    )
    if chosen.binding_mode == BINDING:
        return Verdict(check=STORAGE, result="ok", message=text)
    text += (
        " Volumes are provisioned before their pods are scheduled: brokers may end up in one "
        f"zone or stay unschedulable. Use a class with volumeBindingMode {BINDING}."
    )
    return Verdict(check=STORAGE, result="warning", message=text)


def chosen_class(found: tuple[StorageClass, ...], wanted: str) -> StorageClass | str:
    """Return the StorageClass that brokers' volumes get; if there is none, a sentence that says
    why."""
    if not found:
        return (
            "There is no StorageClass, so brokers cannot get volumes: install a CSI driver and "
            "create a StorageClass for it."
        )
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
    """Judge if the chart's FlowSchema can be created: ok or failed. `served`: True if the API
    server serves flowcontrol.apiserver.k8s.io/v1."""
    if isinstance(served, NotRead):
        return unread(FAIRNESS, served)
    if served:
        text = (
            "The API server serves FlowSchemas, so requests about Leases and the metadata log "
            "get a priority level of their own."
        )
        return Verdict(check=FAIRNESS, result="ok", message=text)
    text = (
        "The API server does not serve flowcontrol.apiserver.k8s.io/v1, so the chart's FlowSchema"
        " cannot be made. Enable API Priority and Fairness; or, here and in the chart, set"
        " priorityAndFairness.enabled=false: then a busy API server delays Lease renewals too."
    )
    return Verdict(check=FAIRNESS, result="failed", message=text)


RIGHTS_HELD = "rights"
NAMED_MAX = 8
"""Bound on the missing rights that the verdict names."""


def rights(found: tuple[PermissionAnswer, ...] | NotRead) -> Verdict:
    if isinstance(found, NotRead):
        return unread(RIGHTS_HELD, found)
    missing = [_right_text(one) for one in found if not one.allowed]
    if not missing:
        text = f"You hold all {len(found)} rights of the operator's roles."
        return Verdict(check=RIGHTS_HELD, result="ok", message=text)
    more = len(missing) - NAMED_MAX
    named = ", ".join(missing[:NAMED_MAX]) + (f" and {more} more" if more > 0 else "")
    text = (
        f"{len(missing)} of {len(found)} rights are missing: {named}. Install the chart as a "
        "user who holds them (Kubernetes does not let a user grant rights that they lack), or, "
        "if rbac.create is false, add them to the roles of the operator's ServiceAccount."
    )
    return Verdict(check=RIGHTS_HELD, result="failed", message=text)


def _right_text(answer: PermissionAnswer) -> str:
    where = f" in namespace {answer.namespace}" if answer.namespace else ""
    return f"{answer.permission}{where}"


WEBHOOKS = "webhooks"
OPERATIONS = {"create": "CREATE", "update": "UPDATE", "patch": "UPDATE", "delete": "DELETE"}
NAMESPACES_NAMED_MAX = 3
BY_OTHERS = {("", "pods"): {"CREATE"}, ("", "persistentvolumeclaims"): {"CREATE"}}
"""Writes that Kubernetes' own controllers make for brokers and drivers: the operations, by (API
group, resource)."""


def webhooks(found: Webhooks | NotRead) -> Verdict:
    if isinstance(found, NotRead):
        return unread(WEBHOOKS, found)
    named = [text for one in found.failing if (text := _webhook_text(one, found.namespaces))]
    if not named:
        text = "No admission webhook with failurePolicy Fail covers objects that Plimsoll writes."
        return Verdict(check=WEBHOOKS, result="ok", message=text)
    text = (
        "Admission webhooks with failurePolicy Fail cover objects that Plimsoll writes: "
        f"{'; '.join(named)}. While such a webhook is down these writes fail, and a cluster that "
        "cannot renew its Lease has no controller. Exclude the namespaces with the webhook's "
        "namespaceSelector, or set its failurePolicy to Ignore."
    )
    return Verdict(check=WEBHOOKS, result="warning", message=text)


def _webhook_text(webhook: Webhook, namespaces: Mapping[str, Mapping[str, str]]) -> str:
    """Return a text that names the webhook, and the product's resources and the namespaces in which
    it intercepts writes; "" if it intercepts none."""
    where = [name for name in sorted(namespaces) if matches(webhook.namespaces, namespaces[name])]
    plurals = sorted(set(_written(webhook.rules)))
    if not plurals or (namespaces and not where):
        return ""
    more = len(where) - NAMESPACES_NAMED_MAX
    told = ", ".join(where[:NAMESPACES_NAMED_MAX]) + (f" and {more} more" if more > 0 else "")
    in_them = f" in {told}" if where else ""
    return f"{webhook.configuration} ({webhook.name}): {', '.join(plurals)}{in_them}"


def _written(rules: tuple[WebhookRule, ...]) -> Iterator[str]:
    for (group, resource), operations in writes().items():
        if any(_stands_before(rule, group, resource, operations) for rule in rules):
            yield resource


def writes() -> dict[tuple[str, str], set[str]]:
    """Return, by (API group, resource), the admission operations on objects that matter to the
    product: the operator's own writes, and those of Kubernetes' controllers for brokers and
    drivers."""
    found = {key: set(operations) for key, operations in BY_OTHERS.items()}
    for right in RIGHTS:
        operations = {OPERATIONS[verb] for verb in right.verbs if verb in OPERATIONS}
        for resource in right.resources if operations else ():
            found.setdefault((right.group, resource), set()).update(operations)
    return found


def _stands_before(rule: WebhookRule, group: str, resource: str, operations: set[str]) -> bool:
    return (
        rule.scope != "Cluster"
        and ("*" in rule.groups or group in rule.groups)
        and ("*" in rule.operations or not operations.isdisjoint(rule.operations))
        and any(_is_meant(pattern, resource) for pattern in rule.resources)
    )


def _is_meant(pattern: str, resource: str) -> bool:
    """Return True if a pattern in `rules[].resources` of a webhook covers the resource, which may
    have a subresource: `*` covers no subresources, `*/*` everything, `pods/*` pods and all their
    subresources, `*/status` every status."""
    if pattern == "*/*":
        return True
    if pattern == "*":
        return "/" not in resource
    plural, _, subresource = resource.partition("/")
    first, slash, second = pattern.partition("/")
    if not slash:
        return first == resource
    return first in ("*", plural) and (second == "*" or bool(second and second == subresource))


LATENCY = "api-latency"
P99_MS_WARNING = 50.0
"""Latency in milliseconds above which the verdict is a warning: clients notice elections of many
partitions."""
P99_MS_FAILURE = 1_000.0
"""Latency in milliseconds above which the check fails: a Lease may expire while it is being
renewed."""


def quantile(milliseconds: tuple[float, ...], share: float) -> float:
    """Return the smallest of the values that at least `share` (0 to 1) of them do not exceed
    (nearest rank). There must be at least one value."""
    return sorted(milliseconds)[max(math.ceil(share * len(milliseconds)) - 1, 0)]


def latency(found: Appends | NotRead) -> Verdict:
    if isinstance(found, NotRead):
        return unread(LATENCY, found)
    left = f" The test object could not be deleted: {found.left}." if found.left else ""
    if found.stopped:
        text = (
            "The latency of writes to the API server could not be measured, because they "
            f"stopped after {len(found.milliseconds)} writes: {found.stopped}."
        )
        text += " Check the API server and etcd's disk, then repeat the test." + left
        return Verdict(check=LATENCY, result="failed", message=text)
    p50, p99 = (quantile(found.milliseconds, share) for share in (0.5, 0.99))
    text = (
        f"{len(found.milliseconds)} writes of one {found.kind} to the API server took {p50:.1f} ms "
        f"(median) and {p99:.1f} ms (p99); up to {P99_MS_WARNING:.0f} ms at p99 is good."
    )
    if p99 > P99_MS_FAILURE:
        text += (
            " At this latency Leases expire while they are renewed: give etcd a dedicated, "
            "faster disk."
        )
        return Verdict(check=LATENCY, result="failed", message=text + left)
    if p99 > P99_MS_WARNING:
        text += (
            f" Above {P99_MS_WARNING:.0f} ms, elections of many partitions take seconds: check "
            "etcd's disk (etcd_disk_wal_fsync_duration_seconds)."
        )
        return Verdict(check=LATENCY, result="warning", message=text + left)
    return Verdict(check=LATENCY, result="warning" if left else "ok", message=text + left)


KINDS = "kinds-served"
OPERATOR = "operator-ready"
WANTED = frozenset(
    (kind.api_version, kind.plural)
    for kind in (*WATCHED_KINDS, METADATA_BATCHES, METADATA_SNAPSHOTS)
)


def kinds(found: frozenset[tuple[str, str]] | NotRead) -> Verdict:
    """Judge if the CRDs of this release are installed: ok or failed. `found`: (API version, plural)
    of all kinds that the API server serves in the product's groups."""
    if isinstance(found, NotRead):
        return unread(KINDS, found)
    missing = sorted(f"{plural} ({version})" for version, plural in WANTED - found)
    if missing:
        text = f"The API server does not serve {', '.join(missing)}:"
        remedy = "apply the CRDs of this release (crds.enabled, or crds/)"
        return Verdict(check=KINDS, result="failed", message=f"{text} {remedy}.")
    return Verdict(
        check=KINDS,
        result="ok",
        message=f"The API server serves all {len(WANTED)} kinds of Plimsoll's CRDs.",
    )


def operator(found: tuple[OperatorPods, ...] | NotRead, namespace: str) -> Verdict:
    """Judge if the operator runs. `found`: its Deployments in `namespace`. Failed if there is none
    or one has no Ready pod, a warning if one has fewer Ready pods than wanted."""
    if isinstance(found, NotRead):
        return unread(OPERATOR, found)
    if not found:
        text = f"No operator was found in namespace {namespace}: install the chart there."
        return Verdict(check=OPERATOR, result="failed", message=text)
    told = ", ".join(f"{one.name}: {one.ready} of {one.wanted} Ready" for one in found)
    if all(one.ready >= one.wanted > 0 for one in found):
        return Verdict(check=OPERATOR, result="ok", message=f"{told}.")
    nobody = any(one.ready == 0 for one in found)
    text = (
        f"The operator is not ready: {told}. Inspect its pods: kubectl describe pods -n "
        f"{namespace}."
    )
    return Verdict(check=OPERATOR, result="failed" if nobody else "warning", message=text)
