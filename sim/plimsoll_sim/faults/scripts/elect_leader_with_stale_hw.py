"""Elects a leader with a high watermark below what its predecessor committed.

The predecessor drops a follower that it cannot reach from the ISR, commits without it and is
killed. The other followers do not know yet up to where records were committed, and reach the
dropped follower before they reach each other.
"""

from __future__ import annotations

import random
from functools import partial

from plimsoll_core.cluster.model import PartitionKey
from plimsoll_sim.cluster.world import TOPIC
from plimsoll_sim.faults import observed_partitions, shared_steps
from plimsoll_sim.faults.fault_context import FaultContext, Script, Wait, pause
from plimsoll_sim.hosts.brokers import BrokerHost

SLOW_US = 1_000_000


def strike(context: FaultContext, rng: random.Random) -> str | None:
    partitions = observed_partitions.declared_partitions(context.world)
    found = [p for p in partitions if len(p.replicas) > 2]
    if not found:
        return None
    p = rng.choice(found)
    context.run(_script(context, p.key))
    return f"{TOPIC}-{p.index}"


def _script(context: FaultContext, key: PartitionKey) -> Script:
    world, network = context.world, context.world.network

    def three_in_sync() -> bool:
        p = observed_partitions.committed(world, key)
        return p is not None and p.leader is not None and len(p.isr) > 2

    yield Wait(three_in_sync, 3_000)
    p = observed_partitions.committed(world, key)
    if p is None or p.leader is None or len(p.isr) <= 2:
        return
    leader = world.brokers[int(p.leader)]
    others = [one for one in p.isr if one != p.leader]
    dropped = world.brokers[int(context.rng.choice(others))]
    apart = shared_steps.cut_between(world, leader, [dropped])

    def committed_without() -> bool:
        mine, theirs = leader.hosted(key), dropped.hosted(key)
        if mine is None or theirs is None or mine.replica.leader is None:
            return False
        return mine.replica.high_watermark > theirs.log.log_end_offset

    yield Wait(committed_without, 4_000)
    if committed_without():
        world.note(f"story: {leader.name} committed without {dropped.name}")
        yield from _kill_leader(context, leader, dropped)
    for link in apart:
        context.heal_later(partial(network.heal, *link))


def _kill_leader(context: FaultContext, leader: BrokerHost, dropped: BrokerHost) -> Script:
    """Let clients learn the high watermark, but not the next leaders; then kill the leader."""
    world, network = context.world, context.world.network
    heirs = [one.name for one in world.brokers.values() if one not in (leader, dropped)]
    slow = [(one, to) for one in heirs for to in (*heirs, dropped.name) if one != to]
    for link in slow:
        network.slow[link] = SLOW_US
    replies = network.sides(lambda source, to: source == leader.name and to in heirs)
    shared_steps.stall(world, replies)
    yield pause(context.rng.choice((0, 400, 800)))
    leader.kill()
    yield pause(1_500)
    for link in slow:
        network.slow.pop(link, None)
    shared_steps.unstall(world, replies)
    context.start_later(leader)
