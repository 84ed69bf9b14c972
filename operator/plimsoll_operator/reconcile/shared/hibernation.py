"""Tells which brokers must not run because the LogCluster hibernates.

The order of stopping follows from the committed image (`stopped_brokers` of the core). Once the
spec asks to wake, all brokers run, even before the waking is committed. Called where StatefulSets
are created and repaired.
"""

from __future__ import annotations

from plimsoll_core.controller.brokers.hibernation import stopped_brokers
from plimsoll_core.ids import BrokerId
from plimsoll_operator.reconcile.reconcile_term import Term


def stopped_of(term: Term) -> frozenset[BrokerId]:
    """Return the brokers that must have no pod now."""
    cluster = term.cluster
    if cluster is None or not cluster.spec.hibernated:
        return frozenset()
    return stopped_brokers(term.image)
