"""Faults that are edits of the Topic object, and of topics that a client created: partitions,
configs, deletion.
"""

from __future__ import annotations

import random
from functools import partial

from msgspec.structs import replace

from plimsoll_core.cluster.model import Topic
from plimsoll_core.messages.requests import CreateTopics, NewTopic
from plimsoll_core.messages.topics import (
    AddPartitions,
    AlterTopicConfigs,
    ConfigChange,
    TopicConfigChanges,
    TopicGrowth,
)
from plimsoll_operator.kube.resources import TOPICS
from plimsoll_sim.cluster.world import CLIENT_TOPIC, TOPIC, World
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
    """Delete the Topic object and create it again with as many partitions. If the object is back
    before its absence was proven, it takes the topic back, and the number of partitions cannot
    decrease."""
    world = context.world
    wanted = world.objects.declared(TOPIC)
    if wanted is None:
        return None
    world.delete()

    def declare() -> None:
        if world.objects.declared(TOPIC) is None:
            world.declare(partitions=wanted.partitions)

    world.later(rng.randint(1, RECREATED_US_MAX), declare)
    return TOPIC


def rename_topic(context: FaultContext, rng: random.Random) -> str | None:
    """Create a Topic object with another name that declares the same topic, then delete the first
    one, as a chart does that renames its objects; later do the same in the opposite direction.
    Operators may die in between."""
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
        """Copy changes of the old object to the new one, then delete the old one."""
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


# --- topics that a client made --------------------------------------------------------------------

GROWTH_SHARE = 0.3
REPLACED_SHARE = 0.2
MIN_ISR = "min.insync.replicas"
VALUES = {
    MIN_ISR: ("1", "2", "3"),
    "retention.bytes": ("300", "1000"),
    "retention.ms": ("5000", "20000"),
    "flush.messages": ("1", "3"),
}


def change_client_topic(context: FaultContext, rng: random.Random) -> str:
    """Create a topic as a client the first time (CreateTopics), later change its configs or add
    partitions (AlterConfigs, CreatePartitions). The requests are those that brokers forward."""
    world = context.world
    image = world.ghost.image
    topic_id = image.topic_ids.get(CLIENT_TOPIC)
    if topic_id is None:
        return _created(world, rng)
    topic = image.topics[topic_id]
    if topic.partitions < PARTITIONS_MAX and rng.random() < GROWTH_SHARE:
        growth = TopicGrowth(topic=CLIENT_TOPIC, partitions=topic.partitions + 1)
        world.order(AddPartitions(topics=(growth,)))
        return f"{CLIENT_TOPIC} grows to {growth.partitions}"
    return _altered(world, topic, rng)


def _created(world: World, rng: random.Random) -> str:
    factor = world.options.replication_factor
    wish = NewTopic(
        name=CLIENT_TOPIC,
        partitions=rng.randint(1, 2),
        replication_factor=factor,
        configs={MIN_ISR: str(rng.randint(1, factor))},
    )
    world.order(CreateTopics(topics=(wish,)))
    world.start_client_topic_producer()
    return f"{CLIENT_TOPIC} is made with {wish.partitions} partitions and {wish.configs}"


def _altered(world: World, topic: Topic, rng: random.Random) -> str:
    names = rng.sample(sorted(VALUES), rng.randint(1, 2))
    changes = []
    for name in names:
        if rng.random() < 0.3:
            changes.append(ConfigChange(name=name, operation="Delete"))
        else:
            changes.append(ConfigChange(name=name, value=rng.choice(VALUES[name])))
    replaced = rng.random() < REPLACED_SHARE
    wish = TopicConfigChanges(topic=topic.name, changes=tuple(changes), replace=replaced)
    world.order(AlterTopicConfigs(topics=(wish,)))
    said = ", ".join(f"{one.operation} {one.name} {one.value or ''}".strip() for one in changes)
    return f"{topic.name}: {'only ' if replaced else ''}{said}"
