"""All rights that the operator uses: the one list behind the chart's roles and `preflight`.

`python -m plimsoll_operator.preflight.rights FILE` writes `helm/plimsoll/files/rights.yaml`, from
which the chart renders its roles; a test compares the two. A right that is missing here is missing
in the cluster; remove one that is no longer used.
"""

from __future__ import annotations

import sys
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from plimsoll_operator.api import GROUP
from plimsoll_operator.kube.kube_api import OPENID_CONFIGURATION, OPENID_KEYS
from plimsoll_operator.kube.resources import WATCHED_KINDS

INTERNAL = f"internal.{GROUP}"
VERIFICATION = "verification.enabled"
READ_NODES = "rbac.readNodes"
POD_MONITORS = "metrics.podMonitor.perLogCluster"
TLS_ROUTES = "externalAccess.tlsRoutes"
CERTIFICATES = "certManager.enabled"
READ = ("get", "list", "watch")


@dataclass(frozen=True, slots=True, kw_only=True)
class Right:
    """One rule of a role, in RBAC's terms."""

    why: str
    """A comment of the role that the chart renders."""
    group: str
    """An API group; empty: the core group."""
    resources: tuple[str, ...]
    """Plurals, with their subresource: `topics/status`."""
    verbs: tuple[str, ...]
    urls: tuple[str, ...] = ()
    """Paths of the API server, instead of resources."""
    names: tuple[str, ...] = ()
    """The only objects that the right covers; empty: all."""
    cluster: bool = False
    """True for objects without a namespace: a Role cannot hold the right."""
    when: str = ""
    """The chart's value that enables the right; empty: always."""


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Permission:
    """One permission, as a SelfSubjectAccessReview asks for it."""

    group: str
    resource: str
    verb: str
    name: str = ""
    """The name of the only object; empty: any."""

    def __str__(self) -> str:
        group = f".{self.group}" if self.group else ""
        plural, slash, subresource = self.resource.partition("/")
        named = f" {self.name}" if self.name else ""
        return f"{self.verb} {plural}{group}{slash}{subresource}{named}"


_PLURALS = tuple(kind.plural for kind in WATCHED_KINDS)

RIGHTS = (
    Right(
        why="The user's objects: read, and their status written.  Never the objects themselves.",
        group=GROUP,
        resources=_PLURALS,
        verbs=READ,
    ),
    Right(
        why="Their status.",
        group=GROUP,
        resources=tuple(f"{plural}/status" for plural in _PLURALS),
        verbs=("patch",),
    ),
    Right(
        why="The operator's own Rebalances: they empty brokers that leave, fill those that join.",
        group=GROUP,
        resources=("rebalances",),
        verbs=("list", "create", "delete"),
    ),
    Right(
        why="LogBrokers: one for each broker, made and removed with it.",
        group=GROUP,
        resources=("logbrokers",),
        verbs=("get", "create", "delete"),
    ),
    Right(
        why="The metadata log: slots are updated and never deleted; superseded snapshots are.",
        group=INTERNAL,
        resources=("metadatabatches",),
        verbs=(*READ, "create", "update"),
    ),
    Right(
        why="Its snapshots.",
        group=INTERNAL,
        resources=("metadatasnapshots",),
        verbs=(*READ, "create", "delete"),
    ),
    Right(
        why="One Lease for each LogCluster; some API servers want deletion of who changes owners.",
        group="coordination.k8s.io",
        resources=("leases",),
        verbs=("get", "create", "update", "patch", "delete"),
    ),
    Right(
        why="What runs the brokers.",
        group="apps",
        resources=("statefulsets",),
        verbs=(*READ, "create", "update", "delete"),
    ),
    Right(
        why="Their names and addresses.",
        group="",
        resources=("services", "serviceaccounts"),
        verbs=(*READ, "create", "patch"),
    ),
    Right(
        why="Those of a listener for clients outside go with the listener.",
        group="",
        resources=("services",),
        verbs=("delete",),
    ),
    Right(
        why="What Gateways pass on to brokers, where a listener asks for it,",
        group="gateway.networking.k8s.io",
        resources=("tlsroutes",),
        verbs=("get", "list", "create", "patch", "delete"),
        when=TLS_ROUTES,
    ),
    Right(
        why="and at which port clients reach these Gateways.",
        group="gateway.networking.k8s.io",
        resources=("gateways",),
        verbs=("get",),
        when=TLS_ROUTES,
    ),
    Right(
        why="What cert-manager makes for listeners that name an issuer.",
        group="cert-manager.io",
        resources=("certificates",),
        verbs=("get", "list", "create", "patch", "delete"),
        when=CERTIFICATES,
    ),
    Right(
        why="Their configuration, the plans of Rebalances, the reports of Verifications.",
        group="",
        resources=("configmaps",),
        verbs=(*READ, "create", "update", "patch", "delete"),
    ),
    Right(
        why="Certificates of listeners and logins of Users, by name: never listed or watched.",
        group="",
        resources=("secrets",),
        verbs=("get", "create", "update"),
    ),
    Right(
        why="How many brokers may be evicted at once.",
        group="policy",
        resources=("poddisruptionbudgets",),
        verbs=(*READ, "create", "patch"),
    ),
    Right(
        why="Who reaches which port of theirs.",
        group="networking.k8s.io",
        resources=("networkpolicies",),
        verbs=(*READ, "create", "patch"),
    ),
    Right(
        why="Who scrapes them, where a LogCluster asks for it.",
        group="monitoring.coreos.com",
        resources=("podmonitors",),
        verbs=("get", "create", "patch", "delete"),
        when=POD_MONITORS,
    ),
    Right(
        why="Evidence of what became of pods.",
        group="",
        resources=("pods",),
        verbs=("get", "list"),
    ),
    Right(
        why="Restarts that the controller granted, each by the pod's uid.",
        group="",
        resources=("pods",),
        verbs=("delete",),
    ),
    Right(
        why="Volumes: evidence of what became of them, their growth, the removal of released ones.",
        group="",
        resources=("persistentvolumeclaims",),
        verbs=(*READ, "patch", "delete"),
    ),
    Right(
        why="Why a StatefulSet cannot make its pod.",
        group="",
        resources=("events",),
        verbs=("list",),
    ),
    Right(
        why="What happened, told about the user's objects.",
        group="events.k8s.io",
        resources=("events",),
        verbs=("create",),
    ),
    Right(
        why="Verifications: one Job each.",
        group="batch",
        resources=("jobs",),
        verbs=("get", "create"),
        when=VERIFICATION,
    ),
    Right(
        why="The right of that Job to write one ConfigMap.",
        group="rbac.authorization.k8s.io",
        resources=("roles", "rolebindings"),
        verbs=("get", "create", "patch"),
        when=VERIFICATION,
    ),
    Right(
        why="Whether a namespace is being deleted, and which topics may be declared in it.",
        group="",
        resources=("namespaces",),
        verbs=READ,
        cluster=True,
    ),
    Right(
        why="Who may read the operator's HTTP view: whose token it is,",
        group="authentication.k8s.io",
        resources=("tokenreviews",),
        verbs=("create",),
        cluster=True,
    ),
    Right(
        why="and whether they may get logclusters/view.",
        group="authorization.k8s.io",
        resources=("subjectaccessreviews",),
        verbs=("create",),
        cluster=True,
    ),
    Right(
        why="Pods that log in with their ServiceAccount's token: the keys that verify it.",
        group="",
        resources=(),
        urls=(OPENID_CONFIGURATION, OPENID_KEYS),
        verbs=("get",),
        cluster=True,
    ),
    Right(
        why="Racks, and addresses of NodePort listeners: the node that a broker's pod runs on.",
        group="",
        resources=("nodes",),
        verbs=("get",),
        cluster=True,
        when=READ_NODES,
    ),
    Right(
        why="Whether Topics or Users disappeared because their CRD was deleted.",
        group="apiextensions.k8s.io",
        resources=("customresourcedefinitions",),
        verbs=("get",),
        names=("topics.plimsoll.dev", "users.plimsoll.dev"),
        cluster=True,
    ),
)


def needed(values: Collection[str], *, cluster: bool) -> Iterator[Permission]:
    """Return each permission once, in the table's order. `cluster`: those about objects without a
    namespace, else the others. `values`: the chart's values that are true and that rights depend
    on."""
    seen = set()
    for right in RIGHTS:
        if right.cluster != cluster or (right.when and right.when not in values):
            continue
        for resource in right.resources:
            for verb in right.verbs:
                for name in right.names or ("",):
                    found = Permission(group=right.group, resource=resource, verb=verb, name=name)
                    if found not in seen:
                        seen.add(found)
                        yield found


def render() -> str:
    """Render the chart's file."""
    parts = {
        scope: [_row(right) for right in RIGHTS if right.cluster == (scope == "cluster")]
        for scope in ("namespaced", "cluster")
    }
    text = yaml.safe_dump(parts, sort_keys=False, width=96, default_flow_style=None)
    return "# Written by `python -m plimsoll_operator.preflight.rights`; not by hand.\n" + text


def _row(right: Right) -> dict[str, Any]:
    rule: dict[str, Any] = {"apiGroups": [right.group], "resources": [*right.resources]}
    if right.urls:
        rule = {"nonResourceURLs": [*right.urls]}
    if right.names:
        rule["resourceNames"] = [*right.names]
    rule["verbs"] = [*right.verbs]
    row: dict[str, Any] = {"why": right.why, "rule": rule}
    return row | ({"when": right.when} if right.when else {})


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(render())
