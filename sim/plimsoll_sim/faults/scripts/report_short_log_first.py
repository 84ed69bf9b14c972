"""Of the last two in-sync replicas, lets the one that lost data report its log first."""

from __future__ import annotations

import random
from functools import partial

from plimsoll_core.cluster.model import Partition
from plimsoll_core.ids import BrokerId
from plimsoll_sim.cluster.lost_disk_content import cut_power
from plimsoll_sim.cluster.world import TOPIC
from plimsoll_sim.faults import observed_partitions, shared_steps
from plimsoll_sim.faults.fault_context import FaultContext, Script, Wait, pause
from plimsoll_sim.hosts.brokers import BrokerHost


def strike(context: FaultContext, rng: random.Random) -> str | None:
    world = context.world
    found = [p for p in observed_partitions.declared_partitions(world) if len(p.isr) > 1]
    if not found:
        return None
    p = rng.choice(found)
    loser, slow = (world.brokers[int(b)] for b in rng.sample(sorted(p.isr), 2))
    context.run(_script(context, p, loser, slow))
    return f"{TOPIC}-{p.index}: {loser.name}, then {slow.name}"


def _script(context: FaultContext, p: Partition, loser: BrokerHost, slow: BrokerHost) -> Script:
    world, network = context.world, context.world.network
    rest = [world.brokers[int(b)] for b in p.replicas]
    rest = [host for host in rest if host not in (loser, slow) and host.running]
    for host in rest:
        host.kill()

    def in_sync(*hosts: BrokerHost) -> bool:
        now = observed_partitions.committed(world, p.key)
        return now is not None and set(now.isr) == {BrokerId(host.id) for host in hosts}

    yield Wait(partial(in_sync, loser, slow), 4_000)
    yield pause(context.rng.randint(100, 1_000))
    cut_power(world, loser)
    slow.kill()
    yield Wait(in_sync, 9_000)
    world.start_broker(loser)
    yield Wait(lambda: loser.serving, 6_000)
    life = world.ghost.image.brokers[BrokerId(slow.id)].broker_epoch
    world.start_broker(slow)

    def registered() -> bool:
        return world.ghost.image.brokers[BrokerId(slow.id)].broker_epoch != life

    yield Wait(registered, 6_000)
    hosts = {one.name for one in world.operators}
    reports = network.sides(lambda source, to: source == slow.name and to in hosts)
    shared_steps.stall(world, reports)
    yield pause(5_500)
    shared_steps.unstall(world, reports)
    for host in rest:
        world.start_broker(host)
