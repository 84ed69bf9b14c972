"""What the operator says over HTTP, and on which port."""

from __future__ import annotations

import asyncio
import logging
from types import SimpleNamespace

import aiohttp
import pytest

from plimsoll_net.http_bounds import OF_ADDRESS_MAX, UNSENT_BYTES_MAX
from plimsoll_operator.process.http_server import HttpServer
from plimsoll_operator.status.operator_metrics import Metrics

SPOILT = (
    b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes(500),
    b"GET / HTTP/1.1\r\n" + b"A: b\r\n" * 20_000 + b"\r\n",
    b"GET / HTTP/1.1\r\nContent-Length: -1\r\n\r\n",
    b"\0" * 100,
)
PATHS = ("/healthz", "/readyz", "/metrics", "/v1/clusters")


async def test_health_port_answers_the_kubelet_only() -> None:
    ready: list[bool] = []
    parts = SimpleNamespace(metrics=Metrics(), leaders={})
    health = HttpServer(parts, lambda: bool(ready))  # type: ignore[arg-type]
    await health.start(0, 0)
    try:
        # One for each family; with port 0 they differ.
        views, probes = (
            next(port for host, port, *_ in each if ":" not in host) for each in health.addresses
        )
        async with aiohttp.ClientSession() as client:

            async def get(port: int, path: str) -> int:
                async with client.get(f"http://127.0.0.1:{port}{path}") as response:
                    return response.status

            assert [await get(probes, path) for path in PATHS] == [200, 503, 404, 404]
            assert [await get(views, path) for path in PATHS] == [404, 404, 200, 200]
            ready.append(True)
            assert await get(probes, "/readyz") == 200
    finally:
        await health.close()


async def test_web_page_reads_nothing_through_forwarded_port() -> None:
    parts = SimpleNamespace(metrics=Metrics(), leaders={})
    health = HttpServer(parts, lambda: True)  # type: ignore[arg-type]
    await health.start(0, 0)
    try:
        port = next(port for host, port, *_ in health.addresses[0] if ":" not in host)
        async with aiohttp.ClientSession(f"http://127.0.0.1:{port}") as client:
            for page in ({"Host": "evil.example"}, {"Origin": "https://evil.example"}):
                for path in ("/metrics", "/v1/clusters"):
                    async with client.get(path, headers=page) as response:
                        assert response.status == 403
    finally:
        await health.close()


async def test_silent_peers_of_operator_ports_are_evicted() -> None:
    parts = SimpleNamespace(metrics=Metrics(), leaders={})
    health = HttpServer(parts, lambda: True)  # type: ignore[arg-type]
    await health.start(0, 0)
    try:
        for addresses, path in zip(health.addresses, ("metrics", "readyz"), strict=True):
            port = next(port for host, port, *_ in addresses if ":" not in host)
            held = [
                await asyncio.open_connection("127.0.0.1", port) for _ in range(OF_ADDRESS_MAX + 5)
            ]
            for reader, _ in held[:5]:
                assert await reader.read(1) == b""
            async with (
                aiohttp.ClientSession() as client,
                client.get(f"http://127.0.0.1:{port}/{path}") as answer,
            ):
                assert answer.status == 200
            for _, writer in held:
                writer.close()
    finally:
        await health.close()


async def test_malformed_requests_are_not_logged(caplog) -> None:
    """Whoever reaches the port could fill it, 10 kB at a time."""
    parts = SimpleNamespace(metrics=Metrics(), leaders={})
    health = HttpServer(parts, lambda: True)  # type: ignore[arg-type]
    await health.start(0, 0)
    try:
        port = next(port for host, port, *_ in health.addresses[0] if ":" not in host)
        with caplog.at_level(logging.DEBUG):
            for spoilt in SPOILT:
                reader, writer = await asyncio.open_connection("127.0.0.1", port)
                writer.write(spoilt)
                assert b" 400 " in await reader.readline()
                writer.close()
    finally:
        await health.close()
    assert [one for one in caplog.records if one.levelno >= logging.INFO] == []


async def test_pages_that_peers_do_not_take_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """A pod could hold page after page in the operator's memory."""

    async def rendered(self: object) -> bytes:
        return bytes(UNSENT_BYTES_MAX * 3 // 4)

    monkeypatch.setattr(HttpServer, "_rendered", rendered)
    parts = SimpleNamespace(metrics=Metrics(), leaders={})
    health = HttpServer(parts, lambda: True)  # type: ignore[arg-type]
    await health.start(0, 0)
    peers = []
    try:
        port = next(port for host, port, *_ in health.addresses[0] if ":" not in host)
        for _ in range(2):
            reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1)
            peers.append(writer)
            writer.write(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert await reader.readexactly(8) == b"HTTP/1.1"
            if len(peers) == 1:
                first = reader
        with pytest.raises((asyncio.IncompleteReadError, ConnectionResetError)):
            await first.readexactly(UNSENT_BYTES_MAX * 3 // 4)
    finally:
        for writer in peers:
            writer.transport.abort()
        await health.close()
