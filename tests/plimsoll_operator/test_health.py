"""What the operator says over HTTP, and on which port."""

from __future__ import annotations

from types import SimpleNamespace

import aiohttp

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
