"""Faults of the network: links that are cut or slow, connections that stall."""

from __future__ import annotations

import random

from plimsoll_sim.environment.connection_end import End
from plimsoll_sim.faults import shared_steps
from plimsoll_sim.faults.fault_context import FaultContext
from plimsoll_sim.faults.shared_steps import Link

ONE_WAY_SHARE = 0.3
"""Share of cut links of which the opposite direction stays open."""
SLOW_US = (20_000, 300_000, 2_000_000)
ALL_SHARE = 0.5
"""Probability that a process reads slowly on all its connections instead of one."""
READS_LATE_US = (30_000, 300_000, 3_000_000)


def cut_link_between_brokers(context: FaultContext, rng: random.Random) -> str | None:
    one, other = rng.sample(list(context.world.brokers.values()), 2)
    return _cut(context, rng, [(one.name, other.name)])


def cut_broker_from_controllers(context: FaultContext, rng: random.Random) -> str | None:
    host = rng.choice(list(context.world.brokers.values()))
    return _cut(context, rng, [(host.name, one.name) for one in context.world.operators])


def isolate_broker(context: FaultContext, rng: random.Random) -> str | None:
    """Cut a broker off the controllers and all other brokers; only clients still reach it."""
    world = context.world
    host = rng.choice(list(world.brokers.values()))
    names = [one.name for one in world.operators]
    names += [one.name for one in world.brokers.values() if one is not host]
    both = [pair for name in names for pair in ((host.name, name), (name, host.name))]
    for link in both:
        world.network.cut(*link)
    context.heal_later(lambda: shared_steps.heal(world, both))
    return host.name


def cut_client_from_broker(context: FaultContext, rng: random.Random) -> str | None:
    world = context.world
    if not world.clients:
        return None
    client = rng.choice(world.clients).habits.name
    host = rng.choice(list(world.brokers.values()))
    return _cut(context, rng, [(client, host.name)])


def _cut(context: FaultContext, rng: random.Random, links: list[Link]) -> str:
    network = context.world.network
    one_way = rng.random() < ONE_WAY_SHARE
    both = links if one_way else [*links, *[(b, a) for a, b in links]]
    for link in both:
        network.cut(*link)
    context.heal_later(lambda: shared_steps.heal(context.world, both))
    return f"{links}{' one way' if one_way else ''}"


def slow_link(context: FaultContext, rng: random.Random) -> str | None:
    """Slow down the link from one broker or controller to another, in one direction."""
    slow = context.world.network.slow
    names = [host.name for host in context.world.brokers.values()]
    names += [host.name for host in context.world.operators]
    source, target = rng.sample(names, 2)
    slow[source, target] = rng.choice(SLOW_US)

    def mend() -> None:
        slow.pop((source, target), None)

    context.heal_later(mend)
    return f"{(source, target)}"


def read_slowly(context: FaultContext, rng: random.Random) -> str | None:
    """Make one side of a connection read slowly, or all connections of a process, so that its
    peers' send buffers fill where they are bounded."""
    world = context.world
    ends = world.network.sides(lambda source, to: True)
    if not ends:
        return None
    chosen = [rng.choice(ends)]
    if rng.random() < ALL_SHARE:
        chosen = [end for end in ends if end.process is chosen[0].process]
    late_us = rng.choice(READS_LATE_US)
    for end in chosen:
        end.reads_late_us = late_us

    def mend() -> None:
        for end in chosen:
            end.reads_late_us = 0

    context.heal_later(mend)
    return f"{chosen[0].process} on {len(chosen)} connections"


def stall_connection(context: FaultContext, rng: random.Random) -> str | None:
    """Delay what one side of a connection sends, perhaps until after the sender has ended."""
    names = {host.name for host in context.world.brokers.values()}
    ends = context.world.network.sides(lambda source, to: source in names or to in names)
    return _stall(context, [rng.choice(ends)]) if ends else None


def stall_sends_of_broker(context: FaultContext, rng: random.Random) -> str | None:
    """Delay everything that a broker sends to other brokers, and perhaps to controllers too."""
    world = context.world
    host = rng.choice(list(world.brokers.values()))
    receivers = {one.name for one in world.brokers.values()}
    if rng.random() < 0.5:
        receivers |= {one.name for one in world.operators}
    ends = world.network.sides(lambda source, to: source == host.name and to in receivers)
    return _stall(context, ends) if ends else None


def stall_metadata_stream(context: FaultContext, rng: random.Random) -> str | None:
    """Delay the metadata stream to a broker, so that it applies commits late. The broker's own
    requests are not delayed."""
    names = {host.name for host in context.world.operators}
    host = rng.choice(list(context.world.brokers.values()))
    ends = context.world.network.sides(lambda source, to: source in names and to == host.name)
    return _stall(context, [rng.choice(ends)]) if ends else None


def _stall(context: FaultContext, ends: list[End]) -> str:
    shared_steps.stall(context.world, ends)
    context.heal_later(lambda: shared_steps.unstall(context.world, ends))
    return "; ".join(f"{end.process} to {end.peer.process}" for end in ends)
