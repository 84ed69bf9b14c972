"""Heals an administrator's Rebalances."""

from __future__ import annotations

from plimsoll_operator.kube.resources import REBALANCES
from plimsoll_sim.desired.objects import AppliedObjects


def heal(objects: AppliedObjects, replication_factor: int) -> None:
    """Resume every paused Rebalance and delete those that contradict the topics or members.

    `replication_factor`: the greatest of topics that have no object or are created again.
    """
    factors = [topic.replication_factor for topic in objects.topics.values()]
    most = max([*factors, replication_factor])
    for name, found in objects.rebalances.items():
        if found.spec.paused:
            objects.edit(REBALANCES, name, paused=None)
        brokers = found.spec.brokers or ()
        left = len(objects.members) - len(brokers)
        short = found.spec.mode == "RemoveBrokers" and left < most
        if short or not set(brokers) <= set(objects.members):
            objects.delete(REBALANCES, name)
