"""Delivers a follower's fetch, sent before the follower lost power, after it has registered
again.
"""

from __future__ import annotations

import random

from plimsoll_core.ids import BrokerId
from plimsoll_sim.cluster.lost_disk_content import cut_power
from plimsoll_sim.faults import observed_partitions, shared_steps
from plimsoll_sim.faults.fault_context import FaultContext, Script, Wait, pause
from plimsoll_sim.hosts.brokers import BrokerHost


def strike(context: FaultContext, rng: random.Random) -> str | None:
    found = observed_partitions.followed_partitions(context.world)
    if not found:
        return None
    _, leader, follower = rng.choice(found)
    context.run(_script(context, leader, follower))
    return f"{follower.name} to {leader.name}"


def _script(context: FaultContext, leader: BrokerHost, follower: BrokerHost) -> Script:
    world, network = context.world, context.world.network
    sent = network.sides(lambda source, to: (source, to) == (follower.name, leader.name))
    shared_steps.stall(world, sent)
    yield Wait(lambda: any(end.held for end in sent), 2_000)
    cut_power(world, follower)
    yield pause(context.rng.randint(0, 300))
    world.start_broker(follower)

    def has_fetched_again() -> bool:
        epoch = follower.epoch
        for hosted in leader.manager or ():
            leading = hosted.replica.leader
            known = None if leading is None else leading.followers.get(BrokerId(follower.id))
            if epoch is not None and known is not None and known.broker_epoch == epoch:
                return True
        return False

    yield Wait(has_fetched_again, 6_000)
    fetched = has_fetched_again()
    world.note(f"story: {leader.name} has heard of {follower.name}'s next life: {fetched}")
    shared_steps.unstall(world, sent)
