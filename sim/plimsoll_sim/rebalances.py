"""Edits of Rebalance objects that faults and healing have in common, and what must come of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from plimsoll_operator.api.rebalance import Rebalance
from plimsoll_operator.reconcile.rebalance.request import object_of

if TYPE_CHECKING:
    from plimsoll_sim.operators import DesiredState
    from plimsoll_sim.world import World


def change(wishes: DesiredState, uid: str, **fields: Any) -> None:
    """The object's owner edits its spec."""
    found = wishes.rebalances[uid]
    meta = replace(found.metadata, generation=found.metadata.generation + 1)
    wishes.rebalances[uid] = Rebalance(metadata=meta, spec=replace(found.spec, **fields))


def heal(world: World) -> None:
    """Nothing stays paused, and what contradicts the topics or the members is given up."""
    wishes = world.wishes
    factors = [topic.replication_factor for topic in wishes.topics.values()]
    most = max([*factors, world.options.replication_factor])  # of a topic that is made again
    for uid, found in list(wishes.rebalances.items()):
        change(wishes, uid, paused=False)
        brokers = found.spec.brokers or ()
        left = len(wishes.members) - len(brokers)
        short = found.spec.mode == "RemoveBrokers" and left < most
        if short or not set(brokers) <= set(wishes.members):
            delete(wishes, uid)


def unfinished(world: World) -> list[str]:
    """Every one ends, and what is gone is forgotten."""
    image, wishes = world.ghost.image, world.wishes
    left = []
    for uid, found in wishes.rebalances.items():
        row = image.rebalances.get(uid)
        if row is None or row.phase in ("Beginning", "Running"):
            left.append(f"{found.metadata.name} has not ended: {row}")
    left += [f"{gone} is remembered" for gone in wishes.gone_rebalances if gone in image.rebalances]
    return left


def delete(wishes: DesiredState, uid: str) -> None:
    found = wishes.rebalances.pop(uid)
    wishes.gone_rebalances[uid] = object_of(found)
