"""Faults that are requests: of clients that are not among the run's producers and consumers, and of
impostors.
"""

from __future__ import annotations

import random

from plimsoll_core.ids import BrokerId
from plimsoll_core.messages.elections import ElectLeaders
from plimsoll_sim.cluster import one_off_requests
from plimsoll_sim.cluster.world import TOPIC
from plimsoll_sim.faults import observed_partitions, shared_steps
from plimsoll_sim.faults.fault_context import FaultContext
from plimsoll_sim.hosts.brokers import KAFKA_PORT, REPLICATION_PORT
from plimsoll_sim.hosts.clients import Producer

COMMITTED_SHARE = 0.7
"""Share of DeleteRecords requests for offsets below the high watermark; the others are refused."""
DAMAGED_MAX = 3
"""Greatest number of batches that one fault damages."""
UNREGISTERED_EPOCHS_AHEAD = (1, 2**40)


def delete_records(context: FaultContext, rng: random.Random) -> str | None:
    """Delete a partition's oldest records by a DeleteRecords request."""
    world = context.world
    found = [
        (p, host, hosted)
        for p, host in observed_partitions.led_partitions(world)
        if (hosted := host.hosted(p.key))
    ]
    if not found:
        return None
    p, host, hosted = rng.choice(found)
    ghost = world.ghost.partitions.get(p.key)
    start, end = hosted.log.log_start_offset, hosted.log.log_end_offset
    if start >= end or ghost is None:
        return None
    if rng.random() < COMMITTED_SHARE:
        end = max(hosted.replica.high_watermark, start + 1)
    offset = rng.randint(start + 1, end)
    one_off_requests.by_somebody(world, one_off_requests.delete_once(host.name, ghost, offset))
    return f"{TOPIC}-{p.index} up to {offset} at {host.name}"


def damage_batches(context: FaultContext, rng: random.Random) -> str | None:
    """Change a bit in some of the next batches of a producer, on their way to the broker."""
    producers = [one for one in context.world.clients if isinstance(one, Producer)]
    if not producers:
        return None
    chosen = rng.choice(producers)
    count = rng.randint(1, DAMAGED_MAX)
    chosen.damages.extend(random.Random(rng.getrandbits(64)) for _ in range(count))
    return f"{count} of {chosen.habits.name}"


def fetch_as_impostor(context: FaultContext, rng: random.Random) -> str | None:
    """Send a Fetch as an impostor: as a replica that has everything, in an unregistered broker
    epoch or on the clients' port, or as a replica that has nothing, where the leader trusts it. The
    Fetch names a controller epoch that does not exist."""
    world = context.world
    found = observed_partitions.followed_partitions(world)
    if not found:
        return None
    p, leader, follower = rng.choice(found)
    broker = world.ghost.image.brokers[BrokerId(follower.id)]
    ahead, port = rng.choice(
        (
            *((epochs, REPLICATION_PORT) for epochs in UNREGISTERED_EPOCHS_AHEAD),
            (0, KAFKA_PORT),
            (0, REPLICATION_PORT),
        )
    )
    believed = port == REPLICATION_PORT and not ahead
    claim = one_off_requests.Claim(
        follower.id,
        broker.broker_epoch + ahead,
        0 if believed else max(observed_partitions.log_end(p.key, leader), 0),
        rng.choice((0, 2**31)),
    )
    one_off_requests.by_somebody(world, one_off_requests.pretend(leader.name, port, p, claim))
    return f"as {follower.name} at {leader.name}:{port}, {claim}"


def elect_preferred_leaders(context: FaultContext, _: random.Random) -> str:
    """Request preferred leaders for all partitions (ElectLeaders)."""
    context.world.order(ElectLeaders(kind="Preferred", needed_only=True))
    return "of all partitions"


def move_replicas(context: FaultContext, rng: random.Random) -> str | None:
    """Request a move to any brokers (AlterPartitionReassignments), which replaces a move in
    progress."""
    world = context.world
    wanted = world.objects.declared(TOPIC)
    if wanted is None:
        return None
    index = rng.randrange(wanted.partitions)
    replicas = rng.sample(list(world.brokers), wanted.replication_factor)
    shared_steps.request_move(world, index, tuple(BrokerId(one) for one in replicas))
    return f"{TOPIC}-{index} to {replicas}"


def cancel_move(context: FaultContext, rng: random.Random) -> str | None:
    """Cancel the move of a partition, by AlterPartitionReassignments without replicas."""
    partitions = observed_partitions.declared_partitions(context.world)
    moving = [p for p in partitions if p.adding or p.removing]
    if not moving:
        return None
    index = rng.choice(moving).index
    shared_steps.request_move(context.world, index, None)
    return f"{TOPIC}-{index}"
