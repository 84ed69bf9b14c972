"""A cluster that hibernates: nothing can be committed, and after waking everything is there."""

from collections.abc import Callable
from typing import Any

import pytest

from plimsoll_core.cluster.image_encoding import decode_image, encode_image
from plimsoll_core.cluster.record_versions import NEWEST
from plimsoll_core.cluster.records import MetadataVersionFinalized, PartitionsChanged
from plimsoll_core.controller.brokers.hibernation import is_asleep, stopped_brokers
from plimsoll_core.messages.brokers import SetHibernation
from plimsoll_core.messages.requests import CreateTopics, Done, NewTopic, Refused, Tick

World = Any
BOTH = {"metadata_versions": (1, NEWEST), "release": "0.3"}


@pytest.fixture
def world(new_world: Callable[..., World]) -> World:
    made = new_world(3)
    made.commit(MetadataVersionFinalized(cause="t", metadata_version=NEWEST))
    made.declare(partitions=5)
    return made


def sleep(world: World) -> None:
    assert isinstance(world.ask(SetHibernation(hibernated=True)), Done)


def wake(world: World) -> None:
    assert isinstance(world.ask(SetHibernation(hibernated=False)), Done)


def stop(world: World, broker: int) -> None:
    answer = world.beat(broker, want_shutdown=True, **BOTH)
    assert answer.should_shut_down
    assert world.image.brokers[broker].fenced


def back(world: World, broker: int, *, clean: bool = True) -> None:
    world.register(broker, clean=clean, **BOTH)
    world.beat(broker, **BOTH)
    if world.image.brokers[broker].fenced:
        world.now_ms += world.settings.flap_wait_ms_max
        world.beat(broker, **BOTH)
    assert world.image.brokers[broker].active


def partitions(world: World) -> list[Any]:
    return [world.p(index) for index in range(5)]


def test_hibernation_moves_each_isr_to_the_elr(world: World) -> None:
    world.propose([1, 2], 1)
    before = {p.index: p for p in partitions(world)}
    sleep(world)
    for p in partitions(world):
        assert (p.leader, p.isr) == (None, ())
        assert set(p.elr) == set(before[p.index].isr)
        assert p.leader_epoch == before[p.index].leader_epoch + 1
    assert decode_image(encode_image(world.image)) == world.image


def test_brokers_stop_one_by_one_without_partition_records(world: World) -> None:
    assert stopped_brokers(world.image) == frozenset()
    sleep(world)
    since = len(world.log)
    for broker, expected in ((2, {2}), (1, {2, 1}), (0, {2, 1, 0})):
        assert stopped_brokers(world.image) == expected
        assert not is_asleep(world.image)
        stop(world, broker)
    assert is_asleep(world.image)
    assert not [r for r in world.log[since:] if isinstance(r, PartitionsChanged)]


def test_waking_elects_each_leader_once_and_preferred(world: World) -> None:
    sleep(world)
    for broker in (2, 1, 0):
        stop(world, broker)
    world.now_ms += 3_600_000
    world.ask(Tick())
    for broker in (1, 2, 0):
        back(world, broker)
    assert all(p.leader is None for p in partitions(world))
    since = len(world.log)
    wake(world)
    assert all(p.leader == p.replicas[0] for p in partitions(world))
    changed = [r for r in world.log[since:] if isinstance(r, PartitionsChanged)]
    assert sum(last - first + 1 for r in changed for first, last in r.ranges) == 5
    for index in range(5):
        world.propose([0, 1, 2], index)


def test_any_complete_replica_leads_after_waking(world: World) -> None:
    """The last one to stop may not come back; before, only it could have led with min ISR 1."""
    world.declare("single", min_isr=1)
    sleep(world)
    for broker in (2, 1, 0):
        stop(world, broker)
    back(world, 2)
    wake(world)
    assert world.p(0).leader == 2
    assert world.p(0, "single").leader == 2
    back(world, 1)
    assert world.p(0).leader == 2, "no unclean election, no second one"


def test_broker_that_stopped_uncleanly_is_not_trusted(world: World) -> None:
    sleep(world)
    for broker in (2, 1, 0):
        stop(world, broker)
    back(world, 2, clean=False)
    wake(world)
    assert world.p(0).leader is None
    assert set(world.p(0).elr) == {0, 1}
    back(world, 0)
    assert world.p(0).leader == 0


def test_next_controller_finishes_what_was_begun(new_world: Callable[..., World]) -> None:
    world = new_world(3, slice_partitions_max=2)
    world.commit(MetadataVersionFinalized(cause="t", metadata_version=NEWEST))
    world.declare(partitions=5)
    world.ask(SetHibernation(hibernated=True), crash_after=2)
    assert world.image.hibernated
    assert all(p.leader is None for p in partitions(world))
    world.ask(SetHibernation(hibernated=False), crash_after=2)
    for broker in range(3):
        world.beat(broker, **BOTH)
    world.ask(SetHibernation(hibernated=False))
    assert all(p.leader is not None for p in partitions(world))


def test_no_topic_is_created_while_hibernating(world: World) -> None:
    sleep(world)
    new = NewTopic(name="late", partitions=1, replication_factor=1)
    answer = world.ask(CreateTopics(topics=(new,)))
    assert answer.topics[0].code != 0
    assert "late" not in world.image.topic_ids


def test_failure_while_stopping_elects_nobody(world: World) -> None:
    sleep(world)
    world.kill(0)
    assert all(p.leader is None for p in partitions(world))
    assert stopped_brokers(world.image) == {2}
    stop(world, 2)
    assert stopped_brokers(world.image) == {2, 1}
    back(world, 0, clean=False)
    assert all(p.leader is None for p in partitions(world))


def test_older_metadata_version_refuses_hibernation(new_world: Callable[..., World]) -> None:
    answer = new_world(3).ask(SetHibernation(hibernated=True))
    assert isinstance(answer, Refused)
    assert answer.reason == "MetadataTooOld"
    assert answer.message.startswith("spec.hibernated needs metadata version 0.3")
