"""A LogCluster: the objects that run its members.

Members are committed (`members`) before anything is made for them.  StatefulSets are created here
and changed by `rolls` alone, because a changed template would reach whichever pod happens to be
restarted next.  A child that was deleted or changed by hand is restored, with an Event.
"""

from __future__ import annotations

import logging

from plimsoll_core.cluster.records import (
    BrokerFenced,
    BrokersLeaving,
    BrokerUnfenced,
    BrokerUnregistered,
    MembersChanged,
    MetadataVersionFinalized,
    RestartEnded,
)
from plimsoll_core.errors import Refusal
from plimsoll_core.messages.reassignments import LimitMovement
from plimsoll_core.messages.requests import Refused
from plimsoll_operator.api.broker_configs import broker_configs_of
from plimsoll_operator.api.logcluster import LogCluster
from plimsoll_operator.api.quantities import bytes_per_second
from plimsoll_operator.kube.errors import ApiError, Conflict, NotFound, Unavailable
from plimsoll_operator.kube.port import Object
from plimsoll_operator.kube.resources import LOG_CLUSTERS, kind_of
from plimsoll_operator.kube.seen_objects import INVALID_SPEC
from plimsoll_operator.manifests.configmap import config_map
from plimsoll_operator.reconcile.cluster import members, release_versions, volume_growth
from plimsoll_operator.reconcile.cluster.children import broker_sets, children
from plimsoll_operator.reconcile.reconcile_term import Task, Term, Work
from plimsoll_operator.reconcile.stall_causes import Cause, StallSource
from plimsoll_operator.reconcile.work_queue import Retry
from plimsoll_operator.status.record_events import Occurrence
from plimsoll_operator.status.status_writer import Target

logger = logging.getLogger("plimsoll.cluster")

MEMBERSHIP = (
    MembersChanged,
    BrokersLeaving,
    BrokerUnfenced,
    BrokerFenced,
    BrokerUnregistered,
    RestartEnded,
    MetadataVersionFinalized,
)
"""Records after which a cluster's brokers may be one step further."""


async def reconcile(term: Term) -> None:
    cluster = term.cluster
    if cluster is None:
        return
    _say_unread(term)
    # Both are reviewed whatever comes of the other: neither's cause outlives its end.
    runnable = release_versions.review(term, cluster)
    valid = _check_configs(term, cluster)
    if not runnable or not valid:
        term.observed[Target(LOG_CLUSTERS, *term.key)] = cluster.metadata.generation
        return
    context = term.context
    if context is None:
        return
    rows = await members.settle(term, cluster)
    await _limit_movement(term, cluster)
    try:
        for manifest in children(context):
            await _apply(term, manifest)
        await _create(term, config_map(context))
        for manifest in broker_sets(context, term.image.members):
            await _create(term, manifest)
        await members.follow(term, context, rows)
        await volume_growth.reconcile(term, cluster)
    except Unavailable as error:
        raise Retry(str(error)) from error
    except ApiError as error:
        why = Cause(reason="ChildRefused", message=f"The API server refuses: {error}")
        term.stall(StallSource.CHILDREN, why)
        raise Retry(str(error)) from error
    term.unstall(StallSource.CHILDREN)
    term.observed[Target(LOG_CLUSTERS, *term.key)] = cluster.metadata.generation
    term.add(Work(Task.ROLLS, term.key))
    if any(topic.pending_deletion for topic in term.image.topics.values()):
        term.add(Work(Task.ABSENT_TOPICS, term.key))  # it may have been acknowledged
    term.mark_cluster()


def _say_unread(term: Term) -> None:
    """A spec that cannot be read stalls its cluster; it is led on as it was last read."""
    unread = term.objects.clusters.unread(term.key)
    if unread is None:
        term.unstall(StallSource.SPEC)
        return
    term.stall(StallSource.SPEC, Cause(reason=INVALID_SPEC, message=unread.sentence))
    term.observed[Target(LOG_CLUSTERS, *term.key)] = unread.metadata.generation
    term.mark_cluster()


def _check_configs(term: Term, cluster: LogCluster) -> bool:
    """Whether the configs can be run.  If not, nothing is changed: what runs goes on as it is."""
    found = broker_configs_of(cluster)
    if isinstance(found, Refusal):
        why = Cause(reason=found.reason.name, message=found.message, serves=False)
        term.stall(StallSource.CONFIG, why)
        return False
    term.unstall(StallSource.CONFIG)
    return True


async def _limit_movement(term: Term, cluster: LogCluster) -> None:
    """Brokers read the limit from the metadata."""
    wanted = bytes_per_second(cluster.movement_bytes_per_second)
    if wanted == term.image.movement_bytes_per_second:
        return
    answer = await term.ask(LimitMovement(bytes_per_second=wanted))
    if isinstance(answer, Refused):
        raise Retry(answer.message)


async def _apply(term: Term, manifest: Object) -> None:
    """Apply a child, unless it still belongs to an earlier object of the same name."""
    before = await _check_owner(term, manifest)
    after = await term.kube.apply(kind_of(manifest), manifest)
    if before is None:
        _made(term, manifest, "was deleted")
    elif before["metadata"]["resourceVersion"] != after["metadata"]["resourceVersion"]:
        _made(term, manifest, "was changed")
    else:
        term.applied[_name(manifest)] = manifest


async def _create(term: Term, manifest: Object) -> None:
    found = await _check_owner(term, manifest)
    if found is not None:
        await _label(term, manifest, found)
        term.applied[_name(manifest)] = manifest
        return
    try:
        await term.kube.create(kind_of(manifest), manifest)
    except Conflict:
        raise Retry(f"{manifest['metadata']['name']} appeared meanwhile", after_ms=500) from None
    _made(term, manifest, "was deleted")


async def _label(term: Term, manifest: Object, found: Object) -> None:
    """Children are found by their labels."""
    wanted, shown = manifest["metadata"]["labels"], found["metadata"].get("labels") or {}
    if wanted.items() <= shown.items():
        return
    own = {**found["metadata"], "labels": {**shown, **wanted}}
    kind = {"apiVersion": manifest["apiVersion"], "kind": manifest["kind"]}
    await term.kube.replace(kind_of(manifest), {**kind, **found, "metadata": own})
    _made(term, manifest, "lost labels")


def _made(term: Term, manifest: Object, why: str) -> None:
    """A child that this term applied already, and that differs now, was changed by others."""
    kind, name = _name(manifest)
    if term.applied.get((kind, name)) == manifest:
        text = f"{kind} {name} {why} by another client; the operator restored it."
        key = f"restored-{kind}-{name}-{why}"
        term.tell(Occurrence(key=key, reason="Restored", message=text, warning=True))
    term.applied[kind, name] = manifest


def _name(manifest: Object) -> tuple[str, str]:
    return manifest["kind"], manifest["metadata"]["name"]


async def _check_owner(term: Term, manifest: Object) -> Object | None:
    """The child, if it exists.  An earlier object's is waited out, never adopted."""
    meta = manifest["metadata"]
    try:
        found = await term.kube.get(kind_of(manifest), meta["namespace"], meta["name"])
    except NotFound:
        return None
    owners = [o["uid"] for o in found["metadata"].get("ownerReferences") or ()]
    if found["metadata"].get("deletionTimestamp") or owners != [meta["ownerReferences"][0]["uid"]]:
        raise Retry(f"{manifest['kind']} {meta['name']} of an earlier object is still there")
    return found
