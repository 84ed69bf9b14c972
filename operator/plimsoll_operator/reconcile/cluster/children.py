"""The Kubernetes objects (children) that a LogCluster needs: lists them, creates them, and restores
them.

`children` is pure. `apply_child` creates a child, and restores one that another client deleted or
changed; `reconcile_pod_monitor` does so for the PodMonitor that spec.podMonitor asks for. Called by
`reconcile`.
"""

from __future__ import annotations

from collections.abc import Container, Iterable
from dataclasses import dataclass, field

from plimsoll_core.cluster.listeners import Listener
from plimsoll_core.ids import BrokerId
from plimsoll_operator.api.labels import Manifest
from plimsoll_operator.kube.errors import ApiError, Conflict, NotFound, Unavailable
from plimsoll_operator.kube.kube_api import Object
from plimsoll_operator.kube.resources import POD_MONITORS, kind_of
from plimsoll_operator.manifests.configmap import config_map
from plimsoll_operator.manifests.manifest_context import Context
from plimsoll_operator.manifests.networkpolicy import network_policy
from plimsoll_operator.manifests.poddisruptionbudget import pod_disruption_budget
from plimsoll_operator.manifests.podmonitor import pod_monitor, pod_monitor_name
from plimsoll_operator.manifests.serviceaccount import service_account
from plimsoll_operator.manifests.services import bootstrap_service, brokers_service
from plimsoll_operator.manifests.statefulset import stateful_set
from plimsoll_operator.reconcile.pass_result import PassResult
from plimsoll_operator.reconcile.reconcile_term import Term
from plimsoll_operator.reconcile.work_queue import Retry
from plimsoll_operator.status.events import Occurrence


@dataclass(slots=True)
class AppliedChildren:
    """Manifests of children as this term applied them last, by kind and name."""

    manifests: dict[tuple[str, str], Manifest] = field(default_factory=dict)
    # resourceVersion of each child after this term applied it.
    versions: dict[tuple[str, str], str] = field(default_factory=dict)


def applied_children(term: Term) -> AppliedChildren:
    return term.kept(AppliedChildren, AppliedChildren)


def children(context: Context, listeners: tuple[Listener, ...] = ()) -> list[Manifest]:
    """Return the manifests of the cluster's children except those of single brokers, in the order
    of creation. `listeners`: the committed ones, which brokers have open, whatever the spec states
    by now."""
    return [
        service_account(context),
        brokers_service(context, listeners),
        bootstrap_service(context, listeners),
        pod_disruption_budget(context),
        network_policy(context, listeners),
    ]


def config_maps(context: Context, broker_ids: Iterable[BrokerId]) -> list[Manifest]:
    """Return the manifests of the ConfigMaps that these brokers need: one for each pool with
    configs of its own. Without brokers, return the cluster's own."""
    own = [context.of_broker(broker_id) for broker_id in sorted(broker_ids)] or [context]
    found = {made["metadata"]["name"]: made for made in map(config_map, own)}
    return list(found.values())


def broker_sets(
    context: Context, broker_ids: Iterable[BrokerId], stopped: Container[BrokerId] = ()
) -> list[Manifest]:
    """Return the manifests of the brokers' StatefulSets; those in `stopped` must not run."""
    return [
        stateful_set(context, broker_id, replicas=int(broker_id not in stopped))
        for broker_id in sorted(broker_ids)
    ]


async def apply_child(term: Term, result: PassResult, manifest: Object) -> Object:
    """Apply a child's manifest and return the stored object. Send nothing if this term applied the
    same manifest and the object has not changed since. Write an Event if another client changed or
    deleted it. Raise Retry while a child of a deleted LogCluster of that name exists."""
    before = await _check_owner(term, manifest)
    name = _name(manifest)
    if before is not None and (
        applied_children(term).manifests.get(name) == manifest
        and applied_children(term).versions.get(name) == _version(before)
    ):
        return before
    after = await term.kube.apply(kind_of(manifest), manifest)
    applied_children(term).versions[name] = _version(after)
    if before is None:
        _made(term, result, manifest, "was deleted")
    elif _version(before) != _version(after):
        _made(term, result, manifest, "was changed")
    else:
        applied_children(term).manifests[name] = manifest
    return after


async def create_child(term: Term, result: PassResult, manifest: Object) -> None:
    """Create a child. If it exists, restore its labels and nothing else. Raise Retry if it was
    created concurrently, or while a child of a deleted LogCluster of that name exists."""
    found = await _check_owner(term, manifest)
    if found is not None:
        await _label(term, result, manifest, found)
        applied_children(term).manifests[_name(manifest)] = manifest
        return
    try:
        await term.kube.create(kind_of(manifest), manifest)
    except Conflict:
        text = (
            f"{manifest['kind']} {manifest['metadata']['name']} was created by another client "
            "meanwhile; the operator reads it again and continues"
        )
        raise Retry(text, after_ms=500) from None
    _made(term, result, manifest, "was deleted")


async def _label(term: Term, result: PassResult, manifest: Object, found: Object) -> None:
    """Restore the labels of a child if some are missing. Children are found by their labels."""
    wanted, shown = manifest["metadata"]["labels"], found["metadata"].get("labels") or {}
    if wanted.items() <= shown.items():
        return
    own = {**found["metadata"], "labels": {**shown, **wanted}}
    kind = {"apiVersion": manifest["apiVersion"], "kind": manifest["kind"]}
    await term.kube.replace(kind_of(manifest), {**kind, **found, "metadata": own})
    _made(term, result, manifest, "lost labels")


def _made(term: Term, result: PassResult, manifest: Object, why: str) -> None:
    """Remember the manifest of a child as applied. If this term had applied the same manifest
    before, another client has changed or deleted the child since; write an Event that says so.
    `why`: what that client did."""
    kind, name = _name(manifest)
    if applied_children(term).manifests.get((kind, name)) == manifest:
        text = f"{kind} {name} {why} by another client; the operator restored it."
        key = f"restored-{kind}-{name}-{why}"
        result.tell(Occurrence(key=key, reason="Restored", message=text, warning=True))
    applied_children(term).manifests[kind, name] = manifest


def _version(found: Object) -> str:
    version: str = found["metadata"]["resourceVersion"]
    return version


def _name(manifest: Object) -> tuple[str, str]:
    return manifest["kind"], manifest["metadata"]["name"]


async def _check_owner(term: Term, manifest: Object) -> Object | None:
    """Return the child as stored, or None if it does not exist. Raise Retry if it is being deleted
    or has another owner: it is never adopted."""
    meta = manifest["metadata"]
    try:
        found = await term.kube.get(kind_of(manifest), meta["namespace"], meta["name"])
    except NotFound:
        return None
    owners = [o["uid"] for o in found["metadata"].get("ownerReferences") or ()]
    if found["metadata"].get("deletionTimestamp") or owners != [meta["ownerReferences"][0]["uid"]]:
        raise Retry(
            f"the operator waits until Kubernetes has deleted {manifest['kind']} {meta['name']}, "
            "which belongs to a deleted object; nothing needs to be done unless that lasts for "
            "minutes: then look at its finalizers and owner"
        )
    return found


DISABLED = (
    "spec.podMonitor asks for a PodMonitor, but this operator creates none: set the chart's "
    "metrics.podMonitor.perLogCluster to true."
)


async def reconcile_pod_monitor(term: Term, result: PassResult, context: Context) -> None:
    """Apply the PodMonitor if spec.podMonitor asks for it, else remove it. Raise Unavailable if the
    API server does not answer; an Event reports any other refusal."""
    wanted = pod_monitor(context)
    if not term.options.pod_monitors:
        if wanted is not None:
            _tell(term, result, DISABLED)
        return
    try:
        if wanted is not None:
            await apply_child(term, result, wanted)
        else:
            await _remove(term, context)
    except Unavailable:
        raise
    except ApiError as error:
        if wanted is not None:
            _tell(
                term,
                result,
                "The operator cannot create or change the brokers' PodMonitor, so Prometheus may "
                "not collect their metrics. Remove the cause, or remove spec.podMonitor: "
                f"{error.reply}.",
            )


async def _remove(term: Term, context: Context) -> None:
    """Delete the PodMonitor if this LogCluster owns it. A PodMonitor of another owner stays."""
    name = pod_monitor_name(context)
    try:
        found = await term.kube.get(POD_MONITORS, context.namespace, name)
    except NotFound:
        return
    uid = context.cluster.metadata.uid
    if uid in [owner["uid"] for owner in found["metadata"].get("ownerReferences") or ()]:
        await term.kube.delete(POD_MONITORS, context.namespace, name, uid=found["metadata"]["uid"])
        applied_children(term).manifests.pop((POD_MONITORS.kind, name), None)


def _tell(term: Term, result: PassResult, message: str) -> None:
    key = "pod-monitor"
    result.tell(Occurrence(key=key, reason="PodMonitorRefused", message=message, warning=True))
