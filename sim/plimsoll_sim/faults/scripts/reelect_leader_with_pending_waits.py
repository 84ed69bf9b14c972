"""Replaces a leader and elects it again while clients still wait for a record of its first leader
epoch.

By then that record is gone, and others are committed in its place.
"""

from __future__ import annotations

import random

from plimsoll_core.cluster.model import Partition
from plimsoll_sim.cluster.world import TOPIC
from plimsoll_sim.faults import observed_partitions, shared_steps
from plimsoll_sim.faults.fault_context import FaultContext, Script, Wait
from plimsoll_sim.faults.observed_partitions import log_end
from plimsoll_sim.hosts.brokers import BrokerHost


def strike(context: FaultContext, rng: random.Random) -> str | None:
    world = context.world
    found = [p for p, _ in observed_partitions.led_partitions(world) if len(p.isr) > 2]
    if not found:
        return None
    p = rng.choice(found)
    others = rng.sample(sorted(one for one in p.isr if one != p.leader), 2)
    assert p.leader is not None
    three = [world.brokers[int(one)] for one in (p.leader, *others)]
    context.run(_script(context, p, *three))
    return f"{TOPIC}-{p.index}: " + ", ".join(one.name for one in three)


def _script(
    context: FaultContext, p: Partition, old: BrokerHost, new: BrokerHost, third: BrokerHost
) -> Script:
    key, world, rest = p.key, context.world, (new, third)
    links = shared_steps.cut_between(world, old, rest)
    yield Wait(lambda: log_end(key, old) > max(log_end(key, one) for one in rest), 2_000)
    end = log_end(key, old)
    yield from shared_steps.hand_over(context, p, new, old, third)
    shared_steps.heal(world, links)
    ghost = world.ghost.partitions.get(key)
    yield Wait(lambda: ghost is not None and ghost.true_high_watermark > end, 3_000)
    yield from shared_steps.hand_over(context, p, old, new, third)
