"""Edits of the Topic object: its partitions, factors, retention, its deletion."""

from __future__ import annotations

import random

from plimsoll_sim.cluster.world import TOPIC
from plimsoll_sim.faults.fault_context import FaultContext

PARTITIONS_MAX = 6
RECREATED_US_MAX = 8_000_000
RETENTION_BYTES = (100, 300, 1_000)
RETENTION_MS = (1_000, 5_000, 20_000)


def recreate_topic(context: FaultContext, rng: random.Random) -> str | None:
    """With as many partitions: an object that is seen again before its absence was proven takes the
    topic back, and partitions cannot become fewer."""
    world = context.world
    wanted = world.objects.declared(TOPIC)
    if wanted is None:
        return None
    world.delete()
    world.ghost.topics_recreated = True

    def declare() -> None:
        if world.objects.declared(TOPIC) is None:
            world.declare(partitions=wanted.partitions)

    world.later(rng.randint(1, RECREATED_US_MAX), declare)
    return TOPIC


def add_partitions(context: FaultContext, _: random.Random) -> str | None:
    wanted = context.world.objects.declared(TOPIC)
    if wanted is None or wanted.partitions >= PARTITIONS_MAX:
        return None
    context.world.declare(partitions=wanted.partitions + 1)
    return f"{wanted.partitions + 1}"


def change_min_isr(context: FaultContext, rng: random.Random) -> str | None:
    wanted = context.world.objects.declared(TOPIC)
    if wanted is None:
        return None
    value = rng.randint(1, wanted.replication_factor)
    context.world.declare(min_in_sync_replicas=value)
    return f"{wanted.min_isr} -> {value}"


def change_replication_factor(context: FaultContext, rng: random.Random) -> str | None:
    world = context.world
    wanted = world.objects.declared(TOPIC)
    if wanted is None:
        return None
    factor = rng.randint(1, len(world.objects.members))
    min_isr = min(wanted.min_isr, factor)
    world.declare(replication_factor=factor, min_in_sync_replicas=min_isr)
    return f"{wanted.replication_factor} -> {factor}"


def change_retention(context: FaultContext, rng: random.Random) -> str | None:
    wanted = context.world.objects.declared(TOPIC)
    if wanted is None:
        return None
    options = context.world.options
    configs: dict[str, str] = options.cleanup if options.deletes_too else {}
    if rng.random() < 0.5:
        configs["retention.bytes"] = str(rng.choice(RETENTION_BYTES))
    if rng.random() < 0.5:
        configs["retention.ms"] = str(rng.choice(RETENTION_MS))
    context.world.declare(config=configs)
    return f"{configs}"
