"""What a broker says over HTTP, and on which port."""

from __future__ import annotations

import asyncio

from tests.plimsoll_broker.metric_values import a_node

from plimsoll_broker.config import Address
from plimsoll_broker.node.metrics_server import MetricsServer

ANY = Address(host="127.0.0.1", port=0)
PATHS = ("/healthz", "/readyz", "/metrics", "/v1", "/")


async def get(port: int, path: str) -> int:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(f"GET {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
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


async def test_metrics_port_answers_for_both_where_there_is_no_health_port() -> None:
    (both,) = await answers(ANY)
    assert both == {"/healthz": 200, "/readyz": 503, "/metrics": 200, "/v1": 404, "/": 404}
