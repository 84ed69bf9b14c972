"""Gives the last in-sync replica its disk of an earlier clean stop back, with the marker of that
stop.
"""

from __future__ import annotations

import random
from functools import partial

from plimsoll_core.cluster.model import Partition
from plimsoll_core.ids import BrokerId
from plimsoll_sim.cluster.lost_disk_content import change_disk, image_of
from plimsoll_sim.cluster.world import TOPIC
from plimsoll_sim.faults import observed_partitions
from plimsoll_sim.faults.fault_context import FaultContext, Script, Wait, pause
from plimsoll_sim.hosts.brokers import BrokerHost


def strike(context: FaultContext, rng: random.Random) -> str | None:
    found = observed_partitions.running_replica(context.world, rng)
    if found is None:
        return None
    p, host = found
    context.run(_script(context, p, host))
    return f"{host.name} {TOPIC}-{p.index}"


def _script(context: FaultContext, p: Partition, host: BrokerHost) -> Script:
    world = context.world
    host.stop()
    yield Wait(lambda: not host.running, 5_000)
    if host.running:
        return
    image = image_of(host)
    world.start_broker(host)
    yield Wait(partial(observed_partitions.all_in_sync, world, p.key), 6_000)
    yield pause(context.rng.randint(100, 1_000))
    others = [world.brokers[int(one)] for one in p.replicas if one != BrokerId(host.id)]
    for one in others:
        if one.running:
            one.kill()

    def alone() -> bool:
        now = observed_partitions.committed(world, p.key)
        return now is not None and now.isr == (BrokerId(host.id),)

    yield Wait(alone, 8_000)
    world.note(f"story: {host.name} is alone: {alone()}")
    change_disk(world, host, image)
    world.start_broker(host)
    yield pause(context.rng.randint(1_000, 3_000))
    for one in others:
        world.start_broker(one)
