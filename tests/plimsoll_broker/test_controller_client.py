"""A broker finds the controller, keeps to it, and leaves one that is not it any more."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from uuid import UUID

import pytest
from tests.served import serve

from plimsoll_broker.control import controller_client, metadata_stream
from plimsoll_broker.control.controller_client import (
    ControlConnection,
    ControllerAddress,
    ControllerClient,
    NoController,
    Peers,
)
from plimsoll_broker.control.metadata_store import MetadataCopy
from plimsoll_broker.control.metadata_stream import MetadataStream
from plimsoll_core.ids import BrokerEpoch, BrokerId, ControllerEpoch, MetadataOffset
from plimsoll_core.messages.brokers import TopicDefaults
from plimsoll_core.messages.requests import (
    AllocateProducerIds,
    Answer,
    BrokerRequest,
    CreateTopics,
    Done,
    Heartbeat,
    HeartbeatAnswer,
    LogPosition,
    ProducerIdBlock,
    Refused,
)
from plimsoll_wire import control

CLUSTER = UUID("7f3d9c3e-6c54-4c58-8f0e-2d6b36f0a001")
PATIENCE_MS = 20_000
"""For who answers at once, however busy the machine."""
NOT_CONTROLLER = Refused(reason="NotController", code=41, message="not me")
ALIVE = HeartbeatAnswer(is_caught_up=True, is_fenced=False, should_shut_down=False)


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("CONNECT_MS_MAX", "LOOK_MS_MAX"):
        monkeypatch.setattr(controller_client, name, PATIENCE_MS)


class FakeController:
    """Says what it is told to say; `answer` None: it stays silent."""

    def __init__(self, epoch: int, answer: Answer | None) -> None:
        self.epoch = epoch
        self.answer = answer
        self.unconfirmed = False
        self.heard: list[BrokerRequest] = []
        self.streams = 0
        self.topic_defaults: TopicDefaults | None = None
        self.connections = 0
        self.deaf_to = 0
        self.port = 0
        self._tasks: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None

    async def start(self) -> None:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        serve(self._tasks, self._serve(reader, writer), writer)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        number = self.connections
        try:
            while True:
                length = int.from_bytes(await reader.readexactly(4), "big")
                request = control.decode_request(await reader.readexactly(length))
                if not isinstance(request.body, control.Command):
                    self.streams += 1
                    continue
                if number <= self.deaf_to:
                    continue  # a connection whose packets are lost
                self.heard.append(request.body.request)
                if self.answer is not None:
                    reply = control.CommandReply(
                        controller_epoch=ControllerEpoch(self.epoch),
                        unconfirmed=self.unconfirmed,
                        answer=self.answer,
                        topic_defaults=self.topic_defaults,
                    )
                    writer.write(control.encode_reply(request.correlation_id, reply))
        except (asyncio.IncompleteReadError, ConnectionError):
            return

    async def stop(self) -> None:
        assert self._server is not None
        self._server.close()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


@asynccontextmanager
async def a_client(*controllers: FakeController) -> AsyncIterator[ControllerClient]:
    for controller in controllers:
        await controller.start()
    peers = Peers(
        cluster_id=CLUSTER,
        broker_id=BrokerId(0),
        controllers=tuple(f"127.0.0.1:{controller.port}" for controller in controllers),
    )
    client = ControllerClient(peers)
    try:
        yield client
    finally:
        client.close()
        for controller in controllers:
            await controller.stop()


def a_request() -> AllocateProducerIds:
    return AllocateProducerIds(broker_id=BrokerId(0), broker_epoch=BrokerEpoch(1))


def a_heartbeat() -> Heartbeat:
    position = LogPosition(
        applied_offset=MetadataOffset(0), nonce=None, controller_epoch=ControllerEpoch(0)
    )
    return Heartbeat(
        broker_id=BrokerId(0),
        broker_epoch=BrokerEpoch(1),
        position=position,
        metadata_versions=(1, 1),
        release="0.2.0",
    )


BLOCK = ProducerIdBlock(first=0, length=1000)


async def test_active_controller_is_found_among_the_addresses() -> None:
    standby, active = FakeController(0, NOT_CONTROLLER), FakeController(3, BLOCK)
    async with a_client(standby, active) as client:
        assert await client.command(a_request(), 10_000) == BLOCK
        assert client.address == ("127.0.0.1", active.port)
        assert client.highest_epoch == 3


async def test_commands_continue_until_replacement_connection_is_made(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Whoever is called with TLS may hang; requests, and heartbeats with them, do not wait."""
    active = FakeController(3, BLOCK)
    async with a_client(active) as client:
        await client.command(a_request(), 10_000)
        connections = active.connections
        monkeypatch.setattr(client.inside, "is_outdated", lambda link: True)
        hangs, attempts = asyncio.Event(), 0
        made = client._try

        async def hanging(address: ControllerAddress) -> ControlConnection | None:
            nonlocal attempts
            attempts += 1
            await hangs.wait()
            return await made(address)

        monkeypatch.setattr(client, "_try", hanging)
        for _ in range(3):
            assert await client.command(a_request(), 10_000) == BLOCK
        assert (attempts, active.connections) == (1, connections)
        hangs.set()
        await until(lambda: active.connections == connections + 1)
        monkeypatch.setattr(client.inside, "is_outdated", lambda link: False)
        assert await client.command(a_request(), 10_000) == BLOCK


async def test_command_is_sent_again_to_the_successor() -> None:
    old, new = FakeController(3, BLOCK), FakeController(4, NOT_CONTROLLER)
    async with a_client(old, new) as client:
        await client.command(a_request(), 10_000)
        old.answer, new.answer = NOT_CONTROLLER, BLOCK
        assert await client.command(a_request(), 10_000) == BLOCK
        assert client.address == ("127.0.0.1", new.port)


async def test_lower_epoch_is_not_believed() -> None:
    zombie, active = FakeController(3, BLOCK), FakeController(4, NOT_CONTROLLER)
    async with a_client(zombie, active) as client:
        client.highest_epoch = ControllerEpoch(4)
        active.answer = Done()
        assert await client.command(a_request(), 10_000) == Done()
        assert client.address == ("127.0.0.1", active.port)


async def test_command_without_any_controller_ends_at_its_deadline() -> None:
    controller = FakeController(1, NOT_CONTROLLER)
    async with a_client(controller) as client:
        with pytest.raises(NoController, match="300 ms"):
            await client.command(a_request(), 300)


async def test_non_idempotent_request_is_never_sent_twice() -> None:
    controller = FakeController(1, None)
    async with a_client(controller) as client:
        asked = asyncio.ensure_future(client.command(CreateTopics(topics=()), 10_000, once=True))
        await until(lambda: len(controller.heard) == 1)
        client.give_up("the connection breaks")
        with pytest.raises(NoController, match="outcome is unknown"):
            await asked
        assert len(controller.heard) == 1


async def test_unconfirmed_controller_yields_to_confirmed_newer_one() -> None:
    """R4: a zombie that is cut off from its log still answers heartbeats."""
    zombie, successor = FakeController(3, ALIVE), FakeController(4, NOT_CONTROLLER)
    async with a_client(zombie, successor) as client:
        assert await client.heartbeat(a_heartbeat(), 5_000) is not None
        zombie.unconfirmed, successor.answer = True, ALIVE
        result = await client.heartbeat(a_heartbeat(), 5_000)
        assert result is not None
        assert not result.confirmed
        assert client.address == ("127.0.0.1", successor.port)
        result = await client.heartbeat(a_heartbeat(), 5_000)
        assert result is not None
        assert result.confirmed


async def test_unconfirmed_controller_without_a_newer_one_is_kept() -> None:
    alone, standby = FakeController(3, ALIVE), FakeController(0, NOT_CONTROLLER)
    alone.unconfirmed = True
    async with a_client(alone, standby) as client:
        for _ in range(2):
            result = await client.heartbeat(a_heartbeat(), 5_000)
            assert result is not None
            assert not result.confirmed
        assert client.address == ("127.0.0.1", alone.port)


async def test_topic_defaults_come_from_last_confirmed_controller() -> None:
    fake = FakeController(3, ALIVE)
    async with a_client(fake) as client:
        for unconfirmed, partitions, known in ((False, 6, 6), (True, 7, 6), (False, 8, 8)):
            fake.unconfirmed = unconfirmed
            fake.topic_defaults = TopicDefaults(
                partitions=partitions, replication_factor=3, min_isr=2
            )
            await client.heartbeat(a_heartbeat(), 5_000)
            assert client.topic_defaults is not None
            assert client.topic_defaults.partitions == known


async def test_silent_controller_is_compared_with_the_others() -> None:
    silent, successor = FakeController(3, ALIVE), FakeController(4, NOT_CONTROLLER)
    async with a_client(silent, successor) as client:
        await client.heartbeat(a_heartbeat(), 5_000)
        silent.answer, successor.answer = None, ALIVE
        assert await client.heartbeat(a_heartbeat(), 200) is None
        assert client.address == ("127.0.0.1", successor.port)


async def test_dead_controller_addresses_do_not_exhaust_session() -> None:
    """They are asked at once: one after another they would take all the time of the look."""
    silent, successor = FakeController(3, ALIVE), FakeController(4, NOT_CONTROLLER)
    dead = [FakeController(0, None) for _ in range(6)]
    async with a_client(silent, *dead, successor) as client:
        await client.heartbeat(a_heartbeat(), 5_000)
        silent.answer, successor.answer = None, ALIVE
        assert await client.heartbeat(a_heartbeat(), 200) is None
        assert client.address == ("127.0.0.1", successor.port)
        assert (await client.heartbeat(a_heartbeat(), 5_000)) is not None


async def test_search_over_dead_addresses_keeps_present_controller(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(controller_client, "LOOK_MS_MAX", 500)
    silent, dead = FakeController(3, ALIVE), [FakeController(0, None) for _ in range(6)]
    async with a_client(silent, *dead) as client:
        await client.heartbeat(a_heartbeat(), 5_000)
        silent.answer = None
        async with asyncio.timeout(PATIENCE_MS / 1000):
            assert await client.heartbeat(a_heartbeat(), 200) is None
        assert client.address == ("127.0.0.1", silent.port)


async def test_heartbeat_with_lost_packets_uses_new_connection() -> None:
    """After a cut of 3 s the old one may wait out a retransmission longer than the session."""
    controller, standby = FakeController(3, ALIVE), FakeController(0, NOT_CONTROLLER)
    async with a_client(controller, standby) as client:
        await client.heartbeat(a_heartbeat(), 5_000)
        controller.deaf_to = controller.connections
        assert await client.heartbeat(a_heartbeat(), 200) is None
        assert len(controller.heard) == 2
        assert await client.heartbeat(a_heartbeat(), 5_000) is not None


async def test_controller_reported_by_peer_is_found_next_heartbeat() -> None:
    old, new = FakeController(3, ALIVE), FakeController(4, NOT_CONTROLLER)
    async with a_client(old, new) as client:
        await client.heartbeat(a_heartbeat(), 5_000)
        new.answer = ALIVE
        client.heard_of(ControllerEpoch(4))
        await client.heartbeat(a_heartbeat(), 5_000)
        assert client.address == ("127.0.0.1", new.port)
        assert client.highest_epoch == 4


async def test_invented_controller_epoch_changes_nothing() -> None:
    """A client that claims to be a broker may name any number in its Fetch."""
    controller, standby = FakeController(3, ALIVE), FakeController(0, NOT_CONTROLLER)
    async with a_client(controller, standby) as client:
        await client.heartbeat(a_heartbeat(), 5_000)
        for claimed in (2**31, 2**31 + 1, 2**62):
            client.heard_of(ControllerEpoch(claimed))
            result = await client.heartbeat(a_heartbeat(), 5_000)
            assert result is not None
            assert result.confirmed
        assert client.highest_epoch == 3, "and is not told on to peers"
        assert client.address == ("127.0.0.1", controller.port)
        assert standby.connections <= 2, "one look, whatever is claimed meanwhile"


async def test_metadata_stream_leaves_frozen_controller_with_commands(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It must not sit out the time in which a long poll or a large snapshot may be answered."""
    monkeypatch.setattr(metadata_stream, "ANSWER_MS_MAX", 2 * PATIENCE_MS)
    frozen, successor = FakeController(3, BLOCK), FakeController(4, NOT_CONTROLLER)
    async with a_client(frozen, successor) as client:
        copy = MetadataCopy(tmp_path)
        stream = asyncio.create_task(MetadataStream(client, copy).run())
        await client.command(a_request(), 10_000)
        await until(lambda: frozen.streams == 1)
        successor.answer = BLOCK
        client.heard_of(ControllerEpoch(4))
        await client.heartbeat(a_heartbeat(), 5_000)
        await until(lambda: successor.streams == 1)
        stream.cancel()
        await asyncio.gather(stream, return_exceptions=True)
        copy.close()


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE_MS / 1000):
        while not condition():  # noqa: ASYNC110 - the fake has no event to wait for
            await asyncio.sleep(0.005)
