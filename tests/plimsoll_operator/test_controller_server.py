"""The controllers' port: who is answered, who is cut off, and what a lost connection proves."""

from __future__ import annotations

import asyncio
import contextlib
import struct
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from uuid import UUID, uuid4

import msgspec
import pytest
from tests.plimsoll_operator.test_group_commit import CLUSTER, MemoryLog, running

from plimsoll_core.cluster.model import Broker, Endpoint
from plimsoll_core.ids import BrokerEpoch, BrokerId, ControllerEpoch, MetadataOffset
from plimsoll_core.messages.brokers import TopicDefaults
from plimsoll_core.messages.metadata_stream import FetchMetadata
from plimsoll_core.messages.requests import (
    BrokerRequest,
    Heartbeat,
    HeartbeatAnswer,
    LogPosition,
    Refused,
    RegisterBroker,
    Registered,
)
from plimsoll_operator.controller.broker_sessions import Enrich
from plimsoll_operator.controller.controller_server import ControllerServer
from plimsoll_operator.controller.controller_term import Controller
from plimsoll_wire import control

WAIT_S = 30


class Peer:
    """A broker's side of a connection, by hand."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    @classmethod
    async def to(cls, server: ControllerServer) -> Peer:
        return cls(*await asyncio.open_connection("127.0.0.1", server.port))

    async def frame(self) -> bytes:
        async with asyncio.timeout(WAIT_S):
            length = struct.unpack(">i", await self.reader.readexactly(4))[0]
            return await self.reader.readexactly(length)

    async def command(
        self,
        request: BrokerRequest,
        cluster_id: UUID = CLUSTER,
        *,
        controller_epoch: int = 0,
    ) -> control.CommandReply:
        command = control.Command(
            cluster_id=cluster_id,
            controller_epoch=ControllerEpoch(controller_epoch),
            request=request,
        )
        self.writer.write(control.encode_request(7, "test", command))
        frame = await self.frame()
        assert control.reply_correlation_id(frame) == 7
        return control.decode_command_reply(frame)

    async def closed(self) -> bool:
        async with asyncio.timeout(WAIT_S):
            try:
                return await self.reader.read() == b""
            except ConnectionResetError:
                return True

    async def close(self) -> None:
        self.writer.close()
        with contextlib.suppress(ConnectionError):
            await self.writer.wait_closed()


Evidence = Callable[[Broker], Awaitable[str | None]]


@asynccontextmanager
async def serving(
    evidence: Evidence | None = None,
    enrich: Enrich | None = None,
    log: MemoryLog | None = None,
) -> AsyncIterator[tuple[ControllerServer, Controller]]:
    async with running(log or MemoryLog()) as controller:
        server = ControllerServer("127.0.0.1", 0)
        await server.start()
        server.add(controller, evidence, enrich)
        try:
            yield server, controller
        finally:
            await controller.stop()
            await server.close()


def a_registration(port: int, replication: int | None = None) -> RegisterBroker:
    endpoints = [Endpoint(name="PLAINTEXT", host="127.0.0.1", port=port)]
    if replication is not None:
        endpoints.append(Endpoint(name="REPLICATION", host="127.0.0.1", port=replication))
    return RegisterBroker(
        cluster_id=CLUSTER,
        broker_id=BrokerId(0),
        incarnation_id=uuid4(),
        previous_broker_epoch=None,
        directory_ids=(uuid4(),),
        endpoints=tuple(endpoints),
        metadata_versions=(1, 1),
        release="0.2.0",
    )


def a_heartbeat(broker_epoch: BrokerEpoch) -> Heartbeat:
    position = LogPosition(
        applied_offset=MetadataOffset(0), nonce=None, controller_epoch=ControllerEpoch(0)
    )
    return Heartbeat(
        broker_id=BrokerId(0),
        broker_epoch=broker_epoch,
        position=position,
        metadata_versions=(1, 1),
        release="0.2.0",
    )


async def a_listener() -> asyncio.Server:
    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()

    return await asyncio.start_server(accept, "127.0.0.1", 0)


async def unfenced(
    peer: Peer, controller: Controller, port: int, replication: int | None = None
) -> BrokerEpoch:
    """Register and take part, as broker 0 listening at `port`."""
    reply = await peer.command(a_registration(port, replication))
    assert isinstance(reply.answer, Registered)
    epoch = reply.answer.broker_epoch
    position = LogPosition(
        applied_offset=controller.image.next_offset,
        nonce=controller.tail.end_nonce,
        controller_epoch=controller.epoch,
    )
    beat = Heartbeat(
        broker_id=BrokerId(0),
        broker_epoch=epoch,
        position=position,
        metadata_versions=(1, 1),
        release="0.2.0",
    )
    answer = (await peer.command(beat)).answer
    assert isinstance(answer, HeartbeatAnswer)
    assert not answer.is_fenced
    return epoch


async def fenced(controller: Controller) -> bool:
    """Whether it is fenced within a short while."""
    changed = asyncio.Event()
    controller.subscribe(lambda *_: changed.set())
    for _ in range(20):
        if controller.image.brokers[BrokerId(0)].fenced:
            return True
        changed.clear()
        try:
            async with asyncio.timeout(0.1):
                await changed.wait()
        except TimeoutError:
            continue
    return False


async def until_fenced(controller: Controller) -> None:
    async with asyncio.timeout(WAIT_S):
        while not await fenced(controller):
            pass


async def test_broker_registers_and_every_reply_carries_the_epoch() -> None:
    async with serving() as (server, controller):
        peer = await Peer.to(server)
        reply = await peer.command(a_registration(9))
        assert isinstance(reply.answer, Registered)
        assert reply.controller_epoch == controller.epoch
        assert not reply.unconfirmed
        assert reply.metadata_end == controller.image.next_offset
        assert reply.session_timeout_ms == controller.settings.session_timeout_ms
        assert reply.topic_defaults == TopicDefaults(partitions=6, replication_factor=3, min_isr=2)
        await peer.close()


async def test_cluster_not_led_here_gets_not_controller() -> None:
    async with serving() as (server, _):
        peer = await Peer.to(server)
        reply = await peer.command(a_heartbeat(BrokerEpoch(1)), cluster_id=uuid4())
        assert isinstance(reply.answer, Refused)
        assert reply.answer.reason == "NotController"
        await peer.close()


async def test_controller_that_stopped_answers_not_controller() -> None:
    async with serving() as (server, controller):
        await controller.stop()
        peer = await Peer.to(server)
        reply = await peer.command(a_registration(9))
        assert isinstance(reply.answer, Refused)
        assert reply.answer.reason == "NotController"
        await peer.close()


async def test_parked_metadata_fetch_does_not_delay_a_heartbeat() -> None:
    """Replies may overtake, even on one connection."""
    async with serving() as (server, controller):
        peer = await Peer.to(server)
        reply = await peer.command(a_registration(9))
        assert isinstance(reply.answer, Registered)
        fetch = FetchMetadata(
            cluster_id=CLUSTER,
            broker_id=BrokerId(0),
            offset=controller.image.next_offset,
            nonce=controller.tail.end_nonce,
            wait_ms_max=10_000,
        )
        peer.writer.write(control.encode_request(1, "test", fetch))
        reply = await peer.command(a_heartbeat(reply.answer.broker_epoch))
        assert isinstance(reply.answer, HeartbeatAnswer)
        await peer.close()


@pytest.mark.parametrize(
    "garbage",
    [
        b"GET / HTTP/1.1\r\n\r\n",
        struct.pack(">i", 2**31 - 1),
        struct.pack(">i", -5),
        struct.pack(">ihhih", 10, 0, 9, 1, 0),
        struct.pack(">ihhih", 10, 1000, 0, 1, 0),
    ],
    ids=["http", "2GiB", "negative", "kafka-produce", "no-body"],
)
async def test_garbage_closes_its_own_connection_only(garbage: bytes) -> None:
    async with serving() as (server, _):
        good, bad = await Peer.to(server), await Peer.to(server)
        registration = a_registration(9)
        assert isinstance((await good.command(registration)).answer, Registered)
        bad.writer.write(garbage)
        assert await bad.closed()
        assert isinstance((await good.command(registration)).answer, Registered)
        await good.close()
        await bad.close()


async def test_half_a_request_holds_nobody_up() -> None:
    async with serving() as (server, _):
        slow, good = await Peer.to(server), await Peer.to(server)
        slow.writer.write(struct.pack(">ihh", 500, 1000, 0))
        assert isinstance((await good.command(a_registration(9))).answer, Registered)
        await slow.close()
        await good.close()


async def test_closed_connection_and_refusing_listener_prove_death() -> None:
    async with serving() as (server, controller):
        listener = await a_listener()
        peer = await Peer.to(server)
        await unfenced(peer, controller, listener.sockets[0].getsockname()[1])
        listener.close()
        await peer.close()
        await until_fenced(controller)


async def test_cut_connection_alone_proves_nothing() -> None:
    """Its listener still answers: only the session timeout may fence it."""
    async with serving() as (server, controller):
        listener = await a_listener()
        peer = await Peer.to(server)
        await unfenced(peer, controller, listener.sockets[0].getsockname()[1])
        peer.writer.transport.abort()
        assert not await fenced(controller)
        listener.close()


async def test_refusing_client_endpoint_proves_nothing() -> None:
    """A Service without ready pods refuses for a broker that lives."""
    async with serving() as (server, controller):
        clients, followers = await a_listener(), await a_listener()
        ports = [one.sockets[0].getsockname()[1] for one in (clients, followers)]
        clients.close()
        peer = await Peer.to(server)
        await unfenced(peer, controller, *ports)
        await peer.close()
        assert not await fenced(controller)

        followers.close()
        peer = await Peer.to(server)
        broker = controller.image.brokers[BrokerId(0)]
        assert isinstance(
            (await peer.command(a_heartbeat(broker.broker_epoch))).answer, HeartbeatAnswer
        )
        await peer.close()
        await until_fenced(controller)


async def test_last_connection_counts_not_any() -> None:
    async with serving() as (server, controller):
        listener = await a_listener()
        first, second = await Peer.to(server), await Peer.to(server)
        epoch = await unfenced(first, controller, listener.sockets[0].getsockname()[1])
        await second.command(a_heartbeat(epoch))
        listener.close()
        await first.close()
        assert not await fenced(controller)
        await second.close()
        await until_fenced(controller)


async def test_closing_server_proves_nothing_about_its_brokers() -> None:
    """R8: the close of our own sockets must fence no broker."""
    async with serving() as (server, controller):
        listener = await a_listener()
        peer = await Peer.to(server)
        await unfenced(peer, controller, listener.sockets[0].getsockname()[1])
        listener.close()
        await controller.stop()
        await server.close()
        assert await peer.closed()
        await peer.close()
        assert not controller.image.brokers[BrokerId(0)].fenced


async def test_terminated_pod_is_proof_too() -> None:
    async def evidence(broker: Broker) -> str | None:
        return "pod main-broker-0-0 is terminated"

    async with serving(evidence) as (server, controller):
        listener = await a_listener()
        peer = await Peer.to(server)
        await unfenced(peer, controller, listener.sockets[0].getsockname()[1])
        await peer.close()
        await until_fenced(controller)
        listener.close()


async def test_registration_is_committed_with_what_the_hook_adds() -> None:
    async def enrich(request: RegisterBroker) -> RegisterBroker | Refused:
        return msgspec.structs.replace(request, rack="west-1")

    async with serving(enrich=enrich) as (server, controller):
        peer = await Peer.to(server)
        reply = await peer.command(a_registration(9))
        assert isinstance(reply.answer, Registered)
        assert controller.image.brokers[BrokerId(0)].rack == "west-1"
        await peer.close()


async def test_registration_that_the_hook_refuses_commits_nothing() -> None:
    async def enrich(request: RegisterBroker) -> RegisterBroker | Refused:
        return Refused(reason="InvalidRegistration", code=119, message="no rack")

    async with serving(enrich=enrich) as (server, controller):
        peer = await Peer.to(server)
        reply = await peer.command(a_registration(9))
        assert isinstance(reply.answer, Refused)
        assert reply.answer.message == "no rack"
        assert not controller.image.brokers
        await peer.close()


async def test_registration_dies_with_its_connection() -> None:
    """An earlier process must not register after its successor."""
    asked, cancelled = asyncio.Event(), asyncio.Event()

    async def enrich(request: RegisterBroker) -> RegisterBroker | Refused:
        if asked.is_set():
            return request
        asked.set()
        try:
            return await asyncio.get_running_loop().create_future()
        finally:
            cancelled.set()

    async with serving(enrich=enrich) as (server, controller):
        earlier, later = await Peer.to(server), await Peer.to(server)
        command = control.Command(
            cluster_id=CLUSTER, controller_epoch=ControllerEpoch(0), request=a_registration(9)
        )
        earlier.writer.write(control.encode_request(7, "test", command))
        async with asyncio.timeout(WAIT_S):
            await asked.wait()
            await earlier.close()
            await cancelled.wait()
        registration = a_registration(10)
        assert isinstance((await later.command(registration)).answer, Registered)
        known = controller.image.brokers[BrokerId(0)].incarnation_id
        assert known == registration.incarnation_id
        await later.close()
