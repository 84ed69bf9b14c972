"""Reconciles a LogCluster: commits its members and settings, and creates the objects that run them.

Members are committed (`membership`) before anything is created for them. StatefulSets are created
here and changed by `reconcile.restarts` alone, because a changed template would reach whichever pod
happens to be restarted next. `children` restores a child that was deleted or changed by hand.
"""

from __future__ import annotations

import logging

from plimsoll_core.cluster.records import (
    BrokerFenced,
    BrokersLeaving,
    BrokerUnfenced,
    BrokerUnregistered,
    HibernationSet,
    MembersChanged,
    MetadataVersionFinalized,
    RestartEnded,
)
from plimsoll_core.messages.moves import LimitMovement
from plimsoll_core.messages.requests import Refused
from plimsoll_operator.api.broker_configs import spec_refusal
from plimsoll_operator.api.cluster_users import ClusterUsers
from plimsoll_operator.api.logcluster import LogCluster
from plimsoll_operator.api.quantities import bytes_per_second
from plimsoll_operator.api.tenancy import is_tenant
from plimsoll_operator.kube.errors import ApiError, Unavailable
from plimsoll_operator.kube.seen_objects import INVALID_SPEC, Key
from plimsoll_operator.reconcile.cluster import (
    access,
    authorities,
    hibernation,
    inside,
    lasting_imbalance,
    listeners,
    maintenance_hours,
    membership,
    release_versions,
    volume_growth,
)
from plimsoll_operator.reconcile.cluster.children import (
    apply_child,
    broker_sets,
    children,
    config_maps,
    create_child,
    reconcile_pod_monitor,
)
from plimsoll_operator.reconcile.cluster.logcluster_status import cluster_memory
from plimsoll_operator.reconcile.pass_result import PassResult
from plimsoll_operator.reconcile.reconcile_term import Task, Term, Work
from plimsoll_operator.reconcile.shared.hibernation import stopped_of
from plimsoll_operator.reconcile.shared.pinned_choices import manifest_context
from plimsoll_operator.reconcile.stall_causes import Cause, StallSource
from plimsoll_operator.reconcile.work_queue import Retry

logger = logging.getLogger("plimsoll.cluster")

MEMBERSHIP = (
    MembersChanged,
    BrokersLeaving,
    BrokerUnfenced,
    BrokerFenced,
    BrokerUnregistered,
    RestartEnded,
    MetadataVersionFinalized,
    HibernationSet,
)
"""Records after which the LogCluster is reconciled, since a change of members or of the metadata
version may take its next step."""


async def reconcile(term: Term, _: Key) -> PassResult:
    with PassResult() as result:
        await _reconcile(term, result)
    return result


async def _reconcile(term: Term, result: PassResult) -> None:
    cluster = term.cluster
    if cluster is None:
        return
    _say_unread(term, result)
    # Review both, whatever the other's result: a stale cause must not stay.
    runnable = release_versions.review(term, result, cluster)
    valid = _check_configs(term, result, cluster)
    if not runnable or not valid:
        cluster_memory(term).observed = cluster.metadata.generation
        return
    context = manifest_context(term)
    if context is None:
        return
    maintenance_hours.review(term, result, cluster)
    wanted_inside = await inside.decide(term, result, cluster)
    await hibernation.settle(term, result, cluster)
    rows = await membership.settle(term, result, cluster)
    await _limit_movement(term, cluster)
    await access.declare_authorization(term, result, cluster)
    await access.declare_quotas(term, result, cluster)
    follow_grants(term, result, cluster)
    try:
        await access.reconcile(term, result, cluster)
        await authorities.reconcile(term, result, cluster, context)
        await inside.reconcile(term, result, cluster, context, wanted_inside)
        await listeners.reconcile(term, result, cluster, context)
        for manifest in children(context, term.image.listeners):
            await apply_child(term, result, manifest)
        for manifest in config_maps(context, term.image.members):
            await create_child(term, result, manifest)
        for manifest in broker_sets(context, term.image.members, stopped_of(term)):
            await create_child(term, result, manifest)
        await membership.follow(term, result, context, rows)
        await volume_growth.reconcile(term, result, context)
        await lasting_imbalance.reconcile(term, result, cluster, context)
        await reconcile_pod_monitor(term, result, context)
    except Unavailable as error:
        raise Retry(str(error)) from error
    except ApiError as error:
        text = (
            "The API server rejected a request of the operator, so the spec of this LogCluster "
            "is not fully applied. Remove the cause (quota, admission or RBAC); the operator "
            f"tries again: {error}"
        )
        why = Cause(reason="ChildRefused", message=text)
        result.stall(StallSource.CHILDREN, why)
        raise Retry(str(error)) from error
    result.unstall(StallSource.CHILDREN)
    cluster_memory(term).observed = cluster.metadata.generation
    result.add(Work(Task.ROLLS, term.key))
    if any(topic.pending_deletion for topic in term.image.topics.values()):
        result.add(Work(Task.ABSENT_TOPICS, term.key))  # it may have been acknowledged
    result.mark_cluster()


def _say_unread(term: Term, result: PassResult) -> None:
    """Set the stall cause about a spec that cannot be read, or clear it. The cluster is then led by
    the spec as last read."""
    unread = term.objects.clusters.unread(term.key)
    if unread is None:
        result.unstall(StallSource.SPEC)
        return
    result.stall(StallSource.SPEC, Cause(reason=INVALID_SPEC, message=unread.sentence))
    cluster_memory(term).observed = unread.metadata.generation
    result.mark_cluster()


def _check_configs(term: Term, result: PassResult, cluster: LogCluster) -> bool:
    """Return True if brokers can run with the spec's configs, pools and pod templates. Otherwise
    set a stall cause and return False; the caller then changes nothing."""
    found = spec_refusal(cluster, term.image.metadata_version)
    if found is not None:
        why = Cause(reason=found.reason.name, message=found.message, serves=False)
        result.stall(StallSource.CONFIG, why)
        return False
    result.unstall(StallSource.CONFIG)
    return True


async def _limit_movement(term: Term, cluster: LogCluster) -> None:
    """Commit the limit of the bytes that moves may copy per second, if it changed. Brokers read it
    from the metadata."""
    wanted = bytes_per_second(cluster.movement_bytes_per_second)
    if wanted == term.image.movement_bytes_per_second:
        return
    answer = await term.ask(LimitMovement(bytes_per_second=wanted))
    if isinstance(answer, Refused):
        raise Retry(answer.message)


class _Granted:
    """The part of the LogCluster's spec about Users, as the last pass saw it."""

    users: ClusterUsers | None = None


def follow_grants(term: Term, result: PassResult, cluster: LogCluster) -> None:
    """Queue all Users of other namespaces if what the LogCluster's spec states about Users has
    changed since the last pass."""
    known = term.kept(_Granted, _Granted)
    if known.users == cluster.spec.users:
        return
    known.users = cluster.spec.users
    stated = [u.key for u in term.objects.users if u.cluster_key == term.key and is_tenant(u)]
    rows = (row.object for row in term.image.security.users.values())
    declared = [(one.namespace, one.name) for one in rows if one.namespace != term.key[0]]
    for key in dict.fromkeys((*stated, *declared)):
        result.add(Work(Task.USER, key))
