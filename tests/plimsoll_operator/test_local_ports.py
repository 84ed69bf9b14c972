"""Held ports: nobody else's, and open to the brokers."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterator
from unittest.mock import patch

import pytest
import uvloop

from plimsoll_operator.local import ports
from plimsoll_operator.local.ports import LOOPBACK, HeldPorts, Ports, taken


@pytest.fixture
def held() -> Iterator[HeldPorts]:
    with HeldPorts() as own:
        yield own


def picks_only(port: int) -> object:
    return patch.multiple(ports, PICKED=range(port, port + 1), TRIES=1)


def test_port_that_somebody_listens_on_is_not_picked(held: HeldPorts) -> None:
    with socket.create_server((LOOPBACK, 0)) as other:
        only = picks_only(other.getsockname()[1])
        with (
            only,
            pytest.raises(OSError, match="no free port was found on this machine in 1 tries"),
        ):
            held.pick()


def test_port_of_stopped_broker_is_not_reused(
    held: HeldPorts,
) -> None:
    """Two clusters that start at once, or one that starts while another one's broker is down."""
    port = held.pick()
    with HeldPorts() as others, picks_only(port), pytest.raises(OSError, match="no free port"):
        others.pick()


@pytest.mark.parametrize("runner", [asyncio.run, uvloop.run])
def test_broker_listens_on_held_port_after_restart(held: HeldPorts, runner: object) -> None:
    port = held.pick()

    async def served() -> None:
        """A connection, which the server closes: its port is left in TIME_WAIT."""

        async def close(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.close()

        server = await asyncio.start_server(close, LOOPBACK, port)
        reader, writer = await asyncio.open_connection(LOOPBACK, port)
        assert await reader.read() == b""
        writer.close()
        server.close()
        await server.wait_closed()

    own = {0: Ports(kafka=port, metrics=held.pick(), replication=held.pick())}
    for _ in range(2):
        assert not taken(own)
        runner(served())
    held.close()
    held.keep(port)
    runner(served())
    with HeldPorts() as others:
        assert not others.claim(port), "kept, though a connection of it is still closing"


def test_held_port_refuses_connections_while_no_broker_listens(held: HeldPorts) -> None:
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection((LOOPBACK, held.pick()))


def test_foreign_listener_is_named_by_port(held: HeldPorts) -> None:
    with socket.create_server((LOOPBACK, 0)) as other:
        port = other.getsockname()[1]
        held.keep(port)
        own = {0: Ports(kafka=port, metrics=held.pick(), replication=held.pick())}
        assert f"Port {port} of broker 0 is unavailable" in taken(own)
