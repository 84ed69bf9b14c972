"""What healing changes of an administrator's Rebalances."""

from __future__ import annotations

from plimsoll_operator.kube.resources import REBALANCES
from plimsoll_sim.desired.objects import AppliedObjects


def heal(objects: AppliedObjects, replication_factor: int) -> None:
    """Nothing stays paused, and what contradicts the topics or the members is deleted.
    `replication_factor`: the greatest of topics without an object, or that are made again."""
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
