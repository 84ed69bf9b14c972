"""Delays a leader's proposal to add a follower to the ISR, or the answer, until a later event
overtakes it.
"""

from __future__ import annotations

import random
from functools import partial
from typing import Literal, NamedTuple

from plimsoll_core.cluster.model import PartitionKey
from plimsoll_sim.cluster.lost_disk_content import cut_power
from plimsoll_sim.faults import observed_partitions, shared_steps, topics
from plimsoll_sim.faults.fault_context import FaultContext, Script, Wait, pause
from plimsoll_sim.hosts.brokers import BrokerHost

By = Literal["its stop", "its death", "its next life", "min ISR", "metadata"]
OVERTAKEN_BY: tuple[By, ...] = ("its stop", "its death", "its next life", "min ISR", "metadata")


class Proposal(NamedTuple):
    """A proposal to delay: the partition, its leader, the broker that the leader is made to
    propose, and the event that overtakes the proposal: an action of the follower, another min ISR,
    or the proposal's own metadata before its answer."""

    key: PartitionKey
    leader: BrokerHost
    joiner: BrokerHost
    by: By


def strike(context: FaultContext, rng: random.Random) -> str | None:
    found = observed_partitions.followed_partitions(context.world)
    if not found:
        return None
    p, leader, joiner = rng.choice(found)
    proposal = Proposal(p.key, leader, joiner, rng.choice(OVERTAKEN_BY))
    context.run(_script(context, proposal))
    return f"{joiner.name} joins {leader.name}, overtaken by {proposal.by}"


def _script(context: FaultContext, proposal: Proposal) -> Script:
    key, leader, joiner, by = proposal
    world, network, rng = context.world, context.world.network, context.rng

    def in_sync() -> bool:
        return observed_partitions.is_in_sync(world, key, joiner)

    if in_sync():
        links = shared_steps.cut_between(world, leader, [joiner])
        yield Wait(lambda: not in_sync(), 4_000)
        shared_steps.heal(world, links)
    hosts = [one.name for one in world.operators]
    senders, receivers = (hosts, [leader.name]) if by == "metadata" else ([leader.name], hosts)
    delayed = network.sides(lambda source, to: source in senders and to in receivers)
    shared_steps.stall(world, delayed)
    proposed = partial(observed_partitions.proposes, key, leader, joiner)
    yield Wait(proposed, 3_000)
    world.note(f"story: {leader.name} proposes: {proposed()}, then {by}")
    if by == "metadata":
        yield Wait(in_sync, 2_000)
        if delayed:
            network.reset(delayed.pop(rng.randrange(len(delayed))))
        yield pause(rng.randint(200, 1_500))
    else:
        yield from _overtake(context, proposal)
    shared_steps.unstall(world, delayed)
    if by == "its next life":
        yield pause(500)
        shared_steps.heal(world, [(leader.name, joiner.name), (joiner.name, leader.name)])


def _overtake(context: FaultContext, proposal: Proposal) -> Script:
    key, leader, joiner, by = proposal
    world, rng = context.world, context.rng
    before, life = observed_partitions.committed(world, key), joiner.lives
    if by == "min ISR":
        topics.change_min_isr(context, rng)
        yield Wait(lambda: observed_partitions.committed(world, key) != before, 2_000)
        yield pause(rng.randint(100, 600))
    elif by == "its next life":
        shared_steps.cut_between(world, leader, [joiner])
        cut_power(world, joiner)
        yield pause(rng.randint(0, 200))
        world.start_broker(joiner)
        yield Wait(lambda: joiner.lives > life and joiner.serving, 5_000)
    else:
        if by == "its stop":
            joiner.stop()
        else:
            joiner.kill()
        yield Wait(lambda: observed_partitions.is_active(world, joiner) is False, 2_000)
        context.start_later(joiner)
