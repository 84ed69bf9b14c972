"""Connections of an address: how many there may be, how fast they may come, on listeners of both
kinds."""

from __future__ import annotations

import asyncio
import time
from types import SimpleNamespace
from typing import Any

import pytest
from tests.plimsoll_broker.listening import Client as RawClient
from tests.plimsoll_broker.listening import Handlers
from tests.plimsoll_broker.security.secured import Secured
from tests.plimsoll_broker.test_client_quotas import LENT_S, commit, limiting
from tests.plimsoll_broker.tls_listening import tls_serving, until

from plimsoll_broker.server import connection_limits
from plimsoll_broker.server.client_quotas import Quotas
from plimsoll_broker.server.dispatch import Dispatch
from plimsoll_broker.server.listener import BrokerListener
from plimsoll_core.quotas.connections import TOO_FAST, TOO_MANY, AddressConnections
from plimsoll_core.quotas.state import (
    DEFAULT,
    QuotaEntity,
)
from plimsoll_core.security.state import Mode
from plimsoll_wire.api_versions import ApiKey


class Dialled:
    """A server and connections to it; all are closed at the end."""

    def __init__(self, quotas: Quotas) -> None:
        self.server = BrokerListener(Dispatch(Handlers().table()), quotas=quotas)
        self._clients: list[RawClient] = []

    async def __aenter__(self) -> Dialled:
        await self.server.start("127.0.0.1", 0)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.server.stop()
        for client in self._clients:
            client.writer.transport.abort()

    async def connect(self) -> RawClient:
        client = RawClient(*await asyncio.open_connection("127.0.0.1", self.server.port))
        self._clients.append(client)
        return client

    async def is_served(self) -> bool:
        """Whether another connection is answered; else it is closed without an answer."""
        client = await self.connect()
        client.send(ApiKey.METADATA, 1, b"hello")
        try:
            return await client.reply() == (1, b"at once hello")
        except (asyncio.IncompleteReadError, ConnectionError):
            return False


async def test_address_gets_another_connection_after_closing_one() -> None:
    quotas = Quotas(AddressConnections(2))
    async with Dialled(quotas) as dialled:
        server = dialled.server
        first = await dialled.connect()
        assert await dialled.is_served()
        assert not await dialled.is_served()
        assert server.stats.closed_for[TOO_MANY] == 1
        first.writer.close()
        await until(lambda: server.connections == 1)
        assert await dialled.is_served()
    await until(lambda: quotas.addresses.addresses == 0)


async def test_connections_over_the_rate_are_closed_later(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # They all come at once, however long a busy machine takes for them.
    now = SimpleNamespace(monotonic_ns=lambda: 10**12)
    monkeypatch.setattr(connection_limits, "time", now)
    quotas = Quotas()
    image = Secured(Mode.OFF).watch.image
    commit(quotas, image, limiting(QuotaEntity(ip=DEFAULT), connection_creation_rate=1.0))
    async with Dialled(quotas) as dialled:
        for _ in range(LENT_S):
            assert await dialled.is_served()
        began = time.monotonic()
        assert not await dialled.is_served()
        assert time.monotonic() - began > 0.5
        stats = dialled.server.stats
        assert stats.closed_for[TOO_FAST] == 1
        await dialled.connect()
        await until(lambda: stats.closed_for[TOO_FAST] == 2)
        # It waits to be closed, and is when the server stops.


async def test_connections_with_tls_are_refused_before_their_handshake(tmp_path: Any) -> None:
    async with tls_serving(tmp_path) as harness:
        harness.quotas.addresses._per_ip_max = 1
        first = await harness.connect()
        with pytest.raises(OSError):  # noqa: PT011 - closed, in whatever way
            await harness.connect()
        assert harness.server.stats.closed_for[TOO_MANY] == 1
        first.writer.close()
        await until(lambda: harness.quotas.addresses.addresses == 0)
        await harness.connect()


async def test_connection_whose_handshake_fails_is_counted_no_more(tmp_path: Any) -> None:
    async with tls_serving(tmp_path) as harness:
        _, writer = await asyncio.open_connection("127.0.0.1", harness.server.port)
        await until(lambda: harness.quotas.addresses.addresses == 1)
        writer.write(b"no handshake")
        await until(lambda: harness.quotas.addresses.addresses == 0)
        writer.close()
