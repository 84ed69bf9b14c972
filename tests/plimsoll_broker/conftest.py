"""Three brokers' data paths in this process."""

from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
from tests.plimsoll_broker.trio import Broker, Controller


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
