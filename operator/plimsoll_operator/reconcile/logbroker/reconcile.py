"""Keeps one LogBroker object for each broker: creates and removes it with the broker, and recreates
it if it was deleted by hand.

A LogBroker holds no state: all it shows is in the image or can be read again. So it has no
finalizer, and is deleted with its LogCluster.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator

from plimsoll_core.ids import BrokerId
from plimsoll_operator.api import API_VERSION, labels
from plimsoll_operator.api.logbroker import LogBroker
from plimsoll_operator.api.logcluster import LogCluster
from plimsoll_operator.kube.errors import ApiError, Conflict, NotFound
from plimsoll_operator.kube.kube_api import Object
from plimsoll_operator.kube.resources import LOG_BROKERS
from plimsoll_operator.kube.seen_objects import Key
from plimsoll_operator.reconcile.pass_result import PassResult
from plimsoll_operator.reconcile.reconcile_term import Task, Term, Work
from plimsoll_operator.reconcile.work_queue import UNLESS_LASTING, Retry
from plimsoll_operator.status.status_writer import Target

logger = logging.getLogger("plimsoll.logbroker")


async def reconcile(term: Term, key: Key) -> PassResult:
    """Create, remove or keep the LogBroker `key`, as the committed image requires."""
    with PassResult() as result:
        await _reconcile(term, result, key)
    return result


async def _reconcile(term: Term, result: PassResult, key: Key) -> None:
    cluster = term.cluster
    if cluster is None:
        return
    found, broker_id = term.objects.log_brokers.get(key), wanted(term).get(key)
    try:
        if broker_id is None:
            if found is not None and found.cluster_key == term.key:
                await _remove(term, key, found.metadata.uid)
        elif found is None:
            await _make(term, result, cluster, broker_id)
        elif not _is_as_made(term, found, broker_id):
            # Where CRD rules are not enforced it can be edited; it is then recreated.
            await _remove(term, key, found.metadata.uid)
        else:
            result.mark(Target(LOG_BROKERS, *key))
    except ApiError as error:
        text = (
            f"the operator cannot create or delete LogBroker {'/'.join(key)}; {UNLESS_LASTING}: "
            f"{error}"
        )
        raise Retry(text) from error


def wanted(term: Term) -> dict[Key, BrokerId]:
    """Return the key of each LogBroker that must exist, with its broker's id: one for each member
    and each other registered broker."""
    namespace, name = term.key
    ids = sorted({*term.image.members, *term.image.brokers})
    return {(namespace, labels.log_broker(name, broker_id)): broker_id for broker_id in ids}


def missing(term: Term) -> Iterator[Work]:
    """Yield work for each broker without a LogBroker of this cluster, as far as the watches have
    seen."""
    for key, broker_id in wanted(term).items():
        found = term.objects.log_brokers.get(key)
        if found is None or not _is_as_made(term, found, broker_id):
            yield Work(Task.BROKER, key)


def all_work(term: Term) -> Iterator[Work]:
    """Yield work for each LogBroker that must be created or removed after a change of members."""
    yield from missing(term)
    there = wanted(term)
    for found in term.objects.log_brokers:
        if found.cluster_key == term.key and found.key not in there:
            yield Work(Task.BROKER, found.key)


def _is_as_made(term: Term, found: LogBroker, broker_id: BrokerId) -> bool:
    return (found.cluster_key, found.spec.broker_id) == (term.key, broker_id)


async def _make(term: Term, result: PassResult, cluster: LogCluster, broker_id: BrokerId) -> None:
    try:
        made = await term.kube.create(LOG_BROKERS, manifest(term, cluster, broker_id))
    except Conflict:
        # The watch is late, or one of an earlier LogCluster is still terminating.
        name = labels.log_broker(cluster.key[1], broker_id)
        made = await term.kube.get(LOG_BROKERS, cluster.key[0], name)
        owners = [one["uid"] for one in made["metadata"].get("ownerReferences") or ()]
        if cluster.metadata.uid not in owners:
            raise Retry(
                f"the operator waits until Kubernetes has deleted LogBroker {name} of a deleted "
                "LogCluster; nothing needs to be done unless that lasts for minutes: then look "
                "at its finalizers"
            ) from None
    found = term.objects.log_brokers.put(made)
    if found is not None:
        result.mark(Target(LOG_BROKERS, *found.key))


async def _remove(term: Term, key: Key, uid: str) -> None:
    logger.info("the operator deletes LogBroker %s, because the cluster has no such broker", key[1])
    try:
        await term.kube.delete(LOG_BROKERS, *key, uid=uid)
    except (NotFound, Conflict):
        return


def manifest(term: Term, cluster: LogCluster, broker_id: BrokerId) -> Object:
    """Return the manifest of a broker's LogBroker. The LogCluster is its owner, so that Kubernetes
    deletes it with the LogCluster."""
    meta = cluster.metadata
    own = labels.labels(meta.name, term.cluster_id, "broker") | {labels.BROKER_ID: str(broker_id)}
    return {
        "apiVersion": API_VERSION,
        "kind": LOG_BROKERS.kind,
        "metadata": {
            "name": labels.log_broker(meta.name, broker_id),
            "namespace": meta.namespace,
            "labels": own,
            "ownerReferences": labels.owner("LogCluster", meta.name, meta.uid),
        },
        "spec": {"clusterRef": {"name": meta.name}, "brokerId": broker_id},
    }
