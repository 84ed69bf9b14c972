"""Rebalances as an administrator wishes for them: any mode, approved or not, paused, given up.

Part of what goes wrong: each says what it did, None for nothing.  Planning and approval are the
operator's own code (`plimsoll_operator.reconcile.rebalance.planning`).
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from plimsoll_operator.api.meta import LocalClusterRef, ObjectMeta
from plimsoll_operator.api.rebalance import Limits, Mode, Rebalance, RebalanceSpec
from plimsoll_operator.reconcile.rebalance.request import object_of

if TYPE_CHECKING:
    from plimsoll_sim.operators import DesiredState
    from plimsoll_sim.world import World

REBALANCES_MAX = 3
"""Objects that exist at the same time."""
MODES: tuple[Mode, ...] = ("Full", "AddBrokers", "RemoveBrokers", "PreferredLeaders")


def start(world: World, rng: random.Random) -> str | None:
    """An object of any mode; some wait for their approval."""
    wishes = world.wishes
    if len(wishes.rebalances) >= REBALANCES_MAX:
        return None
    name = f"rebalance-{len(wishes.rebalances) + len(wishes.gone_rebalances)}"
    mode = rng.choice(MODES)
    brokers = None
    if mode in ("AddBrokers", "RemoveBrokers"):
        most = 2 if mode == "AddBrokers" else 1
        most = min(most, len(wishes.members))
        chosen = rng.sample(list(wishes.members), rng.randint(1, most))
        brokers = tuple(sorted(int(broker) for broker in chosen))
    spec = RebalanceSpec(
        cluster_ref=LocalClusterRef(name="sim"),
        mode=mode,
        brokers=brokers,
        approval=rng.choice(("Manual", "Automatic")),
        limits=Limits(concurrent_moves_per_broker=rng.choice((1, 2, 5))),
    )
    meta = ObjectMeta(name=name, namespace="sim", uid=f"uid-of-{name}", generation=1)
    wishes.rebalances[meta.uid] = Rebalance(metadata=meta, spec=spec)
    return f"{name}: {spec}"


def end(world: World, rng: random.Random) -> str | None:
    """It is cancelled, or its object is deleted, whatever has become of it."""
    wishes = world.wishes
    if not wishes.rebalances:
        return None
    uid = rng.choice(list(wishes.rebalances))
    name = wishes.rebalances[uid].metadata.name
    if rng.random() < 0.5:
        change(wishes, uid, cancelled=True)
        return f"{name} is cancelled"
    _delete(wishes, uid)
    return f"{name} is deleted"


def pause(world: World, rng: random.Random) -> str | None:
    """Paused, or going on again."""
    wishes = world.wishes
    if not wishes.rebalances:
        return None
    uid = rng.choice(list(wishes.rebalances))
    found = wishes.rebalances[uid]
    change(wishes, uid, paused=not found.spec.paused)
    return f"{found.metadata.name} {'goes on' if found.spec.paused else 'is paused'}"


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
            _delete(wishes, uid)


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


def _delete(wishes: DesiredState, uid: str) -> None:
    found = wishes.rebalances.pop(uid)
    wishes.gone_rebalances[uid] = object_of(found)
