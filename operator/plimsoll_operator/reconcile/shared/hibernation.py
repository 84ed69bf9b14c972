"""Tells which brokers must not run because the LogCluster hibernates, and ends the stopping.

The order of stopping follows from the committed image (`stopped_brokers` of the core). Once the
spec asks to wake, all brokers run, even before the waking is committed. Called where StatefulSets
are created and repaired.
"""

from __future__ import annotations

from plimsoll_core.controller.brokers.hibernation import stopped_brokers
from plimsoll_core.ids import BrokerId
from plimsoll_operator.api import labels
from plimsoll_operator.kube.resources import STATEFUL_SETS
from plimsoll_operator.reconcile.reconcile_term import Term


def stopped_of(term: Term) -> frozenset[BrokerId]:
    """Return the brokers that must have no pod now."""
    cluster = term.cluster
    if cluster is None or not cluster.spec.hibernated:
        return frozenset()
    return stopped_brokers(term.image)


async def end_stops(term: Term) -> None:
    """Give each StatefulSet of a broker another resourceVersion, before the waking is committed. So
    an operator that was suspended just before it stops a broker has no effect when it resumes.
    Raises the API server's errors."""
    namespace, name = term.key
    ours = f"{labels.CLUSTER}={name},{labels.COMPONENT}=broker"
    woken = f"{term.image.controller_epoch}-{term.image.next_offset}"
    for found in (await term.kube.list(STATEFUL_SETS, namespace, label_selector=ours)).items:
        meta = found["metadata"]
        if labels.broker_of(name, meta["name"]) is None or meta.get("deletionTimestamp"):
            continue
        annotations = {**(meta.get("annotations") or {}), labels.WOKEN: woken}
        kind = {"apiVersion": STATEFUL_SETS.api_version, "kind": STATEFUL_SETS.kind}
        body = {**kind, **found, "metadata": {**meta, "annotations": annotations}}
        await term.kube.replace(STATEFUL_SETS, body)
