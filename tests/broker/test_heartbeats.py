"""How often a broker asks: once a second, and five times as often when something waits for it."""

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from plimsoll_broker import heartbeats
from plimsoll_broker.controller_client import HeartbeatResult
from plimsoll_broker.heartbeats import Heartbeats
from plimsoll_core.ids import BrokerEpoch, BrokerId, ControllerEpoch, MetadataOffset
from plimsoll_core.messages import Heartbeat, HeartbeatAnswer, LogPosition

POSITION = LogPosition(
    applied_offset=MetadataOffset(9), nonce=None, controller_epoch=ControllerEpoch(1)
)


class Controller:
    """Holds a broker back for a number of heartbeats in which it wants to take part."""

    def __init__(self, held_back: int) -> None:
        self.peers = SimpleNamespace(broker_id=BrokerId(0))
        self.held_back = held_back
        self.heard: list[Heartbeat] = []

    async def heartbeat(self, heartbeat: Heartbeat, timeout_ms: int) -> HeartbeatResult:
        self.heard.append(heartbeat)
        if not heartbeat.want_fence:
            self.held_back -= 1
        answer = HeartbeatAnswer(
            is_caught_up=True, is_fenced=self.held_back >= 0, should_shut_down=False
        )
        return HeartbeatResult(answer, confirmed=True)


@pytest.mark.parametrize("held_back", [0, 4])
async def test_a_broker_that_is_held_back_asks_until_it_may_take_part(
    held_back: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Asking once a second it would stay out for up to a second longer than it has to."""
    monkeypatch.setattr(heartbeats, "INTERVAL_MS", 60_000)
    monkeypatch.setattr(heartbeats, "HURRIED_INTERVAL_MS", 10)
    client: Any = Controller(held_back)
    stream: Any = SimpleNamespace(position=POSITION)
    beats = Heartbeats(client, stream, BrokerEpoch(5))
    task = asyncio.create_task(beats.run())
    beats.unfence()
    async with asyncio.timeout(10):
        await beats.wait_unfenced()
    assert [beat.want_fence for beat in client.heard].count(False) == held_back + 1
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
