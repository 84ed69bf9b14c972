"""A LogCluster: the objects that run its members.

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
from plimsoll_operator.kube.errors import ApiError, Unavailable
from plimsoll_operator.kube.resources import LOG_CLUSTERS
from plimsoll_operator.kube.seen_objects import INVALID_SPEC
from plimsoll_operator.manifests.configmap import config_map
from plimsoll_operator.reconcile.cluster import (
    access,
    authorities,
    inside,
    listeners,
    membership,
    release_versions,
    volume_growth,
)
from plimsoll_operator.reconcile.cluster.children import (
    apply_child,
    broker_sets,
    children,
    create_child,
    reconcile_pod_monitor,
)
from plimsoll_operator.reconcile.reconcile_term import Task, Term, Work
from plimsoll_operator.reconcile.stall_causes import Cause, StallSource
from plimsoll_operator.reconcile.user import tenants
from plimsoll_operator.reconcile.work_queue import Retry
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
"""Records after which a change of membership may take its next step."""


async def reconcile(term: Term) -> None:
    cluster = term.cluster
    if cluster is None:
        return
    _say_unread(term)
    # Review both, whatever the other's result: a stale cause must not stay.
    runnable = release_versions.review(term, cluster)
    valid = _check_configs(term, cluster)
    if not runnable or not valid:
        term.observed[Target(LOG_CLUSTERS, *term.key)] = cluster.metadata.generation
        return
    context = term.context
    if context is None:
        return
    wanted_inside = await inside.decide(term, cluster)
    rows = await membership.settle(term, cluster)
    await _limit_movement(term, cluster)
    await access.declare_authorization(term, cluster)
    await access.declare_quotas(term, cluster)
    tenants.follow_grants(term, cluster)
    try:
        await access.reconcile(term, cluster)
        await authorities.reconcile(term, cluster, context)
        await inside.reconcile(term, cluster, context, wanted_inside)
        await listeners.reconcile(term, cluster, context)
        for manifest in children(context, term.image.listeners):
            await apply_child(term, manifest)
        await create_child(term, config_map(context))
        for manifest in broker_sets(context, term.image.members):
            await create_child(term, manifest)
        await membership.follow(term, context, rows)
        await volume_growth.reconcile(term, cluster)
        await reconcile_pod_monitor(term, context)
    except Unavailable as error:
        raise Retry(str(error)) from error
    except ApiError as error:
        why = Cause(reason="ChildRefused", message=f"The API server rejected a request: {error}")
        term.stall(StallSource.CHILDREN, why)
        raise Retry(str(error)) from error
    term.unstall(StallSource.CHILDREN)
    term.observed[Target(LOG_CLUSTERS, *term.key)] = cluster.metadata.generation
    term.add(Work(Task.ROLLS, term.key))
    if any(topic.pending_deletion for topic in term.image.topics.values()):
        term.add(Work(Task.ABSENT_TOPICS, term.key))  # it may have been acknowledged
    term.mark_cluster()


def _say_unread(term: Term) -> None:
    """Stall a cluster with an unreadable spec; it is still led by the spec as last read."""
    unread = term.objects.clusters.unread(term.key)
    if unread is None:
        term.unstall(StallSource.SPEC)
        return
    term.stall(StallSource.SPEC, Cause(reason=INVALID_SPEC, message=unread.sentence))
    term.observed[Target(LOG_CLUSTERS, *term.key)] = unread.metadata.generation
    term.mark_cluster()


def _check_configs(term: Term, cluster: LogCluster) -> bool:
    """Return True if brokers can run with the configs. Otherwise nothing is changed."""
    found = broker_configs_of(cluster)
    if isinstance(found, Refusal):
        why = Cause(reason=found.reason.name, message=found.message, serves=False)
        term.stall(StallSource.CONFIG, why)
        return False
    term.unstall(StallSource.CONFIG)
    return True


async def _limit_movement(term: Term, cluster: LogCluster) -> None:
    """Commit the limit of moves; brokers read it from the metadata."""
    wanted = bytes_per_second(cluster.movement_bytes_per_second)
    if wanted == term.image.movement_bytes_per_second:
        return
    answer = await term.ask(LimitMovement(bytes_per_second=wanted))
    if isinstance(answer, Refused):
        raise Retry(answer.message)
