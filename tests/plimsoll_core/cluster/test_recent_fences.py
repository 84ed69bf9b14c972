"""Which fenced brokers clients are told of, and which fences an answer waits for."""

from itertools import cycle
from typing import Any

import pytest
from msgspec.structs import replace
from tests.plimsoll_operator.builders import an_image, with_topic

from plimsoll_core.cluster.awaited_fences import AWAITED_MS, awaited, hosted_count, led_topics
from plimsoll_core.cluster.recent_fences import LISTED_MS, RecentFences
from plimsoll_core.ids import BrokerId
from plimsoll_core.messages.requests import BrokerProvenDead

ALL = with_topic(an_image(), ((0, 1, 2), (1, 2, 0), (2, 0, 1)))
"""Each leads one partition."""


def fenced(image, *broker_ids, to=True):
    brokers = image.brokers
    for broker_id in broker_ids:
        broker = brokers[BrokerId(broker_id)]
        brokers = brokers.set(broker.id, replace(broker, fenced=to))
    return replace(image, brokers=brokers)


def test_fenced_broker_is_listed_for_a_bounded_time():
    fences = RecentFences()
    fences.update(ALL, fenced(ALL, 0), 100)
    assert fences.listed(100 + LISTED_MS - 1) == {0}
    assert fences.listed(100 + LISTED_MS) == set()


def test_broker_still_fenced_is_not_listed_again():
    fences, without_0 = RecentFences(), fenced(ALL, 0)
    fences.update(ALL, without_0, 100)
    fences.update(without_0, fenced(without_0, 1), 200)
    assert fences.listed(200) == {0, 1}
    assert fences.listed(100 + LISTED_MS) == {1}


def test_broker_fenced_in_first_image_is_not_listed():
    fences, without_0 = RecentFences(), fenced(ALL, 0)
    fences.update(without_0, fenced(without_0, 2), 100)
    assert fences.listed(100) == {2}


def test_returned_or_removed_broker_is_not_listed():
    fences, without_both = RecentFences(), fenced(ALL, 0, 1)
    fences.update(ALL, without_both, 100)
    back = fenced(without_both, 0, to=False)
    fences.update(without_both, replace(back, brokers=back.brokers.delete(BrokerId(1))), 200)
    assert fences.listed(200) == set()


def led_by(image, *broker_ids):
    """By turns."""
    partitions, leaders = image.partitions, cycle(map(BrokerId, broker_ids))
    for key, leader in zip(sorted(partitions), leaders, strict=False):
        partitions = partitions.set(key, replace(partitions[key], leader=leader))
    return replace(image, partitions=partitions)


def stopping(image, broker_id):
    broker = image.brokers[BrokerId(broker_id)]
    brokers = image.brokers.set(broker.id, replace(broker, shutting_down=True))
    return replace(image, brokers=brokers)


def test_broker_fenced_after_handing_over_is_not_listed():
    """It stopped cleanly.  Kafka does not list it either: admin clients ask each broker that is
    listed, and wait for it."""
    fences, stops = RecentFences(), stopping(led_by(ALL, 1), 0)
    fences.update(ALL, stops, 90)
    fences.update(stops, fenced(stops, 0), 100)
    assert fences.listed(100) == set()


def test_broker_fenced_before_handing_over_all_is_listed():
    fences, stops = RecentFences(), stopping(ALL, 0)
    fences.update(stops, fenced(stops, 0), 100)
    assert fences.listed(100) == {0}


def test_broker_deposed_over_several_images_is_listed(new_world: Any):
    """It led none of the last slice: what it had led was in earlier ones, a moment before."""
    world, fences = new_world(3, slice_partitions_max=2), RecentFences()
    world.declare(partitions=5)
    epoch = world.image.brokers[0].broker_epoch
    request = BrokerProvenDead(broker_id=BrokerId(0), broker_epoch=epoch, evidence="gone")
    led = []
    while request is not None:
        before, decision = world.image, world.decide(request)
        for record in decision.records:
            world.commit(record)
        led.append(sum(p.leader == 0 for p in before.partitions.values()))
        fences.update(before, world.image, 100)
        request = decision.again
    assert (len(led) > 1, led[0] > 0, led[-1]) == (True, True, 0)
    assert fences.listed(100) == {0}


def test_topics_of_lost_leaders_are_found_by_replicas():
    topic_ids = {key.topic_id for key in ALL.partitions}
    assert led_topics(led_by(ALL, 1), {BrokerId(0)}) == set()
    assert led_topics(led_by(ALL, 1), {BrokerId(0), BrokerId(1)}) == topic_ids
    assert led_topics(ALL, {BrokerId(77)}) == set()
    assert hosted_count(ALL, {BrokerId(0), BrokerId(77)}) == len(ALL.hosted[BrokerId(0)])


@pytest.mark.parametrize(
    ("image", "lost_for_ms", "expected"),
    [
        (ALL, {}, set()),
        (ALL, {0: 0, 1: AWAITED_MS - 1}, {0, 1}),
        (ALL, {0: AWAITED_MS, 1: 3}, {1}),
        (fenced(ALL, 0), {0: 40}, set()),
        (fenced(ALL, 0), {0: 30, 1: 40}, {1}),
        (ALL, {7: 40}, set()),
    ],
)
def test_fences_of_recently_lost_leaders_are_awaited(image, lost_for_ms, expected):
    lost = {BrokerId(broker_id): ms for broker_id, ms in lost_for_ms.items()}
    assert awaited(image, lost) == expected
