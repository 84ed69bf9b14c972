"""Delivers a leader's reply, which tells the follower where to truncate, when the follower has long
since refilled its log.

The follower also follows that leader in another partition, so their connection stays open.
"""

from __future__ import annotations

import random

from plimsoll_core.cluster.model import Partition
from plimsoll_sim.cluster.world import TOPIC
from plimsoll_sim.faults import observed_partitions, shared_steps
from plimsoll_sim.faults.fault_context import FaultContext, Script, Wait, pause
from plimsoll_sim.faults.observed_partitions import log_end
from plimsoll_sim.hosts.brokers import BrokerHost

COMMITTED_BEYOND = 3
"""Number of records that are committed beyond the outdated truncation offset before the reply
arrives."""


def strike(context: FaultContext, rng: random.Random) -> str | None:
    world = context.world
    partitions = observed_partitions.declared_partitions(world)
    busy = {q.leader for q in partitions if len(q.replicas) > 2}
    found = [
        (p, new)
        for p in partitions
        for new in p.isr
        if len(p.isr) > 2 and p.leader is not None and new != p.leader and new in busy
    ]
    if not found:
        return None
    p, new = rng.choice(found)
    assert p.leader is not None
    follower = rng.choice([one for one in p.isr if one not in (p.leader, new)])
    three = [world.brokers[int(one)] for one in (p.leader, new, follower)]
    context.run(_script(context, p, *three))
    return f"{TOPIC}-{p.index}: " + ", ".join(one.name for one in three)


def _script(
    context: FaultContext, p: Partition, old: BrokerHost, new: BrokerHost, follower: BrokerHost
) -> Script:
    key, world, network = p.key, context.world, context.world.network
    links = shared_steps.cut_between(world, old, [new])
    yield Wait(lambda: log_end(key, follower) > log_end(key, new) >= 0, 2_000)
    fetches = network.sides(lambda source, to: (source, to) == (follower.name, new.name))
    shared_steps.stall(world, fetches)
    yield from shared_steps.hand_over(context, p, new, old, follower)
    yield pause(700)
    replies = network.sides(lambda source, to: (source, to) == (new.name, follower.name))
    shared_steps.stall(world, replies)
    shared_steps.unstall(world, fetches)
    yield pause(300)
    shared_steps.heal(world, links)
    yield Wait(lambda: log_end(key, old) == log_end(key, new), 2_000)
    yield from shared_steps.hand_over(context, p, old, new, follower)
    cut_at = log_end(key, follower)
    ghost = world.ghost.partitions.get(key)

    def committed_beyond() -> bool:
        return ghost is not None and ghost.true_high_watermark > cut_at + COMMITTED_BEYOND

    yield Wait(committed_beyond, 2_000)
    yield from shared_steps.hand_over(context, p, new, old, follower)
    shared_steps.unstall(world, replies)
