"""What a controller's heartbeat replies make of a broker's lease: both real, over a socket."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any

import pytest
from tests.plimsoll_operator.test_controller_server import a_heartbeat, a_registration
from tests.plimsoll_operator.test_group_commit import CLUSTER, MemoryLog, running

from plimsoll_broker.clocks import monotonic_ms
from plimsoll_broker.control.controller_client import ControllerClient, Peers
from plimsoll_broker.node import heartbeats
from plimsoll_broker.node.heartbeats import Heartbeats
from plimsoll_core.ids import BrokerId, ControllerEpoch, MetadataOffset
from plimsoll_core.messages.requests import HeartbeatAnswer, LogPosition, Registered
from plimsoll_core.replica.leader_lease import LeaderLease
from plimsoll_operator.controller.controller_server import ControllerServer
from plimsoll_operator.controller.controller_term import Controller

NEVER_MS = -1
"""No proof is so young: the controller cannot show that it is the one."""


@asynccontextmanager
async def beating(lease: LeaderLease, confirmed_ms: int) -> AsyncIterator[tuple[Any, Controller]]:
    """A registered broker's heartbeats, and who answers them."""
    async with running(MemoryLog(), confirmed_ms=confirmed_ms) as controller:
        server = ControllerServer("127.0.0.1", 0)
        await server.start()
        server.add(controller, None, None)
        peers = Peers(
            cluster_id=CLUSTER, broker_id=BrokerId(0), controllers=(f"127.0.0.1:{server.port}",)
        )
        client = ControllerClient(peers)
        try:
            registered = await client.command(a_registration(9))
            assert isinstance(registered, Registered)
            position = LogPosition(
                applied_offset=MetadataOffset(0), nonce=None, controller_epoch=ControllerEpoch(0)
            )
            stream: Any = SimpleNamespace(position=position, unknown="")
            yield Heartbeats(client, stream, registered.broker_epoch, lease), controller
        finally:
            client.close()
            await controller.stop()
            await server.close()


async def test_heartbeat_extends_lease_by_nine_tenths(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # However late a busy machine reads the answer.
    monkeypatch.setattr(heartbeats, "ANSWER_MS_MAX", 30_000)
    lease = LeaderLease()
    async with beating(lease, confirmed_ms=60_000) as (beats, controller):
        before_ms = monotonic_ms()
        await beats._beat()
        after_ms = monotonic_ms()
        everything = controller.image.next_offset
        assert lease.window_ms == controller.settings.session_timeout_ms * 9 // 10
        assert not lease.from_controller(after_ms, MetadataOffset(everything - 1)), (
            "what the controller had committed is not applied here"
        )
        assert lease.from_controller(before_ms + lease.window_ms - 1, everything)
        assert not lease.from_controller(after_ms + lease.window_ms, everything)


async def test_unconfirmed_controllers_answer_extends_nothing() -> None:
    lease = LeaderLease()
    async with beating(lease, confirmed_ms=NEVER_MS) as (beats, controller):
        answered = await beats._client.heartbeat(a_heartbeat(beats._broker_epoch), 10_000)
        assert isinstance(answered.answer, HeartbeatAnswer)
        assert not answered.confirmed
        heard_ms = beats.answered_at_ms
        await beats._beat()
        assert beats.answered_at_ms == heard_ms, "nor does it count as having been heard"
        assert not lease.from_controller(monotonic_ms(), controller.image.next_offset)


async def test_extended_lease_is_not_shortened_by_unconfirmed() -> None:
    lease = LeaderLease()
    lease.answered(monotonic_ms(), 600_000, MetadataOffset(0))
    async with beating(lease, confirmed_ms=NEVER_MS) as (beats, _):
        await beats._beat()
        assert lease.from_controller(monotonic_ms(), MetadataOffset(0))
