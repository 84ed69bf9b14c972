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
        why="Read the users' objects, and write their status, never the objects themselves.",
        group=GROUP,
        resources=_PLURALS,
        verbs=READ,
    ),
    Right(
        why="Write the status of users' objects.",
        group=GROUP,
        resources=tuple(f"{plural}/status" for plural in _PLURALS),
        verbs=("patch",),
    ),
    Right(
        why="Create the operator's own Rebalances, which drain leaving brokers and fill new ones.",
        group=GROUP,
        resources=("rebalances",),
        verbs=("list", "create", "delete"),
    ),
    Right(
        why="Create and delete the LogBroker of each broker.",
        group=GROUP,
        resources=("logbrokers",),
        verbs=("get", "create", "delete"),
    ),
    Right(
        why="Write the metadata log: its slots are updated and never deleted.",
        group=INTERNAL,
        resources=("metadatabatches",),
        verbs=(*READ, "create", "update"),
    ),
    Right(
        why="Write snapshots of the metadata log, and delete superseded ones.",
        group=INTERNAL,
        resources=("metadatasnapshots",),
        verbs=(*READ, "create", "delete"),
    ),
    Right(
        why="Hold one Lease for each LogCluster; changing owners needs delete on some API servers.",
        group="coordination.k8s.io",
        resources=("leases",),
        verbs=("get", "create", "update", "patch", "delete"),
    ),
    Right(
        why="Run the brokers.",
        group="apps",
        resources=("statefulsets",),
        verbs=(*READ, "create", "update", "delete"),
    ),
    Right(
        why="Give brokers names, addresses and accounts.",
        group="",
        resources=("services", "serviceaccounts"),
        verbs=(*READ, "create", "patch"),
    ),
    Right(
        why="Delete the Services of a removed outside listener.",
        group="",
        resources=("services",),
        verbs=("delete",),
    ),
    Right(
        why="Route TLS from Gateways to brokers, for listeners of type TLSRoute.",
        group="gateway.networking.k8s.io",
        resources=("tlsroutes",),
        verbs=("get", "list", "create", "patch", "delete"),
        when=TLS_ROUTES,
    ),
    Right(
        why="Read at which port clients reach these Gateways.",
        group="gateway.networking.k8s.io",
        resources=("gateways",),
        verbs=("get",),
        when=TLS_ROUTES,
    ),
    Right(
        why="Request certificates from cert-manager, for listeners with an issuer.",
        group="cert-manager.io",
        resources=("certificates",),
        verbs=("get", "list", "create", "patch", "delete"),
        when=CERTIFICATES,
    ),
    Right(
        why="Write the brokers' configuration, plans of Rebalances and reports of Verifications.",
        group="",
        resources=("configmaps",),
        verbs=(*READ, "create", "update", "patch", "delete"),
    ),
    Right(
        why="Write certificates and credentials, by name; Secrets are never listed or watched.",
        group="",
        resources=("secrets",),
        verbs=("get", "create", "update"),
    ),
    Right(
        why="Limit how many brokers may be evicted at once.",
        group="policy",
        resources=("poddisruptionbudgets",),
        verbs=(*READ, "create", "patch"),
    ),
    Right(
        why="Limit which pods reach which ports of the brokers.",
        group="networking.k8s.io",
        resources=("networkpolicies",),
        verbs=(*READ, "create", "patch"),
    ),
    Right(
        why="Have the brokers scraped, for LogClusters with spec.podMonitor.",
        group="monitoring.coreos.com",
        resources=("podmonitors",),
        verbs=("get", "create", "patch", "delete"),
        when=POD_MONITORS,
    ),
    Right(
        why="Read the state of the brokers' pods.",
        group="",
        resources=("pods",),
        verbs=("get", "list"),
    ),
    Right(
        why="Restart brokers as granted by the controller, each pod by its uid.",
        group="",
        resources=("pods",),
        verbs=("delete",),
    ),
    Right(
        why="Read and grow volumes, and delete released ones.",
        group="",
        resources=("persistentvolumeclaims",),
        verbs=(*READ, "patch", "delete"),
    ),
    Right(
        why="Read why a StatefulSet cannot create its pod.",
        group="",
        resources=("events",),
        verbs=("list",),
    ),
    Right(
        why="Write Events about users' objects.",
        group="events.k8s.io",
        resources=("events",),
        verbs=("create",),
    ),
    Right(
        why="Run each Verification as a Job.",
        group="batch",
        resources=("jobs",),
        verbs=("get", "create"),
        when=VERIFICATION,
    ),
    Right(
        why="Allow that Job to write one ConfigMap.",
        group="rbac.authorization.k8s.io",
        resources=("roles", "rolebindings"),
        verbs=("get", "create", "patch"),
        when=VERIFICATION,
    ),
    Right(
        why="Read whether a namespace is being deleted, and the labels that admit its topics.",
        group="",
        resources=("namespaces",),
        verbs=READ,
        cluster=True,
    ),
    Right(
        why="Identify the sender of a request for the operator's HTTP view.",
        group="authentication.k8s.io",
        resources=("tokenreviews",),
        verbs=("create",),
        cluster=True,
    ),
    Right(
        why="Check that the sender may get logclusters/view.",
        group="authorization.k8s.io",
        resources=("subjectaccessreviews",),
        verbs=("create",),
        cluster=True,
    ),
    Right(
        why="Read the keys that verify ServiceAccount tokens, by which pods log in.",
        group="",
        resources=(),
        urls=(OPENID_CONFIGURATION, OPENID_KEYS),
        verbs=("get",),
        cluster=True,
    ),
    Right(
        why="Read the nodes of brokers: their racks, and the addresses of NodePort listeners.",
        group="",
        resources=("nodes",),
        verbs=("get",),
        cluster=True,
        when=READ_NODES,
    ),
    Right(
        why="Read whether Topics or Users disappeared because their CRD was deleted.",
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
