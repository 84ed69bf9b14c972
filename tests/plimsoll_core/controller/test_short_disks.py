"""A broker whose disk is nearly full hands its leaderships to those that have room."""

from __future__ import annotations

from typing import Any

import pytest

from plimsoll_core.messages.brokers import BrokerFigures
from plimsoll_core.messages.requests import Tick

SHORT = BrokerFigures(disk_short=True)
ROOM = BrokerFigures()


@pytest.fixture
def led(new_world: Any) -> Any:
    """Three brokers; broker 0 leads `orders`."""
    world = new_world(3)
    world.declare("orders", partitions=3)
    return world


def leaders(world: Any) -> set[int]:
    return {world.p(index).leader for index in range(3)}


def isrs(world: Any) -> set[tuple[int, ...]]:
    return {tuple(sorted(world.p(index).isr)) for index in range(3)}


def test_broker_with_short_disk_only_follows(led: Any) -> None:
    led.beat(0, figures=SHORT)
    assert leaders(led) <= {1, 2}
    assert isrs(led) == {(0, 1, 2)}


def test_leaders_stay_where_every_disk_is_short(led: Any) -> None:
    before = [led.p(index).leader for index in range(3)]
    for broker in (1, 2):
        led.beat(broker, figures=SHORT)
    moved = [led.p(index).leader for index in range(3)]
    assert set(moved) == {0}, "the last one with room has all"
    led.beat(0, figures=SHORT)
    assert [led.p(index).leader for index in range(3)] == moved
    assert set(before) == {0, 1, 2}


def test_leaders_return_once_there_is_room_again(led: Any) -> None:
    before = [led.p(index).leader for index in range(3)]
    led.beat(0, figures=SHORT)
    wait(led)
    assert leaders(led) <= {1, 2}, "not while it refuses what clients write"
    led.beat(0, figures=ROOM)
    wait(led)
    assert [led.p(index).leader for index in range(3)] == before


def wait(world: Any) -> None:
    """Until leaderships return by themselves."""
    for _ in range(3):
        world.now_ms += world.settings.preferred_leader_interval_ms
        for broker in (0, 1, 2):
            contact = world.soft.contacts[broker]
            world.beat(broker, figures=contact.figures)
        world.ask(Tick())
