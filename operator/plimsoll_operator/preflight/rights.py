"""All rights that the operator uses: the one list behind the chart's roles and `preflight`.

`python -m plimsoll_operator.preflight.rights FILE` writes `helm/plimsoll/files/rights.yaml`, from
which the chart renders its roles; a test compares the two. A right that is missing here is missing
in the cluster; remove one that is no longer used.
"""

from __future__ import annotations

import argparse
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
EXECUTORS = "verification.executors"
DRILLS = "verification.drills"
READ_NODES = "rbac.readNodes"
POD_MONITORS = "metrics.podMonitor.perLogCluster"
TLS_ROUTES = "externalAccess.tlsRoutes"
CERTIFICATES = "certManager.enabled"
READ = "get list watch"


@dataclass(frozen=True, slots=True, kw_only=True)
class Right:
    """One rule of a Role or ClusterRole of the operator, in RBAC's terms."""

    why: str
    """Reason why the operator needs the right; a comment in the role that the chart renders."""
    group: str
    """The API group; empty: the core group."""
    resources: tuple[str, ...]
    """Plurals of kinds, some with a subresource: `topics/status`."""
    verbs: tuple[str, ...]
    urls: tuple[str, ...] = ()
    """URL paths that belong to no object (nonResourceURLs); a rule has these or `resources`."""
    names: tuple[str, ...] = ()
    """Names of the objects that the right is limited to; empty: all."""
    cluster: bool = False
    """True for objects without a namespace: only a ClusterRole can grant the right."""
    when: str = ""
    """The name of the chart's value that enables the right; empty: always granted."""


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Permission:
    """One verb on one resource, as a SelfSubjectAccessReview asks for it."""

    group: str
    resource: str
    verb: str
    name: str = ""
    """The name of the object; empty: any object."""

    def __str__(self) -> str:
        group = f".{self.group}" if self.group else ""
        plural, slash, subresource = self.resource.partition("/")
        named = f" {self.name}" if self.name else ""
        return f"{self.verb} {plural}{group}{slash}{subresource}{named}"


_PLURALS = " ".join(kind.plural for kind in WATCHED_KINDS)


def _right(why: str, group: str, resources: str, verbs: str, **more: Any) -> Right:
    """Return a Right. `resources` and `verbs`: words separated by spaces; `more`: the Right's other
    fields."""
    found = tuple(resources.split())
    return Right(why=why, group=group, resources=found, verbs=tuple(verbs.split()), **more)


RIGHTS = (
    _right("Read the users' objects, and write their status, never the objects themselves.",
           GROUP, _PLURALS, READ),
    _right("Write the status of users' objects.",
           GROUP, " ".join(f"{plural}/status" for plural in _PLURALS.split()), "patch"),
    _right("Create the operator's own Rebalances, which drain leaving brokers and fill new ones.",
           GROUP, "rebalances", "list create delete"),
    _right("Create and delete the LogBroker of each broker.",
           GROUP, "logbrokers", "get create delete"),
    _right("Write the metadata log: its slots are updated and never deleted.",
           INTERNAL, "metadatabatches", f"{READ} create update"),
    _right("Write snapshots of the metadata log, and delete superseded ones.",
           INTERNAL, "metadatasnapshots", f"{READ} create delete"),
    _right("Hold one Lease for each LogCluster; changing owners needs delete on some API servers.",
           "coordination.k8s.io", "leases", "get create update patch delete"),
    _right("Run the brokers.", "apps", "statefulsets", f"{READ} create update delete"),
    _right("Give brokers names, addresses and accounts.",
           "", "services serviceaccounts", f"{READ} create patch"),
    _right("Delete the Services of a removed outside listener.", "", "services", "delete"),
    _right("Route TLS from Gateways to brokers, for listeners of type TLSRoute.",
           "gateway.networking.k8s.io", "tlsroutes", "get list create patch delete",
           when=TLS_ROUTES),
    _right("Read at which port clients reach the Gateways of TLSRoutes.",
           "gateway.networking.k8s.io", "gateways", "get", when=TLS_ROUTES),
    _right("Request certificates from cert-manager, for listeners with an issuer.",
           "cert-manager.io", "certificates", "get list create patch delete", when=CERTIFICATES),
    _right("Write the brokers' configuration, plans of Rebalances and reports of Verifications.",
           "", "configmaps", f"{READ} create update patch delete"),
    _right("Write certificates and credentials, by name; Secrets are never listed or watched.",
           "", "secrets", "get create update"),
    _right("Limit how many brokers may be evicted at once.",
           "policy", "poddisruptionbudgets", f"{READ} create patch"),
    _right("Limit which pods reach which ports of the brokers.",
           "networking.k8s.io", "networkpolicies", f"{READ} create patch"),
    _right("Have the brokers scraped, for LogClusters with spec.podMonitor.",
           "monitoring.coreos.com", "podmonitors", "get create patch delete", when=POD_MONITORS),
    _right("Read the state of the brokers' pods.", "", "pods", "get list"),
    _right("Restart brokers as granted by the controller, each pod by its uid.",
           "", "pods", "delete"),
    _right("Read and grow volumes, and delete released ones.",
           "", "persistentvolumeclaims", f"{READ} patch delete"),
    _right("Read why a StatefulSet cannot create its pod.", "", "events", "list"),
    _right("Write Events about users' objects.", "events.k8s.io", "events", "create"),
    _right("Start Verifications on schedule, and delete ended ones when their time is over.",
           GROUP, "verifications", "create delete", when=VERIFICATION),
    _right("Run each Verification as a Job.", "batch", "jobs", "get create", when=VERIFICATION),
    _right("Allow a Verification's Job to write one ConfigMap.",
           "rbac.authorization.k8s.io", "roles rolebindings", "get create patch",
           when=VERIFICATION),
    _right("Give the drivers of Verifications the right to make pods of executors.",
           "", "pods", "get list watch create delete deletecollection", when=EXECUTORS),
    _right("Restart all brokers in a drill, by an annotation of the LogCluster.",
           GROUP, "logclusters", "patch", when=DRILLS),
    _right("Move a partition in a drill.", GROUP, "reassignments", "create", when=DRILLS),
    _right("Evict a broker in a drill.", "", "pods/eviction", "create", when=DRILLS),
    _right("Read whether a namespace is being deleted, and the labels that admit its topics.",
           "", "namespaces", READ, cluster=True),
    _right("Identify the sender of a request for the operator's HTTP view.",
           "authentication.k8s.io", "tokenreviews", "create", cluster=True),
    _right("Check that the sender of such a request may get logclusters/view.",
           "authorization.k8s.io", "subjectaccessreviews", "create", cluster=True),
    _right("Read the keys that verify ServiceAccount tokens, by which pods log in.",
           "", "", "get", urls=(OPENID_CONFIGURATION, OPENID_KEYS), cluster=True),
    _right("Read the nodes of brokers: their racks, and the addresses of NodePort listeners.",
           "", "nodes", "get", cluster=True, when=READ_NODES),
    _right("Read whether Topics or Users disappeared because their CRD was deleted.",
           "apiextensions.k8s.io", "customresourcedefinitions", "get",
           names=("topics.plimsoll.dev", "users.plimsoll.dev"), cluster=True),
)  # fmt: skip


def needed(values: Collection[str], *, cluster: bool) -> Iterator[Permission]:
    """Yield each permission that the operator needs, once, in the order of `RIGHTS`. `cluster`:
    True: on objects without a namespace, False: on the others. `values`: names of the chart's
    values that are true; a right that depends on another value is left out."""
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
    parser = argparse.ArgumentParser(
        description=(
            "Write the RBAC rules that the operator needs to a file, from which the chart makes "
            "its Roles."
        )
    )
    parser.add_argument("file", type=Path, help="such as helm/plimsoll/files/rights.yaml")
    parser.parse_args().file.write_text(render())
