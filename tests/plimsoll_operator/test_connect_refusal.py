"""A refused connect proves a death only where the broker's own host refused it."""

import asyncio
import socket
import sys

import pytest

from plimsoll_operator.controller import broker_sessions
from plimsoll_operator.controller.broker_sessions import keep_errors, refuses, told_by_icmp

HOST = "127.0.0.1"
MS_MAX = 5_000


def closed_port(kind: socket.SocketKind = socket.SOCK_STREAM) -> int:
    with socket.socket(socket.AF_INET, kind) as sock:
        sock.bind((HOST, 0))
        return int(sock.getsockname()[1])


async def test_port_that_nobody_has_open_refuses() -> None:
    assert await refuses(HOST, closed_port(), MS_MAX)


async def test_port_that_somebody_has_open_does_not_refuse() -> None:
    server = await asyncio.start_server(lambda _, writer: writer.close(), HOST, 0)
    async with server:
        assert not await refuses(HOST, server.sockets[0].getsockname()[1], MS_MAX)


async def test_host_without_an_address_refuses_nothing() -> None:
    assert not await refuses("nobody.invalid", 9091, MS_MAX)


async def test_icmp_refusal_of_firewall_is_no_refusal(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(broker_sessions, "told_by_icmp", lambda _: True)
    assert not await refuses(HOST, closed_port(), MS_MAX)


async def test_host_with_two_addresses_must_refuse_on_both(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """By one of them the network may lead elsewhere."""
    server = await asyncio.start_server(lambda _, writer: writer.close(), "127.0.0.2", 0)
    port = server.sockets[0].getsockname()[1]

    async def both(*_: object, **__: object) -> list[tuple[int, int, int, str, tuple[str, int]]]:
        return [(socket.AF_INET, 1, 6, "", (one, port)) for one in (HOST, "127.0.0.2")]

    monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", both)
    async with server:
        assert not await refuses("two.example", port, MS_MAX)
    assert await refuses("two.example", port, MS_MAX)


@pytest.mark.skipif(sys.platform != "linux", reason="no other system has the error queue")
def test_icmp_port_unreachable_is_told_from_a_reset() -> None:
    """UDP: for it the kernel of loopback itself sends the ICMP that a firewall sends for TCP."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        keep_errors(sock)
        sock.settimeout(10)
        sock.connect((HOST, closed_port(socket.SOCK_DGRAM)))
        sock.send(b"anybody")
        with pytest.raises(ConnectionRefusedError):
            sock.recv(1)
        assert told_by_icmp(sock)
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as sock:
        keep_errors(sock)
        with pytest.raises(ConnectionRefusedError):
            sock.connect((HOST, closed_port()))
        assert not told_by_icmp(sock)
