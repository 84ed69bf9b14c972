"""Edits of the LogCluster object: brokers that are removed and added, revisions of their pods."""

from __future__ import annotations

import random

from plimsoll_core.ids import BrokerId
from plimsoll_sim.desired import revisions
from plimsoll_sim.faults.fault_context import FaultContext


def remove_broker(context: FaultContext, rng: random.Random) -> str | None:
    """One member fewer, as long as the topics' replicas find room on the others."""
    world = context.world
    objects = world.objects
    factors = [wanted.replication_factor for wanted in objects.topics.values()]
    factors.append(world.options.factor_max)  # also of a topic that is made again, and of groups'
    members = objects.members
    if len(members) <= max(factors):
        return None
    going = rng.choice(members)
    kept = tuple(b for b in members if b != going)
    objects.set_members(kept, world.options.broker_ids)
    return f"broker {going} is not wanted any more"


def add_broker(context: FaultContext, rng: random.Random) -> str | None:
    """A broker that was removed, or is being removed, becomes a member again."""
    world = context.world
    objects = world.objects
    missing = [b for b in map(BrokerId, world.brokers) if b not in objects.members]
    if not missing:
        return None
    coming = rng.choice(missing)
    wanted = tuple(sorted((*objects.members, coming)))
    objects.set_members(wanted, world.options.broker_ids)
    return f"broker {coming} is wanted again"


def roll_brokers(context: FaultContext, rng: random.Random) -> str:
    """Give every broker's pod another revision, perhaps one that does not start until corrected."""
    world = context.world
    context.heal_later(lambda: revisions.correct(world.objects))
    return revisions.change(world.objects, rng)
