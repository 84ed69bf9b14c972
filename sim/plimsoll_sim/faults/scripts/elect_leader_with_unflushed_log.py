"""A follower with a slow disk is elected when its leader is killed, and then loses power.

If every batch is flushed before it is acknowledged, acknowledged records must be on the new
leader's disk nevertheless.
"""

from __future__ import annotations

import random

from plimsoll_core.cluster.model import PartitionKey
from plimsoll_core.ids import BrokerId
from plimsoll_sim.cluster.lost_disk_content import cut_power
from plimsoll_sim.faults import observed_partitions
from plimsoll_sim.faults.disks import SLOW_IO_US
from plimsoll_sim.faults.fault_context import FaultContext, Script, Wait, pause
from plimsoll_sim.hosts.brokers import BrokerHost


def strike(context: FaultContext, rng: random.Random) -> str | None:
    found = [
        one
        for one in observed_partitions.followed_partitions(context.world)
        if BrokerId(one.follower.id) in one.partition.isr
    ]
    if not found:
        return None
    p, leader, heir = rng.choice(found)
    context.run(_script(context, p.key, leader, heir))
    return f"{heir.name} after {leader.name}"


def _script(
    context: FaultContext, key: PartitionKey, leader: BrokerHost, heir: BrokerHost
) -> Script:
    world, slow = context.world, context.world.loop.slow_io
    slow[heir.name] = SLOW_IO_US

    def unflushed() -> bool:
        hosted = heir.hosted(key)
        return hosted is not None and hosted.log.flushed_end < hosted.log.log_end_offset

    def elected() -> bool:
        return observed_partitions.leads(world, key, heir)

    yield Wait(unflushed, 2_000)
    yield pause(context.rng.randint(0, 300))
    leader.kill()
    yield Wait(elected, 3_000)
    world.note(f"story: {heir.name} leads: {elected()}")
    # The records that it gets in a second as leader are not flushed either.
    yield pause(context.rng.choice((0, 0, 1_000)))
    cut_power(world, heir)
    slow.pop(heir.name, None)
    for host in (heir, leader):
        context.start_later(host)
