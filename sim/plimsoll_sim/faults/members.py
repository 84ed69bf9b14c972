"""Edits of the LogCluster object: brokers that are removed and added, revisions of their pods."""

from __future__ import annotations

import random

from plimsoll_core.cluster.model import ClusterImage
from plimsoll_core.ids import BrokerId
from plimsoll_sim.desired import revisions
from plimsoll_sim.faults.context import FaultContext
from plimsoll_sim.hosts.brokers import BrokerHost


def remove_broker(context: FaultContext, rng: random.Random) -> str | None:
    """One member fewer, as long as the topics' replicas find room on the others."""
    world = context.world
    wishes = world.wishes
    factors = [wanted.replication_factor for wanted in wishes.topics.values()]
    factors.append(world.options.replication_factor)  # of a topic that is made again
    if len(wishes.members) <= max(factors):
        return None
    going = rng.choice(wishes.members)
    wishes.members = tuple(b for b in wishes.members if b != going)
    return f"broker {going} is not wanted any more"


def add_broker(context: FaultContext, rng: random.Random) -> str | None:
    """A broker that was removed, or is being removed, becomes a member again."""
    world = context.world
    wishes = world.wishes
    missing = [b for b in map(BrokerId, world.brokers) if b not in wishes.members]
    if not missing:
        return None
    coming = rng.choice(missing)
    wishes.members = tuple(sorted((*wishes.members, coming)))
    host = world.brokers[int(coming)]
    wiped = rng.random() < 0.5 and _is_unregistered(world.ghost.image, host)
    if wiped:
        host.volume.empty()
    return f"broker {coming} is wanted again{', on a new volume' if wiped else ''}"


def _is_unregistered(image: ClusterImage, host: BrokerHost) -> bool:
    known = {*image.brokers, *image.members}
    return host.removed and not host.running and BrokerId(host.id) not in known


def roll_brokers(context: FaultContext, rng: random.Random) -> str:
    """Another revision for every broker's pod, perhaps one that does not start until corrected."""
    world = context.world
    context.heal_later(lambda: revisions.correct(world.wishes))
    return revisions.change(world.wishes, rng)
