"""Restarts a follower without its data while its leader's proposal to add it to the ISR is in
progress.

The leader loses its connection to the controllers before it can send the proposal; the follower is
back before that connection is. So the proposal names an earlier broker epoch of the follower, and
so do fetches that arrive late.
"""

from __future__ import annotations

import random
from functools import partial

from plimsoll_core.cluster.model import Partition
from plimsoll_core.ids import BrokerId
from plimsoll_sim.cluster.lost_disk_content import cut_power
from plimsoll_sim.faults import observed_partitions, shared_steps
from plimsoll_sim.faults.fault_context import FaultContext, Script, Wait, pause
from plimsoll_sim.hosts.brokers import BrokerHost


def strike(context: FaultContext, rng: random.Random) -> str | None:
    found = [
        one
        for one in observed_partitions.followed_partitions(context.world)
        if BrokerId(one.follower.id) not in one.partition.isr
    ]
    if not found:
        return None
    p, leader, joiner = rng.choice(found)
    context.run(_script(context, p, leader, joiner))
    return f"{joiner.name} joins {leader.name}"


def _script(context: FaultContext, p: Partition, leader: BrokerHost, joiner: BrokerHost) -> Script:
    world, network, rng = context.world, context.world.network, context.rng
    hosts = [one.name for one in world.operators]
    away = [(leader.name, host) for host in hosts] + [(host, leader.name) for host in hosts]
    apart = [(leader.name, joiner.name), (joiner.name, leader.name)]
    for link in away:
        network.cut(*link)

    proposed = partial(observed_partitions.proposes, p.key, leader, joiner)
    yield Wait(proposed, 2_500)
    if proposed():
        world.note(f"story: {leader.name} has proposed {joiner.name}")
        names = {one.name for one in world.brokers.values()}
        sent = network.sides(lambda source, to: source == joiner.name and to in names)
        shared_steps.stall(world, sent)
        for link in apart:
            network.cut(*link)
        life = joiner.lives
        yield pause(rng.choice((0, 100)))
        cut_power(world, joiner)
        yield pause(rng.randint(0, 200))
        world.start_broker(joiner)
        yield Wait(lambda: joiner.lives > life and joiner.serving, 5_000)
        world.note(f"story: {joiner.name} serves in its next life: {joiner.serving}")
        for end in sent:
            context.heal_later(partial(network.unstall, end))
    shared_steps.heal(world, away)
    yield pause(rng.randint(0, 1_000))
    shared_steps.heal(world, apart)
