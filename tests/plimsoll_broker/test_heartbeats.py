"""How often a broker asks: once a second, and five times as often when something waits for it."""

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from plimsoll_broker.control.controller_client import HeartbeatResult
from plimsoll_broker.node import heartbeats
from plimsoll_broker.node.heartbeats import HeartbeatPeers, Heartbeats
from plimsoll_core.ids import BrokerEpoch, BrokerId, ControllerEpoch, MetadataOffset
from plimsoll_core.messages.requests import Heartbeat, HeartbeatAnswer, LogPosition
from plimsoll_core.replica.leader_lease import LeaderLease

POSITION = LogPosition(
    applied_offset=MetadataOffset(9), nonce=None, controller_epoch=ControllerEpoch(1)
)


class Controller:
    """Holds a broker back for a number of heartbeats in which it wants to take part."""

    def __init__(self, held_back: int = 0) -> None:
        self.peers = SimpleNamespace(broker_id=BrokerId(0))
        self.held_back = held_back
        self.heard: list[Heartbeat] = []
        self.confirmed = True
        self.session_timeout_ms = 6_000
        self.answered_after_ms = 0

    async def heartbeat(self, heartbeat: Heartbeat, timeout_ms: int) -> HeartbeatResult:
        self.heard.append(heartbeat)
        clock.now_ms += self.answered_after_ms
        if not heartbeat.want_fence:
            self.held_back -= 1
        answer = HeartbeatAnswer(
            is_caught_up=True, is_fenced=self.held_back >= 0, should_shut_down=False
        )
        return HeartbeatResult(
            answer, self.confirmed, MetadataOffset(9), session_timeout_ms=self.session_timeout_ms
        )


class clock:
    """A clock that moves when it is told to."""

    now_ms = 1_000_000

    @classmethod
    def monotonic_ms(cls) -> int:
        return cls.now_ms


@pytest.mark.parametrize("held_back", [0, 4])
async def test_held_back_broker_asks_until_admitted(
    held_back: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Asking once a second it would stay out for up to a second longer than it has to."""
    monkeypatch.setattr(heartbeats, "INTERVAL_MS", 60_000)
    monkeypatch.setattr(heartbeats, "HURRIED_INTERVAL_MS", 10)
    client: Any = Controller(held_back)
    stream: Any = SimpleNamespace(position=POSITION, unknown="")
    beats = Heartbeats(client, stream, BrokerEpoch(5))
    task = asyncio.create_task(beats.run())
    beats.unfence()
    async with asyncio.timeout(30):
        await beats.wait_unfenced()
    assert [beat.want_fence for beat in client.heard].count(False) == held_back + 1
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def test_heartbeat_states_number_of_coordinated_groups() -> None:
    client: Any = Controller()
    stream: Any = SimpleNamespace(position=POSITION, unknown="")
    found: list[int | None] = [None]
    one = Heartbeats(client, stream, BrokerEpoch(5), asked=HeartbeatPeers(groups=lambda: found[0]))
    await one._beat()
    found[0] = 7
    await one._beat()
    assert [beat.groups for beat in client.heard] == [None, 7]


def beats(client: Controller, lease: LeaderLease) -> Any:
    stream = SimpleNamespace(position=POSITION, unknown="")
    return Heartbeats(client, stream, BrokerEpoch(5), lease)  # type: ignore[arg-type]


async def test_confirmed_answer_extends_lease_from_question(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(heartbeats, "monotonic_ms", clock.monotonic_ms)
    client, lease = Controller(), LeaderLease()
    asked_ms = clock.now_ms
    client.answered_after_ms = 1_500
    await beats(client, lease)._beat()
    assert lease.from_controller(asked_ms + lease.window_ms - 1, MetadataOffset(9))
    assert not lease.from_controller(asked_ms + lease.window_ms, MetadataOffset(9))


@pytest.mark.parametrize(
    ("confirmed", "session_timeout_ms"), [(False, 6_000), (True, 0)], ids=["unconfirmed", "silent"]
)
async def test_other_answers_extend_no_lease(
    confirmed: bool, session_timeout_ms: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From who cannot show that it is the controller, or does not say when it fences."""
    monkeypatch.setattr(heartbeats, "monotonic_ms", clock.monotonic_ms)
    client, lease = Controller(), LeaderLease()
    client.confirmed, client.session_timeout_ms = confirmed, session_timeout_ms
    await beats(client, lease)._beat()
    assert not lease.from_controller(clock.now_ms, MetadataOffset(9))
