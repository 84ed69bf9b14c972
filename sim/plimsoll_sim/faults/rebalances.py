"""Rebalance objects as an administrator makes, pauses and gives them up."""

from __future__ import annotations

import random

from plimsoll_operator.api.meta import LocalClusterRef
from plimsoll_operator.api.rebalance import Limits, Mode, RebalanceSpec
from plimsoll_operator.kube.resources import REBALANCES
from plimsoll_sim.faults.fault_context import FaultContext

OBJECTS_MAX = 3
"""Objects that exist at the same time."""
MODES: tuple[Mode, ...] = ("Full", "AddBrokers", "RemoveBrokers", "PreferredLeaders")
ADDED_MAX = 2
REMOVED_MAX = 1


def start_rebalance(context: FaultContext, rng: random.Random) -> str | None:
    """An object of any mode; some wait for their approval."""
    objects = context.world.objects
    if len(objects.rebalances) >= OBJECTS_MAX:
        return None
    name = f"rebalance-{objects.made.get(REBALANCES, 0)}"
    mode = rng.choice(MODES)
    brokers = None
    if mode in ("AddBrokers", "RemoveBrokers"):
        most = ADDED_MAX if mode == "AddBrokers" else REMOVED_MAX
        members = list(objects.members)
        chosen = rng.sample(members, rng.randint(1, min(most, len(members))))
        brokers = tuple(sorted(int(broker) for broker in chosen))
    spec = RebalanceSpec(
        cluster_ref=LocalClusterRef(name=objects.name),
        mode=mode,
        brokers=brokers,
        approval=rng.choice(("Manual", "Automatic")),
        limits=Limits(concurrent_moves_per_broker=rng.choice((1, 2, 5))),
    )
    objects.create(REBALANCES, name, spec)
    return f"{name}: {spec}"


def end_rebalance(context: FaultContext, rng: random.Random) -> str | None:
    """An object is cancelled or deleted, whatever its phase."""
    objects = context.world.objects
    if not objects.rebalances:
        return None
    name = rng.choice(list(objects.rebalances))
    if rng.random() < 0.5:
        objects.edit(REBALANCES, name, cancelled=True)
        return f"{name} is cancelled"
    objects.delete(REBALANCES, name)
    return f"{name} is deleted"


def pause_rebalance(context: FaultContext, rng: random.Random) -> str | None:
    """An object is paused; one that is paused goes on."""
    objects = context.world.objects
    if not objects.rebalances:
        return None
    name = rng.choice(list(objects.rebalances))
    paused = bool(objects.rebalances[name].spec.paused)
    objects.edit(REBALANCES, name, paused=None if paused else True)
    return f"{name} {'goes on' if paused else 'is paused'}"
