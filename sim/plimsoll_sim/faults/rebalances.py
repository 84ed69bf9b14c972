"""Rebalance objects as an administrator makes, pauses and gives them up.

Planning and approval are the operator's own code (`plimsoll_operator.reconcile.rebalance`).
"""

from __future__ import annotations

import random

from plimsoll_operator.api.meta import LocalClusterRef, ObjectMeta
from plimsoll_operator.api.rebalance import Limits, Mode, Rebalance, RebalanceSpec
from plimsoll_sim.desired import rebalances
from plimsoll_sim.faults.context import FaultContext

OBJECTS_MAX = 3
"""Objects that exist at the same time."""
MODES: tuple[Mode, ...] = ("Full", "AddBrokers", "RemoveBrokers", "PreferredLeaders")
ADDED_MAX = 2
REMOVED_MAX = 1


def start_rebalance(context: FaultContext, rng: random.Random) -> str | None:
    """An object of any mode; some wait for their approval."""
    wishes = context.world.wishes
    if len(wishes.rebalances) >= OBJECTS_MAX:
        return None
    name = f"rebalance-{len(wishes.rebalances) + len(wishes.gone_rebalances)}"
    mode = rng.choice(MODES)
    brokers = None
    if mode in ("AddBrokers", "RemoveBrokers"):
        most = ADDED_MAX if mode == "AddBrokers" else REMOVED_MAX
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


def end_rebalance(context: FaultContext, rng: random.Random) -> str | None:
    """An object is cancelled or deleted, whatever its phase."""
    wishes = context.world.wishes
    if not wishes.rebalances:
        return None
    uid = rng.choice(list(wishes.rebalances))
    name = wishes.rebalances[uid].metadata.name
    if rng.random() < 0.5:
        rebalances.change(wishes, uid, cancelled=True)
        return f"{name} is cancelled"
    rebalances.delete(wishes, uid)
    return f"{name} is deleted"


def pause_rebalance(context: FaultContext, rng: random.Random) -> str | None:
    """An object is paused; one that is paused goes on."""
    wishes = context.world.wishes
    if not wishes.rebalances:
        return None
    uid = rng.choice(list(wishes.rebalances))
    found = wishes.rebalances[uid]
    rebalances.change(wishes, uid, paused=not found.spec.paused)
    return f"{found.metadata.name} {'goes on' if found.spec.paused else 'is paused'}"
