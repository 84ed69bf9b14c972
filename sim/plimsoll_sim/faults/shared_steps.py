"""Steps that several faults share: cutting links, requesting moves, and handing over leadership."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial

from plimsoll_core.cluster.model import Partition
from plimsoll_core.ids import BrokerId
from plimsoll_core.messages.elections import ElectLeaders, PartitionName
from plimsoll_core.messages.moves import AlterReassignments, PartitionTarget
from plimsoll_sim.cluster.world import TOPIC, World
from plimsoll_sim.environment.connection_end import End
from plimsoll_sim.faults import observed_partitions
from plimsoll_sim.faults.fault_context import FaultContext, Script, Wait
from plimsoll_sim.hosts.brokers import BrokerHost

Link = tuple[str, str]
"""A direction between two hosts: (source, target)."""


def cut_between(world: World, broker: BrokerHost, others: Iterable[BrokerHost]) -> list[Link]:
    """Cut a broker off from the others, in both directions. Return the cut links, for `heal`."""
    names = [other.name for other in others]
    links = [(broker.name, name) for name in names] + [(name, broker.name) for name in names]
    for link in links:
        world.network.cut(*link)
    return links


def heal(world: World, links: Iterable[Link]) -> None:
    for link in links:
        world.network.heal(*link)


def stall(world: World, ends: Iterable[End]) -> None:
    """Hold back what these sides of connections send, until `unstall`."""
    for end in ends:
        world.network.stall(end)


def unstall(world: World, ends: Iterable[End]) -> None:
    for end in ends:
        world.network.unstall(end)


def request_move(world: World, index: int, replicas: tuple[BrokerId, ...] | None) -> None:
    """Request a move of the partition with this index, as a client (AlterPartitionReassignments).
    `replicas` None: cancel its move."""
    target = PartitionTarget(topic=TOPIC, index=index, replicas=replicas)
    world.order(AlterReassignments(targets=(target,)))


def request_preferred_leader(world: World, index: int) -> None:
    """Request the preferred leader of the partition with this index, as a client (ElectLeaders)."""
    name = PartitionName(topic=TOPIC, index=index)
    world.order(ElectLeaders(kind="Preferred", partitions=(name,)))


def hand_over(
    context: FaultContext, p: Partition, to: BrokerHost, other: BrokerHost, follower: BrokerHost
) -> Script:
    """Make `to` the preferred leader, elect it, and wait until `follower` knows its epoch."""
    world = context.world
    first = [BrokerId(one.id) for one in (to, other, follower)]
    rest = [one for one in p.replicas if one not in first]
    request_move(world, p.index, (*first, *rest))
    request_preferred_leader(world, p.index)
    yield Wait(partial(observed_partitions.leads, world, p.key, to), 3_000)
    now = observed_partitions.committed(world, p.key)
    epoch = 0 if now is None else int(now.leader_epoch)
    yield Wait(partial(observed_partitions.knows_epoch, p.key, follower, epoch), 2_000)
    leads = observed_partitions.leads(world, p.key, to)
    world.note(f"story: {to.name} leads {TOPIC}-{p.index}: {leads}")
