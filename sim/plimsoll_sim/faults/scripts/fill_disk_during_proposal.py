"""Fills a leader's disk, and frees it again, while the answer to the leader's proposal is delayed.

The proposal is committed. The leader continues in its leader epoch, and must still count the
replica that it proposed.
"""

from __future__ import annotations

import random

from plimsoll_core.cluster.model import PartitionKey
from plimsoll_sim.faults import observed_partitions, shared_steps
from plimsoll_sim.faults.fault_context import FaultContext, Script, Wait, pause
from plimsoll_sim.hosts.brokers import BrokerHost


def strike(context: FaultContext, rng: random.Random) -> str | None:
    found = observed_partitions.followed_partitions(context.world)
    if not found:
        return None
    p, leader, joiner = rng.choice(found)
    context.run(_script(context, p.key, leader, joiner))
    return f"{joiner.name} joins {leader.name}"


def _script(
    context: FaultContext, key: PartitionKey, leader: BrokerHost, joiner: BrokerHost
) -> Script:
    world = context.world

    def in_sync() -> bool:
        return observed_partitions.is_in_sync(world, key, joiner)

    links = shared_steps.cut_between(world, leader, [joiner])
    yield Wait(lambda: not in_sync(), 4_000)
    hosts = [one.name for one in world.operators]
    answers = world.network.sides(lambda source, to: source in hosts and to == leader.name)
    shared_steps.stall(world, answers)
    shared_steps.heal(world, links)
    yield Wait(in_sync, 3_000)
    world.note(f"story: {joiner.name} is in sync, {leader.name} has not heard: {in_sync()}")
    away = [(leader.name, host) for host in hosts]
    for link in away:
        world.network.cut(*link)
    leader.volume.full = True
    hosted = leader.hosted(key)
    yield Wait(lambda: hosted is None or hosted.replica.failed, 2_000)
    leader.volume.full = False
    yield pause(context.rng.randint(200, 2_000))
    shared_steps.heal(world, away)
    shared_steps.unstall(world, answers)
