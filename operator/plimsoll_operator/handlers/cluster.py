"""A LogCluster: the objects that run its members.

Members are committed (`members`) before anything is made for them.  StatefulSets are created here
and changed by `rolls` alone, because a changed template would reach whichever pod happens to be
restarted next.
"""

from __future__ import annotations

import logging

from plimsoll_core.messages import Refused
from plimsoll_core.move_messages import LimitMovement
from plimsoll_core.reasons import Reason, Refusal
from plimsoll_core.records import (
    BrokerFenced,
    BrokersLeaving,
    BrokerUnfenced,
    BrokerUnregistered,
    MembersChanged,
    RestartEnded,
)
from plimsoll_operator.api.logcluster import LogCluster
from plimsoll_operator.handlers import members
from plimsoll_operator.handlers.term import Task, Term, Work
from plimsoll_operator.handlers.volumes import grow
from plimsoll_operator.kube.client import Object
from plimsoll_operator.kube.errors import ApiError, Conflict, NotFound, Unavailable
from plimsoll_operator.kube.resources import kind_of
from plimsoll_operator.manifests.configmap import config_map
from plimsoll_operator.objects import INVALID_SPEC
from plimsoll_operator.reconcile.cluster import broker_sets, children
from plimsoll_operator.reconcile.configs import broker_configs_of
from plimsoll_operator.reconcile.quantities import bytes_per_second
from plimsoll_operator.reconcile.queue import Retry

logger = logging.getLogger("plimsoll.cluster")

MEMBERSHIP = (
    MembersChanged,
    BrokersLeaving,
    BrokerUnfenced,
    BrokerFenced,
    BrokerUnregistered,
    RestartEnded,
)
"""Records after which a cluster's brokers may be one step further."""


async def reconcile(term: Term) -> None:
    cluster, context = term.cluster, term.context
    if cluster is None:
        return
    _say_unread(term)
    if context is None or not _check_configs(term, cluster):
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
        await grow(term, cluster)
    except Unavailable as error:
        raise Retry(str(error)) from error
    except ApiError as error:
        term.stall("ChildRefused", f"The API server refuses: {error}")
        raise Retry(str(error)) from error
    term.unstall("ChildRefused")
    term.observed[term.key] = cluster.metadata.generation
    term.add(Work(Task.ROLLS, term.key))
    term.mark_cluster()


def _say_unread(term: Term) -> None:
    """A spec that cannot be read stalls its cluster; it is led on as it was last read."""
    unread = term.objects.clusters.unread(term.key)
    if unread is None:
        term.unstall(INVALID_SPEC)
        return
    term.stall(INVALID_SPEC, unread.sentence)
    term.observed[term.key] = unread.metadata.generation
    term.mark_cluster()


def _check_configs(term: Term, cluster: LogCluster) -> bool:
    """Whether the configs can be run.  If not, nothing is changed: what runs goes on as it is."""
    found = broker_configs_of(cluster)
    if isinstance(found, Refusal):
        term.note("Ready", False, found.reason.name, found.message)
        term.stall(found.reason.name, found.message)
        term.observed[term.key] = cluster.metadata.generation
        term.mark_cluster()
        return False
    if (note := term.notes.get("Ready")) and note.reason == Reason.InvalidConfig.name:
        term.drop_note("Ready")
        term.unstall(Reason.InvalidConfig.name)
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
    await _check_owner(term, manifest)
    await term.kube.apply(kind_of(manifest), manifest)


async def _create(term: Term, manifest: Object) -> None:
    if await _check_owner(term, manifest):
        return
    try:
        await term.kube.create(kind_of(manifest), manifest)
    except Conflict:
        raise Retry(f"{manifest['metadata']['name']} appeared meanwhile", after_ms=500) from None


async def _check_owner(term: Term, manifest: Object) -> bool:
    """Whether the child exists and is ours.  Somebody else's is waited out, never adopted."""
    meta = manifest["metadata"]
    try:
        found = await term.kube.get(kind_of(manifest), meta["namespace"], meta["name"])
    except NotFound:
        return False
    owners = [o["uid"] for o in found["metadata"].get("ownerReferences") or ()]
    if found["metadata"].get("deletionTimestamp") or owners != [meta["ownerReferences"][0]["uid"]]:
        raise Retry(f"{manifest['kind']} {meta['name']} of an earlier object is still there")
    return True
