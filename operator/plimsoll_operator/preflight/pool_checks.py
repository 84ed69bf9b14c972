"""Judges if a LogCluster's pools get their volumes and nodes, before it is applied. Pure.

A pool needs a StorageClass that exists, and nodes that its pods may run on: with the labels of its
nodeSelector, without a taint that its tolerations leave out, and with room for its requests. A node
is compared with one broker, as if it were empty; affinity and topology spread are not evaluated.
Called by `checklist` for `plimsoll preflight --file`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from plimsoll_operator.api.logcluster import Brokers, LogCluster
from plimsoll_operator.api.pod_template import PodTemplateSpec
from plimsoll_operator.api.quantities import amount
from plimsoll_operator.preflight.checks import chosen_class, unread
from plimsoll_operator.preflight.facts import Node, NotRead, Result, StorageClass, Verdict

POOLS = "pools"
KEEPS_OFF = ("NoSchedule", "NoExecute")
"""Effects of taints that keep pods off a node."""
NO_FILE = "Not checked: give the YAML of a LogCluster with --file."
Finding = tuple[Result, str]


def pools(
    cluster: LogCluster | None,
    classes: Sequence[StorageClass] | NotRead,
    nodes: Sequence[Node] | NotRead,
) -> Verdict:
    """Judge the volumes and nodes of each pool that has brokers, or of all brokers of a LogCluster
    without pools. Failed if brokers of a pool cannot start, a warning if its volumes cannot grow or
    its brokers must share nodes."""
    for fact in (classes, nodes):
        if isinstance(fact, NotRead):
            return unread(POOLS, fact)
    assert not isinstance(classes, NotRead)
    assert not isinstance(nodes, NotRead)
    if cluster is None:
        return Verdict(check=POOLS, result="warning", message=NO_FILE)
    found = [
        (result, f"{name}: {text}")
        for name, count, one in each_pool(cluster)
        for result, text in (_volumes(one, classes), _placed(one, count, nodes))
    ]
    worst: Result = "ok"
    for word in ("warning", "failed"):
        if any(result == word for result, _ in found):
            worst = word
    told = [text for result, text in found if result == worst]
    return Verdict(check=POOLS, result=worst, message=" ".join(told))


def each_pool(cluster: LogCluster) -> Iterator[tuple[str, int, LogCluster]]:
    """Yield the name, the number of brokers, and the LogCluster as the pool sees it."""
    if not cluster.spec.pools:
        yield f"LogCluster {cluster.metadata.name}", cluster.count, cluster
    for pool in cluster.spec.pools or ():
        if pool.brokers:
            yield f"Pool {pool.name}", pool.brokers, cluster.as_pool(pool)


def _volumes(one: LogCluster, classes: Sequence[StorageClass]) -> Finding:
    found = chosen_class(tuple(classes), one.spec.storage.storage_class_name or "")
    if isinstance(found, str):
        return "failed", found
    if not found.expandable:
        return (
            "warning",
            f"volumes of StorageClass {found.name} cannot grow (allowVolumeExpansion): a larger "
            "storage.size would be refused, so another pool would have to replace this one.",
        )
    return "ok", f"StorageClass {found.name} exists, and its volumes can grow."


def _placed(one: LogCluster, count: int, nodes: Sequence[Node]) -> Finding:
    brokers = one.spec.brokers or Brokers()
    spec = (brokers.template and brokers.template.spec) or PodTemplateSpec()
    requests = (brokers.resources and brokers.resources.requests) or {}
    wanted = dict(spec.node_selector or {})
    labelled = [n for n in nodes if all(n.labels.get(k) == v for k, v in wanted.items())]
    if not labelled:
        text = ", ".join(f"{key}={value}" for key, value in sorted(wanted.items())) or "any labels"
        return "failed", f"no node has the labels of its nodeSelector, {text}. Label the nodes."
    able = [n for n in labelled if not any(_repels(t, spec.tolerations or ()) for t in n.taints)]
    if not able:
        text = "every node that its nodeSelector admits is cordoned or has a taint that the pool's"
        return "failed", f"{text} pods do not tolerate. Add a toleration, or uncordon a node."
    large = [n for n in able if _has_room(n, requests)]
    if not large:
        text = ", ".join(f"{key} {value}" for key, value in sorted(requests.items()))
        return "failed", f"no node that it may run on is large enough for {text} of one broker."
    if len(large) < count:
        text = f"{len(large)} node{'' if len(large) == 1 else 's'} for {count} brokers"
        return (
            "warning",
            f"{text}: brokers share nodes, and fail together with their node. Add nodes.",
        )
    return "ok", f"{len(large)} nodes can take its {count} brokers."


def _repels(taint: dict[str, Any], tolerations: Sequence[dict[str, Any]]) -> bool:
    return taint.get("effect") in KEEPS_OFF and not any(
        _tolerates(toleration, taint) for toleration in tolerations
    )


def _tolerates(toleration: dict[str, Any], taint: dict[str, Any]) -> bool:
    if toleration.get("effect") not in (None, "", taint.get("effect")):
        return False
    if toleration.get("operator") == "Exists":
        return toleration.get("key") in (None, "", taint.get("key"))
    same = toleration.get("key") == taint.get("key")
    return same and (toleration.get("value") or "") == (taint.get("value") or "")


def _has_room(node: Node, requests: dict[str, int | str]) -> bool:
    return all(
        name in node.allocatable and amount(node.allocatable[name]) >= amount(size)
        for name, size in requests.items()
    )
