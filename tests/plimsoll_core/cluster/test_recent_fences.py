"""Which fenced brokers clients are told of, and which fences an answer waits for."""

import pytest
from msgspec.structs import replace
from tests.plimsoll_operator.builders import an_image

from plimsoll_core.cluster.awaited_fences import AWAITED_MS, awaited
from plimsoll_core.cluster.recent_fences import LISTED_MS, RecentFences
from plimsoll_core.ids import BrokerId

ALL = an_image()


def fenced(image, *broker_ids, to=True):
    brokers = image.brokers
    for broker_id in broker_ids:
        broker = brokers[BrokerId(broker_id)]
        brokers = brokers.set(broker.id, replace(broker, fenced=to))
    return replace(image, brokers=brokers)


def test_broker_is_listed_for_a_while_after_its_fence_and_not_longer():
    fences = RecentFences()
    fences.update(ALL, fenced(ALL, 0), 100)
    assert fences.listed(100 + LISTED_MS - 1) == {0}
    assert fences.listed(100 + LISTED_MS) == set()


def test_broker_that_stays_fenced_is_not_listed_anew_by_a_later_image():
    fences, without_0 = RecentFences(), fenced(ALL, 0)
    fences.update(ALL, without_0, 100)
    fences.update(without_0, fenced(without_0, 1), 200)
    assert fences.listed(200) == {0, 1}
    assert fences.listed(100 + LISTED_MS) == {1}


def test_broker_that_was_fenced_in_the_first_image_is_not_listed():
    fences, without_0 = RecentFences(), fenced(ALL, 0)
    fences.update(without_0, fenced(without_0, 2), 100)
    assert fences.listed(100) == {2}


def test_broker_that_is_back_or_removed_is_no_fenced_one():
    fences, without_both = RecentFences(), fenced(ALL, 0, 1)
    fences.update(ALL, without_both, 100)
    back = fenced(without_both, 0, to=False)
    fences.update(without_both, replace(back, brokers=back.brokers.delete(BrokerId(1))), 200)
    assert fences.listed(200) == set()


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
def test_fences_of_leaders_lost_a_moment_ago_are_awaited(image, lost_for_ms, expected):
    lost = {BrokerId(broker_id): ms for broker_id, ms in lost_for_ms.items()}
    assert awaited(image, lost) == expected
