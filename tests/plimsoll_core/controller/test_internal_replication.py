"""The brokers' own topics get more replicas when there are more brokers, fewer only when brokers
leave."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from plimsoll_core.cluster.image import apply
from plimsoll_core.cluster.model import Partition, PartitionKey
from plimsoll_core.cluster.record_versions import UNDERSTOOD
from plimsoll_core.cluster.records import MetadataVersionFinalized
from plimsoll_core.cluster.topic_names import GROUP_OFFSETS
from plimsoll_core.controller.kernel.settings import InternalTopic
from plimsoll_core.controller.topics.internal_topics import LOOK_EVERY_MS
from plimsoll_core.messages.brokers import SetLeaving
from plimsoll_core.messages.moves import AlterReassignments, PartitionTarget
from plimsoll_core.messages.requests import Done, Tick
from plimsoll_core.messages.topics import EnsureInternalTopic

PARTITIONS = 4


@pytest.fixture
def alone(new_world: Callable[..., Any]) -> Any:
    """Broker 0, which holds the topic of offsets by itself."""
    world = new_world(1)
    world.image = apply(world.image, MetadataVersionFinalized(cause="test", metadata_version=2))
    world.settings = replace(world.settings, offsets_topic=InternalTopic(partitions=PARTITIONS))
    world.ask(EnsureInternalTopic(name=GROUP_OFFSETS))
    assert {p.replicas for p in partitions(world)} == {(0,)}
    return world


def partitions(world: Any) -> list[Partition]:
    topic_id = world.image.topic_ids[GROUP_OFFSETS]
    return [world.image.partitions[PartitionKey(topic_id, n)] for n in range(PARTITIONS)]


def topic_of(world: Any) -> Any:
    return world.image.topics[world.image.topic_ids[GROUP_OFFSETS]]


def join(world: Any, *brokers: int) -> None:
    """They take part, as brokers that know the metadata version."""
    for broker in brokers:
        world.register(broker, metadata_versions=UNDERSTOOD)
        world.beat(broker)
        assert world.image.brokers[broker].active


def look(world: Any) -> None:
    world.now_ms += LOOK_EVERY_MS
    for broker in world.image.brokers:
        if world.image.brokers[broker].active:
            world.beat(broker)
    world.ask(Tick())


def join_isrs(world: Any) -> None:
    """Every replica catches up."""
    for p in partitions(world):
        if set(p.isr) != set(p.replicas):
            world.propose(list(p.replicas), p.index, name=GROUP_OFFSETS)


def test_offsets_topic_gets_three_replicas_on_three_brokers(alone: Any) -> None:
    join(alone, 1, 2)
    look(alone)
    assert {frozenset(p.target) for p in partitions(alone)} == {frozenset({0, 1, 2})}
    assert all(p.isr == (0,) and set(p.adding) == {1, 2} for p in partitions(alone))
    assert {p.effective_min_isr for p in partitions(alone)} == {1}
    join_isrs(alone)
    assert not any(p.moving for p in partitions(alone))
    assert {p.effective_min_isr for p in partitions(alone)} == {2}
    topic = topic_of(alone)
    assert (topic.replication_factor, topic.min_isr) == (3, 2)
    assert topic.configs["cleanup.policy"] == "compact"


def test_offsets_topic_grows_with_each_broker_to_setting(alone: Any) -> None:
    join(alone, 1)
    look(alone)
    assert {len(p.target) for p in partitions(alone)} == {2}
    join(alone, 2, 3)
    look(alone)  # also what has not arrived yet
    assert {len(p.target) for p in partitions(alone)} == {3}
    join_isrs(alone)
    end = len(alone.log)
    look(alone)
    assert len(alone.log) == end, "three are stated"


def test_brokers_are_looked_at_every_few_seconds_alone(alone: Any) -> None:
    look(alone)
    join(alone, 1)
    alone.now_ms += 1
    alone.ask(Tick())
    assert {len(p.target) for p in partitions(alone)} == {1}
    look(alone)
    assert {len(p.target) for p in partitions(alone)} == {2}


def test_cluster_that_states_fewer_keeps_fewer(alone: Any) -> None:
    stated = InternalTopic(partitions=PARTITIONS, replication_factor=1)
    alone.settings = replace(alone.settings, offsets_topic=stated)
    join(alone, 1, 2)
    end = len(alone.log)
    look(alone)
    assert len(alone.log) == end


def test_replicas_without_place_are_removed_when_brokers_leave(alone: Any) -> None:
    join(alone, 1, 2)
    look(alone)
    join_isrs(alone)
    answer = alone.ask(SetLeaving(broker_ids=(2,)))
    assert answer == Done()
    look(alone)
    assert {len(p.target) for p in partitions(alone)} == {2}
    assert {frozenset(p.target) for p in partitions(alone)} == {frozenset({0, 1})}
    topic = topic_of(alone)
    assert (topic.replication_factor, topic.min_isr) == (2, 2)
    alone.ask(SetLeaving(broker_ids=(1, 2)))
    look(alone)
    assert {p.target for p in partitions(alone)} == {(0,)}
    assert (topic_of(alone).replication_factor, topic_of(alone).min_isr) == (1, 1)
    end = len(alone.log)
    look(alone)
    assert len(alone.log) == end


def test_replicas_are_restored_when_brokers_stay(alone: Any) -> None:
    join(alone, 1, 2)
    look(alone)
    join_isrs(alone)
    alone.ask(SetLeaving(broker_ids=(2,)))
    look(alone)
    alone.ask(SetLeaving(broker_ids=()))
    look(alone)
    assert {len(p.target) for p in partitions(alone)} == {3}
    assert topic_of(alone).replication_factor == 3


def test_absent_broker_counts_as_staying(alone: Any) -> None:
    join(alone, 1, 2, 3)
    look(alone)
    join_isrs(alone)
    alone.kill(1)
    alone.ask(SetLeaving(broker_ids=(2,)))
    look(alone)
    assert {len(p.target) for p in partitions(alone)} == {3}


def test_broker_that_goes_takes_no_replica_with_it(alone: Any) -> None:
    join(alone, 1, 2)
    look(alone)
    join_isrs(alone)
    alone.kill(2)
    look(alone)
    assert {frozenset(p.target) for p in partitions(alone)} == {frozenset({0, 1, 2})}
    assert topic_of(alone).replication_factor == 3


def test_what_an_administrator_took_away_is_given_back(alone: Any) -> None:
    join(alone, 1, 2)
    look(alone)
    join_isrs(alone)
    target = PartitionTarget(topic=GROUP_OFFSETS, index=0, replicas=(0, 1))
    alone.ask(AlterReassignments(targets=(target,), allow_factor_change=True))
    join_isrs(alone)
    assert partitions(alone)[0].target == (0, 1)
    look(alone)
    assert set(partitions(alone)[0].target) == {0, 1, 2}


def test_broker_absent_before_its_copy_is_replaced(alone: Any) -> None:
    stated = InternalTopic(partitions=PARTITIONS, replication_factor=2)
    alone.settings = replace(alone.settings, offsets_topic=stated)
    join(alone, 1)
    look(alone)
    alone.kill(1)
    join(alone, 2)
    look(alone)
    assert {p.target for p in partitions(alone)} == {(0, 1)}
    alone.now_ms += alone.settings.target_lost_ms
    alone.beat(0)
    alone.beat(2)
    look(alone)
    assert {p.target for p in partitions(alone)} == {(0, 2)}


def test_large_topic_is_raised_slice_by_slice(alone: Any) -> None:
    alone.settings = replace(alone.settings, slice_partitions_max=3)
    join(alone, 1, 2)
    look(alone)
    assert sorted(len(p.target) for p in partitions(alone)) == [1, 3, 3, 3]
    look(alone)
    assert {len(p.target) for p in partitions(alone)} == {3}
    assert {p.min_isr for p in partitions(alone)} == {2}


def test_new_term_continues_interrupted_raise(alone: Any) -> None:
    join(alone, 1, 2)
    alone.now_ms += LOOK_EVERY_MS
    for broker in range(3):
        alone.beat(broker)
    alone.ask(Tick(), crash_after=2)
    for broker in range(3):
        alone.beat(broker)
    look(alone)
    join_isrs(alone)
    assert {frozenset(p.replicas) for p in partitions(alone)} == {frozenset({0, 1, 2})}
    assert {p.min_isr for p in partitions(alone)} == {2}
