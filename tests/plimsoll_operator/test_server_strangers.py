"""The controllers' port and its peers: one connection belongs to one broker, and connections
without a known broker are bounded."""

from __future__ import annotations

import asyncio
import struct
from contextlib import suppress

import msgspec
import pytest
from tests.plimsoll_operator.test_controller_server import (
    WAIT_S,
    Peer,
    a_heartbeat,
    a_listener,
    a_registration,
    serving,
    unfenced,
)
from tests.plimsoll_operator.test_group_commit import CLUSTER
from tests.plimsoll_operator.test_server_order import listening, send

from plimsoll_core.ids import BrokerEpoch, BrokerId, MetadataOffset
from plimsoll_core.messages.metadata_stream import FetchMetadata
from plimsoll_core.messages.requests import (
    AllocateProducerIds,
    CreateTopics,
    Heartbeat,
    HeartbeatAnswer,
    LogPosition,
    Refused,
    RegisterBroker,
    Registered,
)
from plimsoll_operator.controller import connection_identity
from plimsoll_operator.controller import controller_server as servers
from plimsoll_wire import control


def another(request: RegisterBroker, broker_id: int) -> RegisterBroker:
    return msgspec.structs.replace(request, broker_id=BrokerId(broker_id))


async def until(server: servers.ControllerServer, strangers: int) -> None:
    async with asyncio.timeout(WAIT_S):
        while len(server.strangers) != strangers:  # noqa: ASYNC110 - nothing tells of it
            await asyncio.sleep(0.005)


async def test_registration_over_another_brokers_connection_is_refused() -> None:
    async with serving() as (server, controller):
        peer = await Peer.to(server)
        assert isinstance((await peer.command(a_registration(9))).answer, Registered)
        answer = (await peer.command(another(a_registration(9), 1))).answer
        assert isinstance(answer, Refused)
        assert "over the connection of broker 0 of cluster" in answer.message
        assert list(controller.image.brokers) == [0]
        await peer.close()


async def test_commands_for_other_broker_or_epoch_are_refused() -> None:
    async with serving() as (server, controller):
        first, second = await Peer.to(server), await Peer.to(server)
        mine = (await first.command(a_registration(9))).answer
        other = (await second.command(another(a_registration(10), 1))).answer
        assert isinstance(mine, Registered)
        assert isinstance(other, Registered)
        heard = listening(controller)
        for broker_id, epoch in ((1, other.broker_epoch), (0, mine.broker_epoch + 1)):
            request = AllocateProducerIds(
                broker_id=BrokerId(broker_id), broker_epoch=BrokerEpoch(epoch)
            )
            answer = (await first.command(request)).answer
            assert isinstance(answer, Refused)
            assert answer.reason == "InvalidRequest"
        assert heard == []
        beat = (await first.command(a_heartbeat(mine.broker_epoch))).answer
        assert isinstance(beat, HeartbeatAnswer), "it goes on speaking for its own"
        await first.close()
        await second.close()


async def test_heartbeat_of_a_registered_lifetime_shows_who_reconnects() -> None:
    async with serving() as (server, controller):
        listener = await a_listener()
        first = await Peer.to(server)
        epoch = await unfenced(first, controller, listener.sockets[0].getsockname()[1])
        second = await Peer.to(server)
        await second.command(a_heartbeat(BrokerEpoch(epoch - 1)))
        assert len(server.strangers) == 1, "a lifetime that is over shows nothing"
        assert isinstance((await second.command(a_heartbeat(epoch))).answer, HeartbeatAnswer)
        assert len(server.strangers) == 0
        await first.close()
        await second.close()
        listener.close()


async def test_clients_request_from_stranger_is_not_decided(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(servers, "SHOWN_MS_MAX", 20)
    async with serving() as (server, controller):
        heard = listening(controller)
        peer = await Peer.to(server)
        answer = (await peer.command(CreateTopics(topics=()))).answer
        assert isinstance(answer, Refused)
        assert answer.reason == "BrokerIdNotRegistered"
        assert heard == []
        await peer.close()


async def test_request_ahead_of_reconnect_heartbeat_waits() -> None:
    async with serving() as (server, controller):
        listener = await a_listener()
        first, second = await Peer.to(server), await Peer.to(server)
        epoch = await unfenced(first, controller, listener.sockets[0].getsockname()[1])
        send(second, 1, CreateTopics(topics=()))
        send(second, 2, a_heartbeat(epoch))
        answers = {}
        for _ in range(2):
            frame = await second.frame()
            number = control.reply_correlation_id(frame)
            answers[number] = control.decode_command_reply(frame).answer
        assert not isinstance(answers[1], Refused)
        assert isinstance(answers[2], HeartbeatAnswer)
        await first.close()
        await second.close()
        listener.close()


async def test_metadata_is_for_registered_brokers_only() -> None:
    """It holds what proves that an earlier process is gone, and will hold credentials."""
    async with serving() as (server, _):
        peer, stranger = await Peer.to(server), await Peer.to(server)
        assert isinstance((await peer.command(a_registration(9))).answer, Registered)
        for broker_id, served in ((7, False), (0, True)):
            fetch = FetchMetadata(
                cluster_id=CLUSTER, broker_id=BrokerId(broker_id), offset=MetadataOffset(0)
            )
            asking = stranger if broker_id else peer
            asking.writer.write(control.encode_request(3, "test", fetch))
            reply = control.decode_metadata_reply(await asking.frame())
            assert (reply.update is not None) is served
        await peer.close()
        await stranger.close()


@pytest.mark.parametrize("kind", ["registrations", "streams", "bytes"])
async def test_connection_with_unexpected_request_is_closed(kind: str) -> None:
    async with serving() as (server, controller):
        peer, good = await Peer.to(server), await Peer.to(server)
        registration = a_registration(9)
        assert isinstance((await good.command(registration)).answer, Registered)
        if kind == "registrations":
            send(peer, 1, registration)
            send(peer, 2, registration)
        elif kind == "streams":
            end = controller.image.next_offset
            fetch = FetchMetadata(
                cluster_id=CLUSTER,
                broker_id=BrokerId(0),
                offset=end,
                nonce=controller.tail.end_nonce,
            )
            for number in (1, 2):
                peer.writer.write(control.encode_request(number, "test", fetch))
        else:
            send(peer, 1, msgspec.structs.replace(registration, revision="x" * 100_000))
        assert await peer.closed()
        assert isinstance((await good.command(registration)).answer, Registered)
        await good.close()
        await peer.close()


async def test_controller_server_over_stranger_limit_closes_oldest_stranger(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(connection_identity, "STRANGERS_MAX", 3)
    async with serving() as (server, _):
        known = await Peer.to(server)
        assert isinstance((await known.command(a_registration(9))).answer, Registered)
        peers = []
        for number in range(4):
            peers.append(await Peer.to(server))
            await until(server, min(number + 1, 3))
        assert await peers[0].closed()
        assert isinstance((await known.command(a_registration(9))).answer, Registered | Refused)
        assert isinstance(
            (await peers[3].command(another(a_registration(9), 1))).answer, Registered
        ), "whoever comes is heard, however many are silent"
        for peer in (known, *peers):
            await peer.close()


async def test_half_requests_of_strangers_are_bounded_together(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(connection_identity, "STRANGERS_BYTES_MAX", 100_000)
    async with serving() as (server, _):
        peers = [await Peer.to(server) for _ in range(3)]
        for peer in peers:
            peer.writer.write(struct.pack(">i", 10_000_000) + b"x" * 40_000)
            await peer.writer.drain()
        ended = [asyncio.ensure_future(peer.closed()) for peer in peers]
        done, _ = await asyncio.wait(ended, return_when=asyncio.FIRST_COMPLETED, timeout=WAIT_S)
        assert len(done) == 1
        await until(server, 2)
        for each in ended:
            each.cancel()
        await asyncio.gather(*ended, return_exceptions=True)
        for peer in peers:
            await peer.close()


async def test_unidentified_connection_is_closed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with serving() as (server, controller):
        listener = await a_listener()
        known = await Peer.to(server)
        epoch = await unfenced(known, controller, listener.sockets[0].getsockname()[1])
        monkeypatch.setattr(servers, "FIRST_FRAME_MS_MAX", 20)
        monkeypatch.setattr(servers, "STRANGER_MS_MAX", 60)
        talker, silent = await Peer.to(server), await Peer.to(server)
        send(talker, 1, a_heartbeat(BrokerEpoch(epoch + 5)))
        assert await silent.closed()
        async with asyncio.timeout(WAIT_S):
            # What it was answered, and the end; on a busy machine it may be cut off unheard.
            with suppress(ConnectionError):
                await talker.reader.read()
        assert isinstance((await known.command(a_heartbeat(epoch))).answer, HeartbeatAnswer)
        for peer in (known, talker, silent):
            await peer.close()
        listener.close()


async def test_absurd_controller_epoch_ends_no_term() -> None:
    """A made-up epoch would be the next term's, plus one, for good."""
    async with serving() as (server, controller):
        listener = await a_listener()
        peer, stranger = await Peer.to(server), await Peer.to(server)
        epoch = await unfenced(peer, controller, listener.sockets[0].getsockname()[1])
        position = LogPosition(
            applied_offset=controller.image.next_offset,
            nonce=controller.tail.end_nonce,
            controller_epoch=controller.epoch + 2**40,
        )
        beat = Heartbeat(
            broker_id=BrokerId(9),
            broker_epoch=BrokerEpoch(1),
            position=position,
            metadata_versions=(1, 1),
            release="0.2.0",
        )
        assert isinstance((await stranger.command(beat)).answer, Refused)
        assert isinstance((await peer.command(a_heartbeat(epoch))).answer, HeartbeatAnswer)
        assert controller.active
        await peer.close()
        await stranger.close()
        listener.close()


async def test_metadata_fetch_behind_answer_keeps_connection() -> None:
    """A broker may have the answer before the controller's event loop looks at what has ended."""
    async with serving() as (server, controller):
        peer = await Peer.to(server)
        assert isinstance((await peer.command(a_registration(9))).answer, Registered)
        fetch = FetchMetadata(
            cluster_id=CLUSTER, broker_id=BrokerId(0), offset=controller.image.next_offset - 1
        )
        connection = next(iter(server.connections))
        transport = QuickPeer(connection, control.encode_request(2, "test", fetch))
        connection._transport = transport
        connection.data_received(control.encode_request(1, "test", fetch))
        async with asyncio.timeout(WAIT_S):
            await transport.second_answer_or_end.wait()
        assert not transport.aborted
        await peer.close()


class QuickPeer(asyncio.Transport):
    """Asks again in the same turn of the event loop in which it is answered."""

    def __init__(self, connection: servers.ServerConnection, asks: bytes) -> None:
        super().__init__()
        self.connection = connection
        self.asks = asks
        self.answers = 0
        self.aborted = False
        self.second_answer_or_end = asyncio.Event()

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.answers += 1
        if self.answers == 1:
            asyncio.get_running_loop().call_soon(self.connection.data_received, self.asks)
        else:
            self.second_answer_or_end.set()

    def get_write_buffer_size(self) -> int:
        return 0

    def is_closing(self) -> bool:
        return self.aborted

    def abort(self) -> None:
        self.aborted = True
        self.second_answer_or_end.set()
