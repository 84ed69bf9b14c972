"""Stops a broker cleanly while no controller runs, and starts it again before a controller notices
its absence.
"""

from __future__ import annotations

import random

from plimsoll_sim.faults import observed_partitions
from plimsoll_sim.faults.fault_context import FaultContext, Script, Wait, pause
from plimsoll_sim.hosts.brokers import BrokerHost


def strike(context: FaultContext, rng: random.Random) -> str | None:
    host = observed_partitions.running_broker(context.world, rng)
    if host is None:
        return None
    context.run(_script(context, host))
    return host.name


def _script(context: FaultContext, host: BrokerHost) -> Script:
    world = context.world
    gone = [one for one in world.operators if one.running]
    for one in gone:
        one.kill()
    host.stop()
    yield Wait(lambda: not host.running, 20_000)
    for one in gone:
        world.start_operator(one)
    yield pause(context.rng.randint(0, 500))
    world.start_broker(host)
