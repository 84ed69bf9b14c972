"""Read-only views of committed metadata and of the brokers' logs, from which faults choose a
target.

Committed metadata is what the simulator has seen in etcd (`MetadataGhost`), not what some process
has applied.
"""

from __future__ import annotations

import random
from typing import NamedTuple

from plimsoll_core.cluster.model import Partition, PartitionKey
from plimsoll_core.ids import BrokerId
from plimsoll_core.replica.leader import PendingExpand
from plimsoll_sim.cluster.world import TOPIC, World
from plimsoll_sim.hosts.brokers import BrokerHost


class LedPartition(NamedTuple):
    """A partition with a running leader."""

    partition: Partition
    leader: BrokerHost


class FollowedPartition(NamedTuple):
    """A partition with a running leader, and the running broker of one other replica, in sync or
    not."""

    partition: Partition
    leader: BrokerHost
    follower: BrokerHost


def running_broker(world: World, rng: random.Random) -> BrokerHost | None:
    hosts = [host for host in world.brokers.values() if host.running]
    return rng.choice(hosts) if hosts else None


def declared_partitions(world: World) -> list[Partition]:
    """Return the partitions of the declared topic, the only one that faults choose from."""
    image = world.ghost.image
    topic_id = image.topic_ids.get(TOPIC)
    return [p for p in image.partitions.values() if p.topic_id == topic_id]


def led_partitions(world: World) -> list[LedPartition]:
    brokers = world.brokers
    found = [
        LedPartition(p, brokers[int(p.leader)])
        for p in declared_partitions(world)
        if p.leader is not None
    ]
    return [led for led in found if led.leader.running]


def followed_partitions(world: World) -> list[FollowedPartition]:
    brokers = world.brokers
    return [
        FollowedPartition(p, leader, brokers[int(replica)])
        for p, leader in led_partitions(world)
        for replica in p.replicas
        if replica != p.leader and brokers[int(replica)].running
    ]


def replicated_partition(
    world: World, rng: random.Random, *, replicas_min: int
) -> Partition | None:
    """Return a random partition with at least `replicas_min` replicas, or None."""
    found = [p for p in declared_partitions(world) if len(p.replicas) >= replicas_min]
    return rng.choice(found) if found else None


def running_replica(world: World, rng: random.Random) -> tuple[Partition, BrokerHost] | None:
    """Return a random partition with two or more replicas, and the broker of one of these; None if
    that broker is stopped."""
    p = replicated_partition(world, rng, replicas_min=2)
    if p is None:
        return None
    host = world.brokers[int(rng.choice(p.replicas))]
    return (p, host) if host.running else None


def committed(world: World, key: PartitionKey) -> Partition | None:
    """Return the partition as it is committed now, or None if it is deleted."""
    return world.ghost.image.partitions.get(key)


def leads(world: World, key: PartitionKey, host: BrokerHost) -> bool:
    p = committed(world, key)
    return p is not None and p.leader == BrokerId(host.id)


def is_in_sync(world: World, key: PartitionKey, host: BrokerHost) -> bool:
    p = committed(world, key)
    return p is not None and BrokerId(host.id) in p.isr


def is_active(world: World, host: BrokerHost) -> bool | None:
    """Return True if the broker is registered and unfenced, False if it is fenced, None if it is
    not registered."""
    broker = world.ghost.image.brokers.get(BrokerId(host.id))
    return None if broker is None else broker.active


def all_in_sync(world: World, key: PartitionKey) -> bool:
    """Return True if the partition has a leader and every replica is in its ISR."""
    p = committed(world, key)
    return p is not None and p.leader is not None and len(p.isr) == len(p.replicas)


def log_end(key: PartitionKey, host: BrokerHost) -> int:
    """Return the log end offset of a broker's replica, -1 if the broker hosts none."""
    hosted = host.hosted(key)
    return -1 if hosted is None else hosted.log.log_end_offset


def knows_epoch(key: PartitionKey, host: BrokerHost, leader_epoch: int) -> bool:
    """Return True if a broker's replica has reached a leader epoch."""
    hosted = host.hosted(key)
    return hosted is not None and hosted.replica.partition.leader_epoch >= leader_epoch


def proposes(key: PartitionKey, leader: BrokerHost, joiner: BrokerHost) -> bool:
    """Return True if a leader's proposal that a follower joins its ISR is pending."""
    hosted = leader.hosted(key)
    leading = None if hosted is None else hosted.replica.leader
    isr = None if leading is None else leading.isr
    return isinstance(isr, PendingExpand) and isr.joining == joiner.id
