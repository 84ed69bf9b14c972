"""Edits of the Topic object: its partitions, factors, retention, its deletion."""

from __future__ import annotations

import random

from plimsoll_sim.cluster.world import TOPIC
from plimsoll_sim.faults.context import FaultContext

PARTITIONS_MAX = 6
RECREATED_US_MAX = 8_000_000
RETENTION_BYTES = (100, 300, 1_000)
RETENTION_MS = (1_000, 5_000, 20_000)


def recreate_topic(context: FaultContext, rng: random.Random) -> str | None:
    world = context.world
    world.delete()
    world.ghost.topics_recreated = True

    def declare() -> None:
        world.declare()

    world.later(rng.randint(1, RECREATED_US_MAX), declare)
    return TOPIC


def add_partitions(context: FaultContext, _: random.Random) -> str | None:
    wanted = context.world.wishes.topics.get(TOPIC)
    if wanted is None or wanted.partitions >= PARTITIONS_MAX:
        return None
    context.world.declare(partitions=wanted.partitions + 1)
    return f"{wanted.partitions + 1}"


def change_min_isr(context: FaultContext, rng: random.Random) -> str | None:
    wanted = context.world.wishes.topics.get(TOPIC)
    if wanted is None:
        return None
    value = rng.randint(1, wanted.replication_factor)
    context.world.declare(min_isr=value)
    return f"{wanted.min_isr} -> {value}"


def change_replication_factor(context: FaultContext, rng: random.Random) -> str | None:
    world = context.world
    wanted = world.wishes.topics.get(TOPIC)
    if wanted is None:
        return None
    factor = rng.randint(1, len(world.wishes.members))
    world.declare(replication_factor=factor, min_isr=min(wanted.min_isr, factor))
    return f"{wanted.replication_factor} -> {factor}"


def change_retention(context: FaultContext, rng: random.Random) -> str | None:
    wanted = context.world.wishes.topics.get(TOPIC)
    if wanted is None:
        return None
    configs = {k: v for k, v in wanted.configs.items() if not k.startswith("retention.")}
    if rng.random() < 0.5:
        configs["retention.bytes"] = str(rng.choice(RETENTION_BYTES))
    if rng.random() < 0.5:
        configs["retention.ms"] = str(rng.choice(RETENTION_MS))
    context.world.declare(configs=configs)
    return f"{configs}"
