"""An administrator with a client: a topic without an object, its configs, its partitions."""

from __future__ import annotations

import random

from plimsoll_core.cluster.model import Topic
from plimsoll_core.messages.requests import CreateTopics, NewTopic
from plimsoll_core.messages.topic_changes import (
    AddPartitions,
    AlterTopicConfigs,
    ConfigChange,
    TopicConfigChanges,
    TopicGrowth,
)
from plimsoll_sim.cluster.world import CLIENT_TOPIC, World
from plimsoll_sim.faults.fault_context import FaultContext

PARTITIONS_MAX = 6
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
    """CreateTopics first, then AlterConfigs and CreatePartitions, as brokers pass them on."""
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
