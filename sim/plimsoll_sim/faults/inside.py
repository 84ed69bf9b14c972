"""Faults of certificates inside the cluster: an administrator who replaces the authority, clocks by
which certificates are old, and intruders.
"""

from __future__ import annotations

import random

from plimsoll_core.cluster.model import Partition
from plimsoll_sim.cluster import one_off_requests
from plimsoll_sim.cluster.secured import Secured, of_broker, of_operator
from plimsoll_sim.faults import observed_partitions
from plimsoll_sim.faults.fault_context import FaultContext
from plimsoll_sim.hosts.brokers import BrokerHost
from plimsoll_sim.hosts.intruder import REQUESTS, IntrudedHost, Intruder, is_allowed

DAYS = (21, 250, -21)
"""Days by which clocks are moved. Certificates are renewed after 20 days, the authority after
243."""
WRONG_DAYS = (30, 400, 1_500, -400)


def rotate_authority(context: FaultContext, _: random.Random) -> str | None:
    """Request another internal authority, unless one is already being introduced."""
    secured = context.world.secured
    if secured is None or next(secured.unfinished(), None) is not None:
        return None
    secured.rotate()
    return f"request {secured.asked}"


def step_operators_clocks(context: FaultContext, rng: random.Random) -> str | None:
    """Move the clocks of all operators, so that certificates appear older or younger than they
    are."""
    days, secured = rng.choice(DAYS), context.world.secured
    if secured is None:
        return None
    secured.days_pass(days, context.world.operators, context.world.weather)
    return f"by {days} days"


def mislead_operator(context: FaultContext, rng: random.Random) -> str | None:
    """Move the clock of one operator years ahead, or back."""
    secured, running = (
        context.world.secured,
        [one for one in context.world.operators if one.running],
    )
    if secured is None or not running:
        return None
    host, days = rng.choice(running), rng.choice(WRONG_DAYS)
    secured.mislead(days, [host])
    return f"{host.name} by {days} days"


def lose_status(context: FaultContext, _: random.Random) -> str | None:
    """Remove the LogCluster's status, as if the object had been restored from a backup that has
    none."""
    secured = context.world.secured
    if secured is None:
        return None
    secured.lose_status()
    return ""


def intrude(context: FaultContext, rng: random.Random) -> str | None:
    """Send one request to a broker or a controller, from a process outside the cluster that claims
    to be a broker."""
    world, posed = context.world, _posed(context, rng)
    if posed is None:
        return None
    secured, p, leader, follower = posed
    loot = secured.loot(rng, follower.id)
    who = secured.intruder(loot, follower.id)
    # The holder of an allowed certificate counts as that broker: no promise says otherwise.
    if who is None or is_allowed(world.ghost.image, loot, follower.id):
        return None
    operators = [host for host in world.operators if host.active]
    if operators and rng.random() < 0.5:
        operator, what = rng.choice(operators), rng.choice(REQUESTS)
        work = _commands(secured, who, of_operator(operator), what, rng)
        one_off_requests.by_somebody(world, work)
        return f"{what} as {follower.name} at {operator.name}, with {loot.name}"
    offset = max(observed_partitions.log_end(p.key, leader), 0)
    one_off_requests.by_somebody(world, _fetches(secured, who, leader, p, offset))
    return f"fetch as {follower.name} at {leader.name}, with {loot.name}"


def linger(context: FaultContext, rng: random.Random) -> str | None:
    """Connect to a leader as a follower with the Secret that a broker uses now, and stay
    connected."""
    world, posed = context.world, _posed(context, rng)
    if posed is None:
        return None
    secured, _, leader, follower = posed
    loot = secured.newest_of(follower.id)
    who = secured.intruder(loot, follower.id)
    if who is None:
        return None
    one_off_requests.by_somebody(world, _lingers(secured, who, leader))
    return f"as {follower.name} at {leader.name}"


def _posed(
    context: FaultContext, rng: random.Random
) -> tuple[Secured, Partition, BrokerHost, BrokerHost] | None:
    """Return a partition, its leader, and the follower that an intruder claims to be."""
    secured = context.world.secured
    found = observed_partitions.followed_partitions(context.world)
    return None if secured is None or not found else (secured, *rng.choice(found))


async def _lingers(secured: Secured, who: Intruder, leader: BrokerHost) -> None:
    secured.attempts[await who.linger(of_broker(leader))] += 1


async def _fetches(
    secured: Secured, who: Intruder, leader: BrokerHost, p: Partition, offset: int
) -> None:
    secured.attempts[await who.fetch(of_broker(leader), p, offset)] += 1


async def _commands(
    secured: Secured, who: Intruder, target: IntrudedHost, what: str, rng: random.Random
) -> None:
    secured.attempts[await who.command(target, what, rng)] += 1
