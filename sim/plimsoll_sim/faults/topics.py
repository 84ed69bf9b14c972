"""Edits of the Topic object: its partitions, factors, retention, its deletion."""

from __future__ import annotations

import random
from functools import partial

from msgspec.structs import replace

from plimsoll_operator.kube.resources import TOPICS
from plimsoll_sim.cluster.world import TOPIC
from plimsoll_sim.faults.fault_context import FaultContext

PARTITIONS_MAX = 6
RECREATED_US_MAX = 8_000_000
RENAMED = f"{TOPIC}-renamed"
RENAMED_US_MAX = 6_000_000
KILLED_SHARE = 0.3
CHANGED = ("replication_factor", "min_in_sync_replicas", "config")
RETENTION_BYTES = (100, 300, 1_000)
RETENTION_MS = (1_000, 5_000, 20_000)


def recreate_topic(context: FaultContext, rng: random.Random) -> str | None:
    """Delete and declare the topic again with as many partitions: an object that returns before
    its absence was proven takes the topic back, and partitions cannot become fewer."""
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


def rename_topic(context: FaultContext, rng: random.Random) -> str | None:
    """An object of another name is applied and the first deleted, as a chart does that renames its
    objects; later the same the other way round.  Operators may die between."""
    world = context.world
    if world.objects.declared(TOPIC) is None or world.objects.declared(RENAMED) is not None:
        return None
    gaps = [rng.randint(0, RENAMED_US_MAX) for _ in range(3)]
    kills = [rng.random() < KILLED_SHARE for _ in gaps]
    _replace(context, TOPIC, RENAMED, gaps[0], kill=kills[0])
    back = partial(_replace, context, RENAMED, TOPIC, gaps[2], kill=kills[2])
    world.later(gaps[0] + gaps[1], back)
    return f"{TOPIC}, its object is {RENAMED} for {gaps[1] // 1_000} ms"


def _replace(context: FaultContext, old: str, new: str, gap_us: int, *, kill: bool) -> None:
    world = context.world
    if old not in world.objects.names(TOPICS) or new in world.objects.names(TOPICS):
        return
    spec = replace(world.objects.get(TOPICS, old).spec, topic_name=TOPIC)
    world.objects.create(TOPICS, new, spec)
    if kill:
        for host in world.operators:
            if host.active:
                host.kill()
                context.heal_later(partial(world.start_operator, host))

    def delete() -> None:
        """Copy to the new object what was changed in the old one meanwhile; then delete the old
        one."""
        if old in world.objects.names(TOPICS):
            newest = world.objects.get(TOPICS, old).spec
            stated: dict[str, object] = {field: getattr(newest, field) for field in CHANGED}
            known = world.objects.get(TOPICS, new).spec.partitions
            stated["partitions"] = max(newest.partitions, known)  # they never decrease
            world.objects.edit(TOPICS, new, **stated)
            world.delete(old)

    world.later(gap_us, delete)


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
