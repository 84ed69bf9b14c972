"""Mutual TLS on the controllers' port: which certificate it shows, and whom it lets in."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from uuid import UUID

import pytest
from tests.plimsoll_broker.test_inside import AUTHORITY, CLUSTER, NOW_MS, OTHER, WAIT_S, pair_of
from tests.plimsoll_broker.tls_listening import HOST

from plimsoll_core.security.inside import (
    Inside,
    InsideMode,
    broker_identity,
    controller_identity,
    controller_name,
)
from plimsoll_net.inside_identity import identity_of
from plimsoll_operator.controller.inside_server import InsideServer
from plimsoll_operator.pki.authority import KeyPair, issue_inside, new_authority


class Echo(asyncio.Protocol):
    """What the controllers' port serves."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        peer = self.transport.get_extra_info("inside_peer")
        text = f"{peer.cluster_id.int} {peer.broker_id}" if peer else "nobody"
        self.transport.write(text.encode())  # type: ignore[attr-defined]


@asynccontextmanager
async def controllers() -> AsyncIterator[tuple[InsideServer, int]]:
    """Two clusters, each with an authority of its own, led by one process."""
    inside = InsideServer()
    for cluster, authority in ((CLUSTER, AUTHORITY), (OTHER, OTHERS)):
        own = issue_inside(authority, controller_identity(cluster), NOW_MS)
        inside.show(cluster, identity_of(own.certificate, own.key, authority.certificate))
        inside.committed[cluster] = Inside
    loop = asyncio.get_running_loop()
    server = await loop.create_server(inside.asking_first(Echo), HOST, 0)
    try:
        yield inside, server.sockets[0].getsockname()[1]
    finally:
        server.close()
        inside.close()


OTHERS = new_authority("others", NOW_MS)


async def echoed(port: int, name: str | None, pair: KeyPair, authority: KeyPair) -> bytes:
    shown = identity_of(pair.certificate, pair.key, authority.certificate).client
    async with asyncio.timeout(WAIT_S):
        reader, writer = await asyncio.open_connection(
            HOST, port, ssl=shown, server_hostname=name or "x"
        )
        try:
            writer.write(b"who")
            found = await reader.read(100)
            if not found:
                raise ConnectionError("closed")
            return found
        finally:
            writer.transport.abort()


async def test_controllers_port_shows_each_cluster_its_own_certificate() -> None:
    async with controllers() as (_, port):
        mine = pair_of(2)
        assert await echoed(port, controller_name(CLUSTER), mine, AUTHORITY) == b"7 2"
        theirs = issue_inside(OTHERS, broker_identity(OTHER, 5), NOW_MS)
        assert await echoed(port, controller_name(OTHER), theirs, OTHERS) == b"8 5"


@pytest.mark.parametrize("asked", [controller_name(OTHER), controller_name(UUID(int=9)), None])
async def test_broker_of_other_cluster_is_no_peer(
    asked: str | None,
) -> None:
    """The context that SNI chooses verifies with its own authority, not with any."""
    async with controllers() as (inside, port):
        for believes in (AUTHORITY, OTHERS):
            with pytest.raises(OSError):  # noqa: PT011 - OpenSSL's or the kernel's
                await echoed(port, asked, pair_of(2), believes)
        assert inside.refusals.counts.total() == 2


async def test_certificate_naming_other_cluster_is_refused() -> None:
    async with controllers() as (inside, port):
        told: list[str] = []
        inside.tell[CLUSTER] = told.append
        pair = issue_inside(AUTHORITY, controller_identity(CLUSTER), NOW_MS)
        with pytest.raises(OSError):  # noqa: PT011
            await echoed(port, controller_name(CLUSTER), pair, AUTHORITY)
        assert told == ["other-peer"]
        assert inside.refusals.counts["other-peer"] == 1


async def test_plaintext_peer_is_refused_once_required() -> None:
    inside = InsideServer()
    mode = InsideMode.PERMISSIVE
    inside.committed[CLUSTER] = lambda: Inside(mode=mode)
    assert inside.refuses_now(CLUSTER, None) == ""
    mode = InsideMode.REQUIRED
    async with controllers() as (_, _):
        assert inside.refuses_now(CLUSTER, None) == "plaintext"
        assert inside.refuses_now(OTHER, None) == "", "what is not led here is told so"
