"""Min ISR changes: "for every partition of the topic: min_isr := v, PE += 1"."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from plimsoll_core.cluster.records import PartitionsChanged, TopicConfigured
from plimsoll_core.messages.requests import Activated, CreateTopics, DeleteTopics, NewTopic, Tick
from plimsoll_core.messages.topics import (
    AlterTopicConfigs,
    ConfigChange,
    TopicConfigChanges,
)


def declare(world: Any, min_isr: int, **fields: Any) -> Any:
    rows = ((0, 1, 2),) * fields.get("partitions", 1)
    return world.declare(strategy="Explicit", assignment=rows, min_isr=min_isr, **fields)


def alteration(name: str, min_isr: str) -> AlterTopicConfigs:
    """A client's."""
    change = ConfigChange(name="min.insync.replicas", value=min_isr)
    return AlterTopicConfigs(topics=(TopicConfigChanges(topic=name, changes=(change,)),))


def test_min_isr_change_raises_every_partition_epoch(
    new_world: Callable[..., Any],
) -> None:
    world = new_world(3)
    declare(world, 2, partitions=5)
    before = [world.p(index) for index in range(5)]
    declare(world, 3, partitions=5)
    for old in before:
        new = world.p(old.index)
        assert (new.min_isr, new.partition_epoch) == (3, old.partition_epoch + 1)
        assert new.leader_epoch == old.leader_epoch
    (record,) = [r for r in world.log if isinstance(r, PartitionsChanged)]
    assert record.ranges == ((0, 4),)


def test_min_isr_declared_again_changes_nothing(world: Any) -> None:
    declare(world, 3)
    end = len(world.log)
    declare(world, 3)
    assert len(world.log) == end


@pytest.mark.parametrize("partitions", [4, 5])
def test_min_isr_change_proceeds_slice_by_slice(
    new_world: Callable[..., Any], partitions: int
) -> None:
    world = new_world(3, slice_partitions_max=2)
    declare(world, 2, partitions=partitions)
    first = world.decide(
        world.declaration(
            strategy="Explicit",
            assignment=((0, 1, 2),) * partitions,
            partitions=partitions,
            min_isr=1,
        )
    )
    assert first.again is not None
    assert sum(p.min_isr == 1 for p in first.image.partitions.values()) == 2
    declare(world, 1, partitions=partitions)
    assert all(p.min_isr == 1 for p in world.image.partitions.values())


@pytest.mark.parametrize("crash_after", range(4))
def test_new_term_finishes_what_was_left_half_done(
    new_world: Callable[..., Any], crash_after: int
) -> None:
    world = new_world(3, slice_partitions_max=2)
    declare(world, 2, partitions=5)
    request = world.declaration(
        strategy="Explicit", assignment=((0, 1, 2),) * 5, partitions=5, min_isr=3
    )
    world.ask(request, crash_after=crash_after)
    stated = world.image.topics[world.image.topic_ids["orders"]].min_isr
    assert stated == (3 if crash_after else 2)
    assert {p.min_isr for p in world.image.partitions.values()} == {stated}


@pytest.mark.parametrize("by_a_client", [False, True])
def test_tick_continues_min_isr_change_after_dropped_slice(
    new_world: Callable[..., Any], by_a_client: bool
) -> None:
    """Seeds 1612436, 1613885: the log was full for a moment, and the term went on."""
    world = new_world(3, slice_partitions_max=2)
    if by_a_client:
        world.ask(CreateTopics(topics=(NewTopic(name="orders", partitions=5),)))
        request = alteration("orders", "3")
    else:
        declare(world, 2, partitions=5)
        request = world.declaration(
            strategy="Explicit", assignment=((0, 1, 2),) * 5, partitions=5, min_isr=3
        )
    decision = world.decide(request)
    assert decision.again is not None
    for record in decision.records:
        world.commit(record)
    seen = []
    for _ in range(3):
        seen.append(sum(world.p(index).min_isr == 3 for index in range(5)))
        world.ask(Tick())
    assert seen == [2, 4, 5], "a slice a tick"
    end = len(world.log)
    world.ask(Tick())
    assert len(world.log) == end


def test_repeated_min_isr_change_ends_with_all_partitions(
    new_world: Callable[..., Any],
) -> None:
    """The client was told to ask again; its topic says what it wants, but not its partitions."""
    world = new_world(3, slice_partitions_max=2)
    world.ask(CreateTopics(topics=(NewTopic(name="orders", partitions=5),)))
    for record in world.decide(alteration("orders", "3")).records:
        world.commit(record)
    assert world.ask(alteration("orders", "3")).topics[0].code == 0
    assert {world.p(index).min_isr for index in range(5)} == {3}


def test_min_isr_restored_before_all_partitions_changed(
    new_world: Callable[..., Any],
) -> None:
    """The last statement holds, whoever goes on with the one before."""
    world = new_world(3, slice_partitions_max=2)
    world.ask(CreateTopics(topics=(NewTopic(name="orders", partitions=5),)))
    decision = world.decide(alteration("orders", "3"))
    for record in decision.records:
        world.commit(record)
    assert world.ask(alteration("orders", "2")).topics[0].code == 0
    world.ask(decision.again)
    assert {world.p(index).min_isr for index in range(5)} == {2}
    assert not world.image.min_isr_behind


def test_min_isr_change_ends_when_topic_is_deleted(new_world: Callable[..., Any]) -> None:
    world = new_world(3, slice_partitions_max=2)
    world.ask(CreateTopics(topics=(NewTopic(name="orders", partitions=5),)))
    decision = world.decide(alteration("orders", "3"))
    for record in decision.records:
        world.commit(record)
    world.ask(DeleteTopics(names=("orders",)))
    assert world.ask(decision.again).topics[0].code == 0
    world.ask(Tick())
    assert not world.image.min_isr_behind


def test_new_term_spreads_many_small_topics_in_slices(new_world: Callable[..., Any]) -> None:
    """No decision of a new term changes more partitions than a slice, however small a topic is."""
    world = new_world(3, slice_partitions_max=2)
    for name in ("a", "b", "c"):
        world.ask(CreateTopics(topics=(NewTopic(name=name, partitions=2),)))
        topic_id = world.image.topic_ids[name]
        configs = {"min.insync.replicas": "3"}
        world.commit(TopicConfigured(cause="test", topic_id=topic_id, configs=configs, min_isr=3))
    decision = world.decide(Activated(cluster_name="main"))
    assert decision.again is not None
    assert sum(p.min_isr == 3 for p in decision.image.partitions.values()) == 2
    world.take_over()
    assert {p.min_isr for p in world.image.partitions.values()} == {3}


def test_large_enough_isr_clears_both_lists(world: Any) -> None:
    """ "abs(isr) ≥ new m → clear elr and lkelr"."""
    world.kill(2, 1)
    assert (world.p().isr, world.p().elr) == ((0,), (1,))
    declare(world, 1)
    assert (world.p().isr, world.p().elr, world.p().last_known_elr) == ((0,), (), ())


def test_smaller_isr_keeps_both_lists(world: Any) -> None:
    """ "else keep both"."""
    world.kill(2)
    world.register(1)
    assert (world.p().isr, world.p().elr, world.p().last_known_elr) == ((0,), (), (1,))
    declare(world, 3)
    assert (world.p().isr, world.p().elr, world.p().last_known_elr) == ((0,), (), (1,))


@pytest.mark.parametrize("min_isr", [1, 3])
def test_leaderless_partition_keeps_its_recovery_set(world: Any, min_isr: int) -> None:
    """ "[K] emits ClearElr, which also forgets the recovery set of a leaderless partition"."""
    for broker in (0, 1, 2):
        world.register(broker)
    before = world.p()
    assert (before.leader, before.last_known_elr) == (None, (1, 2))
    declare(world, min_isr)
    after = world.p()
    assert (after.leader, after.isr, after.elr, after.last_known_elr) == (None, (), (), (1, 2))
    assert after.partition_epoch == before.partition_epoch + 1


def test_proposal_before_min_isr_raise_is_not_committed(world: Any) -> None:
    """S24: "here 95 (PE moved), leader learns m=2 first"."""
    declare(world, 1)
    assert world.propose([0, 2]).code == 0
    proposal = world.proposal([0])
    declare(world, 2)
    answer = world.ask(proposal).partitions[0]
    assert answer.code == 95
    assert world.p().isr == (0, 2)
