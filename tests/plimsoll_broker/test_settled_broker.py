"""A broker is settled while no partition's min ISR waits for it, which costs little to find."""

from __future__ import annotations

from typing import Any

import pytest
from tests.plimsoll_core.conftest import World

from plimsoll_broker.node.serving import is_settled
from plimsoll_core.cluster import model
from plimsoll_core.cluster.model import effective_min_isr
from plimsoll_core.controller.decide import Settings
from plimsoll_core.ids import BrokerId
from plimsoll_core.messages.requests import CreateTopics, NewTopic

PARTITIONS = 1_000


@pytest.fixture
def large() -> World:
    """Three brokers with a topic of many partitions."""
    world = World(Settings())
    world.take_over()
    world.start(0, 1, 2)
    wish = NewTopic(name="large", partitions=PARTITIONS, replication_factor=3)
    assert world.ask(CreateTopics(topics=(wish,))).topics[0].code == 0
    return world


def test_no_min_isr_is_computed_while_in_sync(
    large: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each readiness probe computed one for each partition: 36 ms for 10,000."""
    computed: list[Any] = []
    monkeypatch.setattr(model, "effective_min_isr", lambda *one: computed.append(one) or 2)
    assert len(large.image.hosted[BrokerId(0)]) == PARTITIONS
    assert is_settled(large.image, BrokerId(0))
    assert computed == []


class Unseen(tuple[BrokerId, ...]):
    """Replicas that nobody goes through."""

    __slots__ = ()

    def __iter__(self) -> Any:
        raise AssertionError("each replica is visited")


def test_min_isr_visits_no_replica_without_additions() -> None:
    row = Unseen((BrokerId(0), BrokerId(1), BrokerId(2)))
    assert [effective_min_isr(stated, row, ()) for stated in (0, 2, 5)] == [1, 2, 3]
    assert effective_min_isr(3, (0, 1, 2), (2,)) == 2
