"""Elects, uncleanly and by name, a replica with a log end below the others' log start.

Retention, or a client's DeleteRecords, raises the others' log start. They come back, follow the new
leader, and restart again.
"""

from __future__ import annotations

import random

from msgspec.structs import replace

from plimsoll_core.cluster.model import PartitionKey
from plimsoll_core.ids import BrokerId
from plimsoll_operator.api.topic import NamedLeader, TopicUncleanRecovery
from plimsoll_operator.kube.resources import TOPICS
from plimsoll_sim.cluster import one_off_requests
from plimsoll_sim.cluster.world import TOPIC
from plimsoll_sim.faults import observed_partitions, shared_steps
from plimsoll_sim.faults.fault_context import FaultContext, Script, Wait, pause
from plimsoll_sim.faults.topics import RETENTION_BYTES
from plimsoll_sim.hosts.brokers import BrokerHost

ALL_KEPT = {"retention.bytes": "-1", "retention.ms": "-1"}
NAMED_TIMES_MAX = 10


def strike(context: FaultContext, rng: random.Random) -> str | None:
    found = [
        one
        for one in observed_partitions.followed_partitions(context.world)
        if len(one.partition.isr) > 1
    ]
    if not found:
        return None
    p, leader, behind = rng.choice(found)
    context.run(_script(context, p.key, leader, behind))
    return f"{TOPIC}-{p.index}: {behind.name} behind {leader.name}"


def _script(
    context: FaultContext, key: PartitionKey, leader: BrokerHost, behind: BrokerHost
) -> Script:
    world, rng = context.world, context.rng
    wanted = world.objects.declared(TOPIC)
    if wanted is None:
        return
    configs = {k: v for k, v in wanted.configs.items() if k.startswith("retention.")}
    few = {"retention.bytes": str(rng.choice(RETENTION_BYTES))}
    world.declare(config=configs | few)
    others = [host for host in world.brokers.values() if host is not behind]
    links = shared_steps.cut_between(world, behind, others)

    def passed() -> bool:
        hosted, end = leader.hosted(key), observed_partitions.log_end(key, behind)
        return hosted is not None and hosted.log.log_start_offset > end >= 0

    yield Wait(passed, 12_000)
    world.note(f"story: {behind.name} is behind the beginning: {passed()}")
    if passed():
        _delete_most(context, key, leader)
    if passed() and rng.random() < 0.7:
        # Keep all from now on, so that the records that the two will have in common fit.
        world.declare(config=configs | ALL_KEPT)
        yield pause(rng.randint(50, 500))
        yield from _led_by_the_last(context, key, behind)
    shared_steps.heal(world, links)
    world.declare(config=configs)


def _delete_most(context: FaultContext, key: PartitionKey, leader: BrokerHost) -> None:
    """Perhaps delete most of the remaining records, as a client: then only a checkpoint holds the
    new log start."""
    world, rng = context.world, context.rng
    hosted, ghost = leader.hosted(key), world.ghost.partitions.get(key)
    if hosted is None or ghost is None or hosted.replica.leader is None:
        return
    start, end = hosted.log.log_start_offset, hosted.replica.high_watermark
    if rng.random() < 0.7 and start < end:
        offset = rng.choice((end, rng.randint(start + 1, end)))
        one_off_requests.by_somebody(
            world, one_off_requests.delete_once(leader.name, ghost, offset)
        )


def _led_by_the_last(context: FaultContext, key: PartitionKey, behind: BrokerHost) -> Script:
    world, rng = context.world, context.rng
    p = observed_partitions.committed(world, key)
    if p is None:
        return
    gone = [world.brokers[int(b)] for b in p.replicas if b != BrokerId(behind.id)]
    for host in gone:
        host.kill()
    yield from _name_leader(context, key, behind)
    world.note(f"story: {behind.name} leads: {observed_partitions.leads(world, key, behind)}")
    shared_steps.heal(world, [link for link in world.network.cuts if behind.name in link])
    yield pause(rng.randint(50, 500))
    for host in gone:
        world.start_broker(host)

    def all_follow() -> bool:
        return observed_partitions.all_in_sync(world, key)

    yield Wait(all_follow, 8_000)
    world.note(f"story: all follow {behind.name}: {all_follow()}")
    yield pause(rng.randint(50, 500))
    again = rng.choice(gone)
    again.kill()
    yield pause(rng.randint(50, 500))
    world.start_broker(again)
    yield Wait(all_follow, 8_000)
    behind.stop()
    yield pause(rng.randint(500, 2_000))
    world.start_broker(behind)


def _name_leader(context: FaultContext, key: PartitionKey, host: BrokerHost) -> Script:
    """Name the leader in the Topic object, as an administrator, once the partition has none."""
    world = context.world
    for _ in range(NAMED_TIMES_MAX):
        yield Wait(lambda: observed_partitions.leads(world, key, host), 500)
        wanted, p = world.objects.declared(TOPIC), observed_partitions.committed(world, key)
        if wanted is None or p is None or p.leader is not None:
            return
        named = NamedLeader(partition=p.index, leader=host.id, at_leader_epoch=p.leader_epoch)
        recovery = world.objects.get(TOPICS, TOPIC).spec.unclean_recovery or TopicUncleanRecovery()
        world.declare(unclean_recovery=replace(recovery, elect=(named,)))
