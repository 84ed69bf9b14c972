"""Replaces a leader by a lagging replica, kills that one, and elects the first leader again.

The first leader learns of both elections at once.
"""

from __future__ import annotations

import random

from plimsoll_core.cluster.model import PartitionKey
from plimsoll_core.ids import BrokerId
from plimsoll_sim.cluster.world import TOPIC
from plimsoll_sim.faults import observed_partitions, shared_steps
from plimsoll_sim.faults.fault_context import FaultContext, Script, Wait, pause


def strike(context: FaultContext, rng: random.Random) -> str | None:
    partitions = observed_partitions.declared_partitions(context.world)
    found = [p for p in partitions if len(p.replicas) > 2]
    if not found:
        return None
    p = rng.choice(found)
    context.run(_script(context, p.key))
    return f"{TOPIC}-{p.index}"


def _script(context: FaultContext, key: PartitionKey) -> Script:
    world, network, rng = context.world, context.world.network, context.rng

    def led_by() -> BrokerId | None:
        p = observed_partitions.committed(world, key)
        return None if p is None else p.leader

    def three_in_sync() -> bool:
        p = observed_partitions.committed(world, key)
        return p is not None and p.leader is not None and len(p.isr) > 2

    yield Wait(three_in_sync, 3_000)
    p = observed_partitions.committed(world, key)
    if p is None or p.leader is None or len(p.isr) <= 2:
        return
    old, new = p.leader, rng.choice([one for one in p.isr if one != p.leader])
    others = [one for one in p.replicas if one not in (old, new)]
    shared_steps.request_move(world, p.index, (new, old, *others))
    leader, next_leader = world.brokers[int(old)], world.brokers[int(new)]
    lagging = (leader.name, next_leader.name)
    hosts = {one.name for one in world.operators}
    network.cut(*lagging)
    yield pause(rng.randint(50, 500))
    metadata = network.sides(lambda source, to: source in hosts and to == leader.name)
    shared_steps.stall(world, metadata)
    shared_steps.request_preferred_leader(world, p.index)
    yield Wait(lambda: led_by() == new, 1_500)
    network.heal(*lagging)
    yield pause(rng.randint(0, 300))
    if led_by() == new:
        next_leader.kill()
        context.start_later(next_leader)
        yield Wait(lambda: led_by() not in (None, new), 2_000)
        world.note(f"story: {leader.name} leads again: {led_by() == old}")
    for end in metadata:
        network.reset(end)
