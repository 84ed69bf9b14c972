"""Thousands of partitions change their roles, or go, with one image: in portions, and in order."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable

import msgspec
import pytest
from tests.plimsoll_broker.test_replication import until
from tests.plimsoll_broker.trio import Broker, Controller, a_batch

from plimsoll_broker.background import AT_ONCE
from plimsoll_broker.replication import role_changes
from plimsoll_broker.replication.hosted_partitions import Hosted
from plimsoll_core.cluster.model import ClusterImage
from plimsoll_core.errors import Code
from plimsoll_core.ids import BrokerId, LeaderEpoch, PartitionEpoch

Make = Callable[[int], Broker]
MANY = 300
OTHER = BrokerId(1)


class Turns:
    """Which turn of the loop this is."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self.number = 0
        self.over = False
        self._next()

    def _next(self) -> None:
        self.number += 1
        if not self.over:
            self._loop.call_soon(self._next)


def led_by(image: ClusterImage, leader: int) -> ClusterImage:
    """Every partition in another term."""
    partitions = image.partitions
    for key, partition in image.partitions.items():
        changed = msgspec.structs.replace(
            partition,
            leader=BrokerId(leader),
            leader_epoch=LeaderEpoch(partition.leader_epoch + 1),
            partition_epoch=PartitionEpoch(partition.partition_epoch + 1),
        )
        partitions = partitions.set(key, changed)
    return msgspec.structs.replace(image, partitions=partitions, next_offset=image.next_offset + 1)


def without(image: ClusterImage, topic: str) -> ClusterImage:
    topic_id = image.topic_ids[topic]
    partitions, hosted = image.partitions, image.hosted
    for key, partition in image.partitions.items():
        if key.topic_id == topic_id:
            partitions = partitions.delete(key)
            for broker in partition.replicas:
                hosted = hosted.set(broker, hosted[broker].delete(key))
    return msgspec.structs.replace(
        image,
        partitions=partitions,
        hosted=hosted,
        topics=image.topics.delete(topic_id),
        topic_ids=image.topic_ids.delete(topic),
        next_offset=image.next_offset + 1,
    )


async def a_broker_of(controller: Controller, broker: Make, partitions: int = MANY) -> Broker:
    one = await broker(0).start()
    controller.create("t", *[(0,)] * partitions)
    await until(lambda: len(one.manager) == partitions)
    await until(lambda: one.manager.roles.applied == controller.image.next_offset)
    one.deaf = True
    return one


async def test_roles_of_many_partitions_change_over_turns(
    controller: Controller, broker: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All in one callback held the loop for 27 ms of CPU for each thousand."""
    one = await a_broker_of(controller, broker)
    manager, turns = one.manager, Turns()
    monkeypatch.setattr(role_changes, "PORTION", 10 * role_changes.CHANGE)
    taken: Counter[int] = Counter()
    take = manager.take_role
    monkeypatch.setattr(
        manager, "take_role", lambda key: (taken.update([turns.number]), take(key))[1]
    )
    image = led_by(controller.image, 0)
    manager.apply_image(controller.image, image)
    assert sum(taken.values()) < MANY
    await until(lambda: manager.roles.applied == image.next_offset)
    turns.over = True
    assert sum(taken.values()) == MANY
    assert max(taken.values()) <= 10
    assert all(hosted.applied is image.partitions[hosted.key] for hosted in manager)


async def test_partitions_are_stepped_over_several_turns(
    controller: Controller, broker: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = await a_broker_of(controller, broker, 2 * AT_ONCE + 100)
    manager, turns = one.manager, Turns()
    stepped: Counter[int] = Counter()
    real = manager.driver.carry_out
    answered: list[int] = []

    class Token:
        def __init__(self, index: int) -> None:
            self.index = index

        def answer(self, code: int) -> None:
            answered.append(self.index)

    def carry_out(hosted: Hosted, *rest: object) -> None:
        stepped[turns.number] += 1
        real(hosted, *rest)

    monkeypatch.setattr(manager.driver, "carry_out", carry_out)
    manager._stepping.finish()  # what chores have touched until now
    for hosted in manager:
        hosted.replica._answers.append((Token(hosted.key.index), Code.NONE))
        manager.touch(hosted)
    await until(lambda: len(answered) == len(manager))
    turns.over = True
    assert max(stepped.values()) <= AT_ONCE
    assert answered == [hosted.key.index for hosted in manager], "in the order of what happened"


async def test_recreated_topic_replaces_replicas_during_apply(
    controller: Controller, broker: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A topic is deleted and made again, with hundreds of partitions, in one image; and so it is
    while the image before that is being applied."""
    one = await a_broker_of(controller, broker)
    monkeypatch.setattr(role_changes, "PORTION", 10 * role_changes.CHANGE)
    client = await one.client()
    await client.produce("t", a_batch(5), index=MANY - 1)
    begun = controller.image
    other_terms = led_by(begun, 0)
    one.manager.apply_image(begun, other_terms)
    controller.image = without(begun, "t")
    controller.create("t", *[(0,)] * MANY)
    again = controller.image
    one.manager.apply_image(other_terms, again)
    await until(lambda: one.manager.roles.applied == again.next_offset)
    await until(lambda: len(one.manager) == MANY)
    topic_id = again.topic_ids["t"]
    assert {hosted.key.topic_id for hosted in one.manager} == {topic_id}
    assert one.hosted("t", MANY - 1).log.log_end_offset == 0
    assert not one.manager.broken


async def test_topic_deleted_during_other_apply_stays_deleted(
    controller: Controller, broker: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = await a_broker_of(controller, broker)
    monkeypatch.setattr(role_changes, "PORTION", 10 * role_changes.CHANGE)
    before = controller.image
    first = led_by(before, 0)
    second = led_by(first, OTHER)
    third = without(second, "t")
    for old, new in ((before, first), (first, second), (second, third)):
        one.manager.apply_image(old, new)
    await until(lambda: one.manager.roles.applied == third.next_offset)
    assert len(one.manager) == 0


async def test_rapid_images_starve_nobody(
    controller: Controller, broker: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A walk goes on to its end, by the newest image, and does not begin again with each."""
    one = await a_broker_of(controller, broker)
    monkeypatch.setattr(role_changes, "PORTION", 10 * role_changes.CHANGE)
    image = controller.image
    for _ in range(2 * MANY // 10):
        newer = led_by(image, 0)
        one.manager.apply_image(image, newer)
        image = newer
        await asyncio.sleep(0)
    terms = [hosted.replica.partition.leader_epoch for hosted in one.manager]
    assert min(terms) > 0, "each had its turn meanwhile"
    await until(lambda: one.manager.roles.applied == image.next_offset)
    assert all(hosted.applied is image.partitions[hosted.key] for hosted in one.manager)


async def test_lease_ignores_unapplied_metadata(
    controller: Controller, broker: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The image says that another leads by now; the partition whose turn has not come would still
    answer reads by an answer of the controller that was given after that."""
    one = await a_broker_of(controller, broker)
    manager = one.manager
    monkeypatch.setattr(role_changes, "PORTION", 10 * role_changes.CHANGE)
    lease = manager.serving.lease
    lease.answered(manager.now_ms(), 60_000, controller.image.next_offset + 1)
    image = led_by(controller.image, OTHER)
    manager.apply_image(controller.image, image)
    waiting = [hosted for hosted in manager if hosted.replica.leader is not None]
    assert waiting
    assert manager.image is image
    assert not any(lease.from_controller(manager.now_ms(), manager.roles.applied) for _ in waiting)


async def test_topic_of_many_partitions_is_deleted_over_turns(
    controller: Controller, broker: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = await a_broker_of(controller, broker)
    manager, turns = one.manager, Turns()
    monkeypatch.setattr(role_changes, "PORTION", 5 * role_changes.FILES)
    dropped: Counter[int] = Counter()
    drop = manager.drop
    monkeypatch.setattr(manager, "drop", lambda h: (dropped.update([turns.number]), drop(h))[1])
    synced: list[str] = []
    real = one.store.disk.sync_directory

    def sync_directory(path: object) -> None:
        synced.append(str(path))
        real(path)

    monkeypatch.setattr(one.store.disk, "sync_directory", sync_directory)
    manager.apply_image(controller.image, without(controller.image, "t"))
    await until(lambda: len(manager) == 0)
    turns.over = True
    assert sum(dropped.values()) == MANY
    assert max(dropped.values()) <= 5
    assert len(synced) < MANY, "their names are synced together, in a thread"
