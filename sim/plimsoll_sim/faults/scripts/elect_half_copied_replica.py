"""Elects a follower in the middle of its copy of a log, and lets the leadership return.

The follower is away while its leader goes on alone and perhaps cleans its log. The leader dies when
the follower copies that. If the topic's strategy lets the follower lead, the former leader comes
back, is in sync and preferred, and dies again soon after it leads.
"""

from __future__ import annotations

import random
from functools import partial

from plimsoll_core.ids import BrokerId
from plimsoll_sim.cluster.world import TOPIC
from plimsoll_sim.faults import observed_partitions, shared_steps
from plimsoll_sim.faults.fault_context import FaultContext, Script, Wait, pause
from plimsoll_sim.faults.observed_partitions import FollowedPartition, log_end

SLOW_US = 300_000


def strike(context: FaultContext, rng: random.Random) -> str | None:
    found = observed_partitions.followed_partitions(context.world)
    if not found:
        return None
    chosen = rng.choice(found)
    context.run(_script(context, chosen))
    return f"{TOPIC}-{chosen.partition.index}: {chosen.follower.name}"


def _script(context: FaultContext, chosen: FollowedPartition) -> Script:
    p, leader, follower = chosen
    key, world = p.key, context.world
    follower.kill()
    yield Wait(lambda: not observed_partitions.is_in_sync(world, key, follower), 4_000)
    yield pause(context.rng.choice((2_000, 4_000)))
    links = [(leader.name, follower.name), (follower.name, leader.name)]
    for link in links:
        world.network.slow[link] = SLOW_US
    world.start_broker(follower)

    def half_copied() -> bool:
        hosted = follower.hosted(key)
        if hosted is None or hosted.replica.leader is not None:
            return False
        return hosted.replica.compacted_copy.superseded_below > hosted.log.log_end_offset

    yield Wait(half_copied, 4_000)
    copied = half_copied()
    if copied:
        world.note(f"story: {follower.name} has copied half of {leader.name}'s log")
        leader.kill()
        yield Wait(partial(observed_partitions.leads, world, key, follower), 8_000)
    for link in links:
        world.network.slow.pop(link, None)
    if copied:
        yield from _return(context, chosen)


def _return(context: FaultContext, chosen: FollowedPartition) -> Script:
    """Make the former leader lead again, and kill it while the other one follows."""
    p, leader, follower = chosen
    key, world = p.key, context.world
    world.start_broker(leader)
    yield Wait(partial(observed_partitions.is_in_sync, world, key, leader), 8_000)
    first = (BrokerId(leader.id), BrokerId(follower.id))
    rest = (one for one in p.replicas if one not in first)
    shared_steps.request_move(world, p.index, (*first, *rest))
    shared_steps.request_preferred_leader(world, p.index)
    yield Wait(partial(observed_partitions.leads, world, key, leader), 3_000)
    if not observed_partitions.leads(world, key, leader):
        return
    end = log_end(key, follower)
    world.note(f"story: {leader.name} leads again, {follower.name} has {end} offsets")
    yield Wait(lambda: log_end(key, follower) < end, context.rng.choice((100, 500)))
    leader.kill()
    context.start_later(leader)
