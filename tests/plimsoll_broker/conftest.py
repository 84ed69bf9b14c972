"""Three brokers' data paths in this process."""

from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from pathlib import Path

import pytest
from tests.plimsoll_broker.coordinating_brokers import TOPIC, Member, Members
from tests.plimsoll_broker.test_lease import hear_controller
from tests.plimsoll_broker.test_replication import until
from tests.plimsoll_broker.trio import Broker, Controller

from plimsoll_core.cluster.image import apply
from plimsoll_core.cluster.records import MetadataVersionFinalized
from plimsoll_core.cluster.topic_configs import FLOORS
from plimsoll_core.controller.kernel.settings import InternalTopic
from plimsoll_core.messages.topics import EnsureInternalTopic


@pytest.fixture
def small_segments(monkeypatch: pytest.MonkeyPatch) -> None:
    """Topics may state segments of a few batches."""
    monkeypatch.setitem(FLOORS, "segment.bytes", 14)


@pytest.fixture
async def controller() -> Controller:
    return Controller()


@pytest.fixture
async def broker(controller: Controller, tmp_path: Path) -> AsyncIterator[Callable[[int], Broker]]:
    made: list[Broker] = []

    def make(broker_id: int) -> Broker:
        one = Broker(controller, broker_id, tmp_path / f"broker-{broker_id}")
        made.append(one)
        return one

    yield make
    for one in made:
        if controller.brokers.get(one.id) is one:
            await one.stop()


@pytest.fixture
async def three(broker: Callable[[int], Broker]) -> tuple[Broker, Broker, Broker]:
    a, b, c = broker(0), broker(1), broker(2)
    return await a.start(), await b.start(), await c.start()


@pytest.fixture
async def members(
    controller: Controller, three: tuple[Broker, Broker, Broker]
) -> AsyncIterator[Members]:
    found = (Member(three[0]), Member(three[1]), Member(three[2]))
    controller.image = apply(
        controller.image, MetadataVersionFinalized(cause="test", metadata_version=2)
    )
    controller.settings = replace(controller.settings, offsets_topic=InternalTopic(partitions=1))
    controller.create("t", (0, 1, 2))
    controller.request(EnsureInternalTopic(name=TOPIC))
    for member in found:
        hear_controller(member.broker)
    await until(lambda: any(member.active for member in found))
    yield found
    for member in found:
        await member.stop()
