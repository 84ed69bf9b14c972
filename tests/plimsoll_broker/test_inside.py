"""Mutual TLS inside on loopback: a follower's listener, a controller's port, and who calls them."""

from __future__ import annotations

import asyncio
import os
import random
import ssl
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from uuid import UUID

import pytest
from msgspec.structs import replace
from tests.plimsoll_broker.listening import Handlers
from tests.plimsoll_broker.tls_listening import HOST, until

from plimsoll_broker.inside import InsidePeers
from plimsoll_broker.replication.peer_connection import PeerConnection, PeerLost
from plimsoll_broker.server.connection_limits import ListenerLimits
from plimsoll_broker.server.dispatch import Dispatch
from plimsoll_broker.server.listener import BrokerListener
from plimsoll_core.cluster.model import ClusterImage
from plimsoll_core.ids import BrokerId
from plimsoll_core.security.inside import (
    RETIRED,
    BrokerCertificates,
    Inside,
    InsideMode,
    broker_identity,
)
from plimsoll_net.dialling import HANDSHAKE_S, PeerAddress
from plimsoll_net.handshakes import FAILED, NOT_TLS
from plimsoll_net.inside_identity import AUTHORITIES, CERTIFICATE, KEY, MODE, identity_of
from plimsoll_operator.pki.authority import KeyPair, describe, issue, issue_inside, new_authority
from plimsoll_wire.api_versions import ApiKey
from plimsoll_wire.headers import request_frame
from plimsoll_wire.messages import encode_request

CLUSTER, OTHER = UUID(int=7), UUID(int=8)
NOW_MS = time.time_ns() // 1_000_000
AUTHORITY = new_authority("inside", NOW_MS)
YEARS_AGO_MS = NOW_MS - 5 * 365 * 24 * 3_600_000
WAIT_S = 30.0


def pair_of(broker_id: int, authority: KeyPair = AUTHORITY, now_ms: int = NOW_MS) -> KeyPair:
    return issue_inside(authority, broker_identity(CLUSTER, broker_id), now_ms)


def write(directory: Path, pair: KeyPair, mode: str = "Permissive") -> None:
    """As a kubelet does."""
    place = directory / f"..{time.monotonic_ns()}"
    place.mkdir(parents=True)
    files = {CERTIFICATE: pair.certificate, KEY: pair.key, AUTHORITIES: AUTHORITY.certificate}
    for name, data in {**files, MODE: mode.encode()}.items():
        (place / name).write_bytes(data)
    link = directory / "..data_tmp"
    link.symlink_to(place.name)
    os.replace(link, directory / "..data")


class Two:
    """Broker 1, which listens, and broker 2, which calls it."""

    def __init__(self, place: Path) -> None:
        self.places = {1: place / "1", 2: place / "2"}
        self.pairs = {1: pair_of(1), 2: pair_of(2)}
        for number, directory in self.places.items():
            directory.mkdir()
            write(directory, self.pairs[number])
        self.peers = {n: InsidePeers(CLUSTER, str(self.places[n])) for n in (1, 2)}
        self.server = BrokerListener(
            Dispatch(Handlers().table()), ListenerLimits(connections_max=2_000)
        )
        self.server.inside = self.peers[1]
        self.peers[1].changed = self.server.review
        self.commit(InsideMode.PERMISSIVE)

    def commit(self, mode: InsideMode, **more: str) -> None:
        """Both learn it; `more`: a second certificate of a broker, by `b<number>`."""
        rows = []
        for number, pair in self.pairs.items():
            digests = (describe(pair.certificate).sha256, more.get(f"b{number}", "none"))
            rows.append(BrokerCertificates(broker_id=BrokerId(number), sha256=digests))
        image = ClusterImage(cluster_id=CLUSTER)
        image = replace(image, inside=Inside(mode=mode, certificates=tuple(rows)))
        for peers in self.peers.values():
            peers.learn(image)

    @property
    def address(self) -> PeerAddress:
        return PeerAddress(HOST, self.server.port)

    async def call(self, broker_id: int = 1) -> PeerConnection:
        async with asyncio.timeout(WAIT_S):
            connection, link = await self.peers[2].broker(
                PeerConnection, self.address, BrokerId(broker_id)
            )
        connection.link = link
        return connection

    @property
    def ended(self) -> Counter[str]:
        return self.server.stats.closed_for


@asynccontextmanager
async def two_brokers(place: Path) -> AsyncIterator[Two]:
    made = Two(place)
    await made.server.start(HOST, 0)
    try:
        yield made
    finally:
        await made.server.stop()


async def versions(connection: PeerConnection) -> bytes:
    body = encode_request(ApiKey.API_VERSIONS, 0, {})
    frame = request_frame(ApiKey.API_VERSIONS, 0, 1, "x", body)
    return bytes(await connection.request(frame, WAIT_S))


def follow(server: BrokerListener) -> None:
    """All who are connected have fetched as registered brokers."""
    for session in server._open:
        session._connection.belongs_to_broker()


@pytest.fixture
async def two(tmp_path: Path) -> AsyncIterator[Two]:
    async with two_brokers(tmp_path) as made:
        yield made


async def test_brokers_talk_with_tls_and_know_each_other(two: Two) -> None:
    connection = await two.call()
    assert await versions(connection)
    assert connection.link is not None
    assert connection.link.peer is not None
    assert connection.link.peer.broker_id == 1
    assert (two.server.plaintext, two.peers[2].figures.plaintext) == (0, 0)
    connection.close()


async def test_broker_calls_no_other_broker_than_it_means(two: Two) -> None:
    two.commit(InsideMode.REQUIRED)
    with pytest.raises(ConnectionError, match="other-peer"):
        await two.call(broker_id=3)


async def test_plaintext_is_used_where_one_end_lacks_certificate(
    two: Two,
) -> None:
    (two.places[2] / "..data").unlink()
    two.peers[2] = InsidePeers(CLUSTER, str(two.places[2]))
    connection = await two.call()
    assert await versions(connection)
    assert (two.server.plaintext, two.peers[2].figures.plaintext) == (0, 1), "nobody so far"
    follow(two.server)
    assert two.server.plaintext == 1
    # Once it has one, another connection is due; and the listener closes this one when it must.
    assert not two.peers[2].is_outdated(connection.link)
    two.commit(InsideMode.REQUIRED)
    with pytest.raises(PeerLost):
        await versions(connection)
    assert two.ended["plaintext"] == 1
    with pytest.raises(ConnectionError, match="no certificate for internal TLS"):
        await two.call()


async def test_peer_without_tls_is_called_plaintext_temporarily(two: Two) -> None:
    (two.places[1] / "..data").unlink()
    two.peers[1]._files.look()  # type: ignore[union-attr]
    connection = await two.call()
    assert await versions(connection)
    assert two.peers[2].figures.plaintext == 1
    assert two.peers[2].refusals.counts["handshake-failed"] == 1
    again = await two.call()
    assert await versions(again)
    assert two.peers[2].refusals.counts["handshake-failed"] == 1
    for one in (connection, again):
        one.close()


async def test_certificate_refused_after_handshake_falls_back(
    two: Two,
) -> None:
    """Broker 2 shows one that is not committed: it cannot know before it is cut off."""
    write(two.places[2], pair_of(2))
    two.peers[2] = InsidePeers(CLUSTER, str(two.places[2]))
    two.commit(InsideMode.PERMISSIVE)
    connection = await two.call()
    with pytest.raises(PeerLost):
        await versions(connection)
    assert two.ended[RETIRED] == 1
    connection = await two.call()
    assert await versions(connection)
    follow(two.server)
    assert two.server.plaintext == 1
    connection.close()


async def test_plaintext_stranger_is_no_peer_when_required(
    two: Two,
) -> None:
    """Whoever reaches the port would hold up the step to Required for good."""
    reader, writer = await asyncio.open_connection(HOST, two.server.port)
    body = encode_request(ApiKey.API_VERSIONS, 0, {})
    writer.write(request_frame(ApiKey.API_VERSIONS, 0, 1, "x", body))
    async with asyncio.timeout(WAIT_S):
        await reader.readexactly(4)
        assert two.server.connections == 1
        assert two.server.plaintext == 0
        two.commit(InsideMode.REQUIRED)
        with pytest.raises((OSError, asyncio.IncompleteReadError)):
            await reader.readexactly(1_000)
    assert two.ended["plaintext"] == 1
    writer.transport.abort()


class Mute(asyncio.Protocol):
    """Answers plaintext, and nothing that begins a handshake."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        if data[0] != 0x16:
            self.transport.write(b"\0\0\0\x06\0\0\0\1ok")  # type: ignore[attr-defined]


async def test_peer_silent_in_handshake_falls_back_when_allowed(
    two: Two,
) -> None:
    server = await asyncio.get_running_loop().create_server(Mute, HOST, 0)
    async with server:
        address = PeerAddress(HOST, server.sockets[0].getsockname()[1])
        peers = two.peers[2]
        async with asyncio.timeout(WAIT_S):
            connection, link = await peers.broker(PeerConnection, address, BrokerId(1))
            assert link.identity is None
            assert await versions(connection)
        assert peers.refusals.counts["handshake-failed"] == 1
        assert not peers.is_outdated(link), "it is not tried again at once"
        connection.close()
        two.commit(InsideMode.REQUIRED)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(2 * HANDSHAKE_S):
                await peers.broker(PeerConnection, address, BrokerId(1))


async def test_required_in_files_forbids_plaintext_from_start(
    two: Two,
) -> None:
    write(two.places[2], two.pairs[2], "Required")
    peers = InsidePeers(CLUSTER, str(two.places[2]))
    assert peers.only_tls
    silent = await asyncio.start_server(lambda reader, writer: writer.close(), HOST, 0)
    async with silent:
        address = PeerAddress(HOST, silent.sockets[0].getsockname()[1])
        with pytest.raises(OSError):  # noqa: PT011 - whichever of OpenSSL's and the kernel's
            async with asyncio.timeout(WAIT_S):
                await peers.broker(PeerConnection, address, BrokerId(1))


async def test_renewed_certificate_replaces_the_connection(
    two: Two,
) -> None:
    two.commit(InsideMode.REQUIRED)
    first = await two.call()
    assert await versions(first)
    old, two.pairs[2] = two.pairs[2], pair_of(2)
    two.commit(InsideMode.REQUIRED, b2=describe(old.certificate).sha256)
    write(two.places[2], two.pairs[2], "Required")
    assert not two.peers[2].is_outdated(first.link)
    assert two.peers[2]._files.look()  # type: ignore[union-attr]
    assert two.peers[2].is_outdated(first.link)
    second = await two.call()
    assert await versions(second)
    assert await versions(first)
    two.commit(InsideMode.REQUIRED)
    with pytest.raises(PeerLost):
        await versions(first)
    assert await versions(second)
    assert two.ended[RETIRED] == 1
    second.close()


async def test_retired_certificate_of_peer_replaces_the_connection(
    two: Two,
) -> None:
    two.commit(InsideMode.REQUIRED)
    connection = await two.call()
    assert not two.peers[2].is_outdated(connection.link)
    two.pairs[1] = pair_of(1)
    two.commit(InsideMode.REQUIRED)
    assert two.peers[2].is_outdated(connection.link)
    with pytest.raises(ConnectionError, match=RETIRED):
        await two.call()
    connection.close()


async def test_expired_certificate_is_trusted_while_committed(
    tmp_path: Path,
) -> None:
    """A clock that is wrong, or an operator that is away for a month, stops no cluster."""
    async with two_brokers(tmp_path) as two:
        two.pairs = {number: pair_of(number, now_ms=YEARS_AGO_MS) for number in (1, 2)}
        for number, pair in two.pairs.items():
            write(two.places[number], pair, "Required")
            assert two.peers[number]._files.look()  # type: ignore[union-attr]
        two.commit(InsideMode.REQUIRED)
        connection = await two.call()
        assert await versions(connection)
        connection.close()


@pytest.mark.parametrize("what", ["other authority", "server only", "no certificate", "other name"])
async def test_stranger_with_tls_is_refused_and_counted(two: Two, what: str) -> None:
    two.commit(InsideMode.REQUIRED)
    pair = pair_of(2)
    if what == "other authority":
        pair = pair_of(2, new_authority("other", NOW_MS))
    elif what == "server only":
        pair = issue(AUTHORITY, ("localhost",), NOW_MS)
    elif what == "other name":
        pair = issue_inside(AUTHORITY, broker_identity(OTHER, 2), NOW_MS)
    shown = identity_of(pair.certificate, pair.key, AUTHORITY.certificate).client
    if what == "no certificate":
        shown = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        shown.check_hostname = False
        shown.load_verify_locations(cadata=AUTHORITY.certificate.decode())
    async with asyncio.timeout(WAIT_S):
        reader, writer = await asyncio.open_connection(
            HOST, two.server.port, ssl=shown, server_hostname="x"
        )
        writer.write(bytes(64))
        with pytest.raises((OSError, asyncio.IncompleteReadError)):
            await reader.readexactly(1)
        writer.transport.abort()
    await until(lambda: two.ended.total() == 1)
    assert two.server.connections == 0


async def test_non_handshake_bytes_are_counted_closes(two: Two) -> None:
    two.commit(InsideMode.REQUIRED)
    draw = random.Random(7)
    for number in range(60):
        first = b"\x16" if number % 2 else b"\x00"
        _, writer = await asyncio.open_connection(HOST, two.server.port)
        writer.write(first + draw.randbytes(draw.randrange(1, 600)))
        if number % 3 == 0:
            writer.write_eof()
        writer.transport.abort()
    await until(lambda: two.server.handshakes is not None and two.server.handshakes.half_open == 0)
    assert set(two.ended) <= {FAILED, NOT_TLS, "malformed"}
    connection = await two.call()
    assert await versions(connection)
    connection.close()
