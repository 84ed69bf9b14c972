"""A client deletes records while a replica that may be elected cleanly is down.

The followers stop cleanly. The last ones leave an ISR that is below min ISR, so they are in the
ELR. Then the leader goes down, and they come back before it.
"""

from __future__ import annotations

import random

from plimsoll_core.cluster.model import PartitionKey
from plimsoll_core.ids import BrokerId
from plimsoll_sim.cluster import one_off_requests
from plimsoll_sim.cluster.world import TOPIC
from plimsoll_sim.faults import observed_partitions
from plimsoll_sim.faults.fault_context import FaultContext, Script, Wait, pause
from plimsoll_sim.hosts.brokers import BrokerHost


def strike(context: FaultContext, rng: random.Random) -> str | None:
    found = [
        one
        for one in observed_partitions.followed_partitions(context.world)
        if len(one.partition.isr) >= one.partition.effective_min_isr > 1
    ]
    if not found:
        return None
    p, leader, _ = rng.choice(found)
    context.run(_script(context, p.key, leader))
    return f"{TOPIC}-{p.index} at {leader.name}"


def _script(context: FaultContext, key: PartitionKey, leader: BrokerHost) -> Script:
    world, rng = context.world, context.rng
    p, ghost = observed_partitions.committed(world, key), world.ghost.partitions.get(key)
    if p is None or ghost is None:
        return
    away = [world.brokers[int(b)] for b in p.replicas if b != BrokerId(leader.id)]
    for host in away:
        host.stop()

    def alone() -> bool:
        now = observed_partitions.committed(world, key)
        return now is not None and now.isr == (BrokerId(leader.id),) and bool(now.elr)

    yield Wait(alone, 12_000)
    hosted = leader.hosted(key)
    world.note(f"story: {leader.name} is alone: {alone()}")
    if alone() and hosted is not None and hosted.replica.leader is not None:
        start, end = hosted.log.log_start_offset, hosted.replica.high_watermark
        if start < end:
            offset = rng.randint(start + 1, end)
            one_off_requests.by_somebody(
                world, one_off_requests.delete_once(leader.name, ghost, offset)
            )
        yield pause(rng.randint(50, 1_000))
    leader.kill() if rng.random() < 0.5 else leader.stop()
    yield pause(rng.randint(200, 1_000))
    for host in away:
        world.start_broker(host)

    def led() -> bool:
        now = observed_partitions.committed(world, key)
        return now is not None and now.leader is not None

    yield Wait(led, 12_000)
    yield pause(rng.randint(50, 1_000))
    world.start_broker(leader)
