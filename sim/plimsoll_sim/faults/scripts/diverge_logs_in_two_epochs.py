"""Two replicas lead in turn; each writes without the other, and then the second follows the
first.
"""

from __future__ import annotations

import random

from plimsoll_core.cluster.model import PartitionKey
from plimsoll_sim.faults import observed_partitions, shared_steps
from plimsoll_sim.faults.fault_context import FaultContext, Script, Wait, pause
from plimsoll_sim.faults.observed_partitions import leads, log_end
from plimsoll_sim.hosts.brokers import BrokerHost


def strike(context: FaultContext, rng: random.Random) -> str | None:
    world = context.world
    p = observed_partitions.replicated_partition(world, rng, replicas_min=2)
    if p is None or len(p.isr) != 2 or p.leader is None:
        return None
    first = world.brokers[int(p.leader)]
    second = world.brokers[next(int(one) for one in p.isr if one != p.leader)]
    context.run(_script(context, p.key, first, second))
    return f"{first.name}, {second.name}"


def _script(
    context: FaultContext, key: PartitionKey, first: BrokerHost, second: BrokerHost
) -> Script:
    world = context.world
    links = shared_steps.cut_between(world, first, [second])
    yield Wait(lambda: log_end(key, first) > log_end(key, second) >= 0, 2_000)
    first.stop()
    yield Wait(lambda: leads(world, key, second) and not first.running, 4_000)
    end = log_end(key, second)
    yield Wait(lambda: log_end(key, second) > end, 2_000)
    world.start_broker(first)
    yield Wait(lambda: first.serving and observed_partitions.is_active(world, first) is True, 6_000)
    second.stop()
    yield Wait(lambda: leads(world, key, first) and not second.running, 4_000)
    world.note(f"story: {first.name} leads again: {leads(world, key, first)}")
    yield pause(context.rng.randint(0, 500))
    world.start_broker(second)
    shared_steps.heal(world, links)
