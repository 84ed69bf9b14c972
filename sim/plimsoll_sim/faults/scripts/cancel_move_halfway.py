"""Cancels a move when half of its target replicas are in sync and half of its source replicas are
gone.

The replica that joined, which holds the records acknowledged since, is down at that time.
"""

from __future__ import annotations

import random
from functools import partial

from plimsoll_core.cluster.model import Partition
from plimsoll_core.ids import BrokerId
from plimsoll_sim.cluster.world import TOPIC
from plimsoll_sim.faults import observed_partitions, shared_steps
from plimsoll_sim.faults.fault_context import FaultContext, Script, Wait, pause
from plimsoll_sim.hosts.brokers import BrokerHost


def strike(context: FaultContext, rng: random.Random) -> str | None:
    world = context.world
    found = [
        p
        for p in observed_partitions.declared_partitions(world)
        if len(p.replicas) == len(p.isr) == 2 and p.leader is not None and not p.moving
    ]
    if not found:
        return None
    p = rng.choice(found)
    running = [host for host in world.brokers.values() if host.running]
    others = [host for host in running if BrokerId(host.id) not in p.replicas]
    if len(others) < 2:
        return None
    joins, late = rng.sample(others, 2)
    context.run(_script(context, p, joins, late))
    return f"{TOPIC}-{p.index} to {joins.name}, {late.name}"


def _script(context: FaultContext, p: Partition, joins: BrokerHost, late: BrokerHost) -> Script:
    world = context.world
    old = [world.brokers[int(one)] for one in p.replicas]
    other = next(host for host in old if BrokerId(host.id) != p.leader)
    links = shared_steps.cut_between(world, late, old)
    shared_steps.request_move(world, p.index, (BrokerId(joins.id), BrokerId(late.id)))

    def left(host: BrokerHost) -> bool:
        return not observed_partitions.is_in_sync(world, p.key, host)

    yield Wait(partial(observed_partitions.is_in_sync, world, p.key, joins), 4_000)
    for host in (other, joins):
        host.kill()
        yield Wait(partial(left, host), 3_000)
    world.note(f"story: {joins.name} had joined {TOPIC}-{p.index}")
    shared_steps.request_move(world, p.index, None)
    yield pause(context.rng.randint(500, 1_500))
    shared_steps.heal(world, links)
    for host in (other, joins):
        world.start_broker(host)
