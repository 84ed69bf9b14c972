"""What a broker says over HTTP, and on which port."""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import pytest
import uvloop
from tests.plimsoll_broker.metric_values import a_node

from plimsoll_broker.config import Address
from plimsoll_broker.node import metrics_server
from plimsoll_broker.node.metrics_server import MetricsServer
from plimsoll_net.http_bounds import (
    CONNECTIONS_MAX,
    OF_ADDRESS_MAX,
    UNSENT_BYTES_MAX,
    Rendering,
    refused_page,
)

ANY = Address(host="127.0.0.1", port=0)
PATHS = ("/healthz", "/readyz", "/metrics", "/v1", "/")


async def get(port: int, path: str, headers: str = "Host: 127.0.0.1") -> int:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(f"GET {path} HTTP/1.1\r\n{headers}\r\n\r\n".encode())
    status = int((await reader.read()).split(b" ", 2)[1])
    writer.close()
    return status


async def answers(*addresses: Address) -> list[dict[str, int]]:
    server = MetricsServer(a_node(ready=False))
    await server.start(*addresses)
    found = [{path: await get(port, path) for path in PATHS} for port in server.ports]
    await server.close()
    return found


async def test_health_port_answers_the_kubelet_and_nothing_else() -> None:
    metrics, health = await answers(ANY, ANY)
    assert health == {"/healthz": 200, "/readyz": 503, "/metrics": 404, "/v1": 404, "/": 404}
    assert metrics == {"/healthz": 404, "/readyz": 404, "/metrics": 200, "/v1": 404, "/": 404}


async def test_metrics_port_serves_health_without_health_port() -> None:
    (both,) = await answers(ANY)
    assert both == {"/healthz": 200, "/readyz": 503, "/metrics": 200, "/v1": 404, "/": 404}


async def test_web_page_reads_nothing_through_a_loopback_port() -> None:
    """Names of topics and groups are on it; a forwarded port is one of the user's machine."""
    server = MetricsServer(a_node(ready=True))
    await server.start(ANY)
    (port,) = server.ports
    for page in (f"Host: evil.example:{port}", "Host: localhost\r\nOrigin: https://evil.example"):
        assert [await get(port, path, page) for path in PATHS] == [403] * len(PATHS)
    for host in ("localhost", f"LOCALHOST:{port}", f"[::1]:{port}", f"10.1.2.3:{port}"):
        assert await get(port, "/metrics", f"Host: {host}") == 200
    await server.close()


@pytest.mark.parametrize(
    ("local", "host", "page", "answered"),
    [
        (("127.0.0.1", 1), "evil.example", False, False),
        (("::1", 1, 0, 0), "evil.example:1", False, False),
        (("::ffff:127.0.0.1", 1, 0, 0), "evil.example:1", False, False),
        (("127.0.0.1", 1), "[::1]:1", False, True),
        (("10.0.0.1", 1), "api.example:6443", False, True),
        (("10.0.0.1", 1), "10.0.0.1:1", True, False),
        (None, "evil.example", False, True),
    ],
)
def test_who_comes_to_a_loopback_address_names_it(
    local: object, host: str, page: bool, answered: bool
) -> None:
    """The API server's proxy comes to a pod's own address, and keeps its caller's Host."""
    assert (refused_page(local, host, from_page=page) == "") is answered


@asynccontextmanager
async def health_port() -> AsyncIterator[int]:
    server = MetricsServer(a_node(ready=True))
    await server.start(ANY, ANY)
    try:
        yield server.ports[1]
    finally:
        await server.close()


Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


@contextmanager
def silent(streams: list[Streams]) -> Iterator[None]:
    """They are closed at the end."""
    try:
        yield
    finally:
        for _, writer in streams:
            writer.close()


async def come(port: int, count: int, address: str) -> list[Streams]:
    """Peers that say nothing, in this order."""
    return [
        await asyncio.open_connection("127.0.0.1", port, local_addr=(address, 0))
        for _ in range(count)
    ]


async def ended(stream: Streams) -> bool:
    """The server has closed it."""
    try:
        return await stream[0].read(1) == b""
    except ConnectionResetError:
        return True


async def until(reached: Callable[[], bool]) -> None:
    async with asyncio.timeout(30):
        while not reached():  # noqa: ASYNC110 - what is waited for sets no event
            await asyncio.sleep(0.01)


async def test_silent_peers_of_one_address_are_evicted() -> None:
    async with health_port() as port:
        first = await come(port, OF_ADDRESS_MAX, "127.0.0.2")
        with silent(first):
            others = await come(port, 2, "127.0.0.2")
            with silent(others):
                assert [await ended(one) for one in first[:2]] == [True, True]
                assert await get(port, "/healthz") == 200
                assert not first[2][0].at_eof()


async def test_kubelet_is_answered_while_connections_are_full() -> None:
    async with health_port() as port:
        addresses = [f"127.0.0.{n}" for n in range(2, 2 + CONNECTIONS_MAX // OF_ADDRESS_MAX + 1)]
        held = [one for each in addresses for one in await come(port, OF_ADDRESS_MAX, each)]
        with silent(held):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            # They come on: none of them takes the kubelet's place.
            with silent(await come(port, OF_ADDRESS_MAX, addresses[0])):
                writer.write(b"GET /healthz HTTP/1.1\r\n\r\n")
                assert b"200 OK" in await reader.read()
            writer.close()


async def test_reader_that_takes_nothing_is_cut_off(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(metrics_server, "REQUEST_MS_MAX", 50)
    long = bytes(64 * 1024 * 1024)

    async def rendered(self: Any) -> bytes:
        return long

    monkeypatch.setattr(MetricsServer, "_rendered", rendered)
    server = MetricsServer(a_node())
    await server.start(ANY, ANY)
    reader, writer = await asyncio.open_connection("127.0.0.1", server.ports[0], limit=1)
    writer.write(b"GET /metrics HTTP/1.1\r\n\r\n")
    taken = 0
    try:
        # What the kernel holds arrives; then the end, and not the rest.
        assert await reader.read(1)
        await until(lambda: len(server.connections[0]) == 0)
        while found := await reader.read(2**20):
            taken += len(found)
    except ConnectionResetError:
        pass
    assert taken < len(long)
    writer.close()
    await server.close()


async def test_pages_that_peers_do_not_take_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """The address that holds most goes first, and its oldest reply."""
    page = bytes(UNSENT_BYTES_MAX // 3)

    async def rendered(self: Any) -> bytes:
        return page

    monkeypatch.setattr(MetricsServer, "_rendered", rendered)
    server = MetricsServer(a_node())
    await server.start(ANY, ANY)
    peers = list[Streams]()
    with silent(peers):
        for last in (3, 3, 3, 2, 4):
            peers += await come(server.ports[0], 1, f"127.0.0.{last}")
            reader, writer = peers[-1]
            writer.write(b"GET /metrics HTTP/1.1\r\n\r\n")
            assert await reader.readexactly(8) == b"HTTP/1.1"
        assert await taken(peers[0]) < len(page)
        assert await taken(peers[3]) > len(page)
        assert await taken(peers[4]) > len(page)
    await server.close()


async def taken(stream: Streams) -> int:
    """Bytes that arrive up to the end of the connection."""
    count = 0
    try:
        while found := await stream[0].read(2**20):
            count += len(found)
    except ConnectionResetError:
        pass
    return count


async def _gone_meanwhile(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What the event loop was told of."""
    begun, go_on, told = asyncio.Event(), asyncio.Event(), list[Any]()

    async def rendered(self: Any) -> bytes:
        begun.set()
        await go_on.wait()
        return b"page"

    monkeypatch.setattr(MetricsServer, "_rendered", rendered)
    asyncio.get_running_loop().set_exception_handler(lambda _, context: told.append(context))
    server = MetricsServer(a_node())
    await server.start(ANY, ANY)
    _, writer = await asyncio.open_connection("127.0.0.1", server.ports[0])
    writer.write(b"GET /metrics HTTP/1.1\r\n\r\n")
    await begun.wait()
    others = asyncio.all_tasks() - {asyncio.current_task()}
    sock = writer.get_extra_info("socket")
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()
    await until(lambda: len(server.connections[0]) == 0)
    go_on.set()
    await asyncio.gather(*others, return_exceptions=True)
    await server.close()
    return told + [one.exception() for one in others if one.exception()]


def test_peer_gone_before_answer_harms_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As brokers run, on uvloop: an exception that nobody takes ends the process."""
    assert uvloop.run(_gone_meanwhile(monkeypatch)) == []


async def test_page_is_made_once_for_all_waiters() -> None:
    made: list[int] = []
    begun, go_on = asyncio.Event(), asyncio.Event()

    async def render() -> bytes:
        made.append(len(made))
        number = len(made)
        begun.set()
        await go_on.wait()
        return b"page %d" % number

    rendering = Rendering(render)
    first = asyncio.ensure_future(rendering.page())
    await begun.wait()
    later = [asyncio.ensure_future(rendering.page()) for _ in range(100)]
    await asyncio.sleep(0)
    go_on.set()
    assert await first == b"page 1"
    assert set(await asyncio.gather(*later)) == {b"page 2"}
    assert len(made) == 2


async def test_failed_page_is_made_again() -> None:
    outcomes: list[Any] = [OSError("no"), b"page"]

    async def render() -> bytes:
        found = outcomes.pop(0)
        if isinstance(found, Exception):
            raise found
        return bytes(found)

    rendering = Rendering(render)
    with pytest.raises(OSError, match="no"):
        await rendering.page()
    assert await rendering.page() == b"page"
