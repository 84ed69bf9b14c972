"""What the operator says over HTTP, and on which port."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace

import aiohttp

from plimsoll_net.http_bounds import OF_ADDRESS_MAX
from plimsoll_operator.process.http_server import Health
from plimsoll_operator.status.operator_metrics import Metrics

PATHS = ("/healthz", "/readyz", "/metrics", "/v1/clusters")


async def test_operators_health_port_answers_the_kubelet_and_nothing_else() -> None:
    ready: list[bool] = []
    parts = SimpleNamespace(metrics=Metrics(), leaders={})
    health = Health(parts, lambda: bool(ready))  # type: ignore[arg-type]
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


async def test_silent_peers_of_an_operators_ports_make_room_for_who_asks() -> None:
    parts = SimpleNamespace(metrics=Metrics(), leaders={})
    health = Health(parts, lambda: True)  # type: ignore[arg-type]
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
