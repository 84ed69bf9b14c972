"""Edits of Rebalance objects: by faults, by an operator that approves a plan, and when healing."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from plimsoll_operator.api.rebalance import Rebalance
from plimsoll_operator.reconcile.rebalance.request import object_of
from plimsoll_sim.desired.state import DesiredState


def change(wishes: DesiredState, uid: str, **fields: Any) -> None:
    """The object's owner edits its spec."""
    found = wishes.rebalances[uid]
    meta = replace(found.metadata, generation=found.metadata.generation + 1)
    wishes.rebalances[uid] = Rebalance(metadata=meta, spec=replace(found.spec, **fields))


def heal(wishes: DesiredState, replication_factor: int) -> None:
    """Nothing stays paused, and what contradicts the topics or the members is deleted.
    `replication_factor` is that of a topic which is made again."""
    factors = [topic.replication_factor for topic in wishes.topics.values()]
    most = max([*factors, replication_factor])
    for uid, found in list(wishes.rebalances.items()):
        change(wishes, uid, paused=False)
        brokers = found.spec.brokers or ()
        left = len(wishes.members) - len(brokers)
        short = found.spec.mode == "RemoveBrokers" and left < most
        if short or not set(brokers) <= set(wishes.members):
            delete(wishes, uid)


def delete(wishes: DesiredState, uid: str) -> None:
    """The object is deleted; the operator is to forget it."""
    found = wishes.rebalances.pop(uid)
    wishes.gone_rebalances[uid] = object_of(found)
