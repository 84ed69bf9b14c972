"""What a broker tells about itself over HTTP: /metrics, /healthz, /readyz.

Prometheus, the kubelet and `plimsoll local` ask.  /healthz: the process turns; /readyz: it may be
counted on, so that a disruption budget is right even with no controller.  Metrics are read from
what the data path counts anyway: nothing is done for them per record.
"""

from __future__ import annotations

import asyncio
from typing import Protocol

from prometheus_client import CollectorRegistry, Counter, Gauge, generate_latest

from plimsoll_broker.config import Address

REQUEST_BYTES_MAX = 8_192
REQUEST_MS_MAX = 5_000
CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


class Node(Protocol):
    """Who is asked."""

    @property
    def ready(self) -> bool: ...


class BrokerMetrics:
    """One registry per broker."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.bytes_in = self._counter("plimsoll_broker_bytes_in", "Bytes appended by producers")
        self.bytes_out = self._counter("plimsoll_broker_bytes_out", "Bytes sent to consumers")
        self.replication_bytes_in = self._counter(
            "plimsoll_broker_replication_bytes_in", "Bytes appended from leaders"
        )
        self.isr_shrinks = Counter(
            "plimsoll_broker_isr_shrinks",
            "ISR shrinks proposed by this broker, by cause",
            ["cause"],
            registry=self.registry,
        )
        self.isr_expands = Counter(
            "plimsoll_broker_isr_expands",
            "ISR expansions proposed by this broker, by cause",
            ["cause"],
            registry=self.registry,
        )
        self.leaders = self._gauge("plimsoll_broker_leaders", "Partitions led by this broker")
        self.partitions = self._gauge("plimsoll_broker_partitions", "Replicas on this broker")
        self.under_replicated = self._gauge(
            "plimsoll_broker_under_replicated_partitions",
            "Partitions led by this broker whose ISR lacks a replica",
        )
        self.under_min_isr = self._gauge(
            "plimsoll_broker_under_min_isr_partitions",
            "Partitions led by this broker whose ISR is below min ISR",
        )
        self.follower_lag = Gauge(
            "plimsoll_broker_follower_lag_records",
            "By how many records the furthest follower is behind this leader's end",
            ["follower"],
            registry=self.registry,
        )
        self.connections = self._gauge("plimsoll_broker_connections", "Open client connections")

    def _counter(self, name: str, text: str) -> Counter:
        return Counter(name, text, registry=self.registry)

    def _gauge(self, name: str, text: str) -> Gauge:
        return Gauge(name, text, registry=self.registry)


class MetricsServer:
    """A listener for a few small GETs; one answer a connection."""

    def __init__(self, metrics: BrokerMetrics, node: Node) -> None:
        self._metrics = metrics
        self._node = node
        self._server: asyncio.Server | None = None

    async def start(self, address: Address | None) -> None:
        if address is not None:
            self._server = await asyncio.start_server(
                self._serve, address.host, address.port, limit=REQUEST_BYTES_MAX
            )

    async def close(self) -> None:
        if self._server is not None:
            self._server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(REQUEST_MS_MAX / 1000):
                head = await reader.readuntil(b"\r\n\r\n")
                writer.write(self._answer(head))
                await writer.drain()
        except (OSError, TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            return
        finally:
            writer.close()

    def _answer(self, head: bytes) -> bytes:
        words = head.split(b"\r\n", 1)[0].split(b" ")
        if len(words) != 3 or words[0] != b"GET":
            return _response("400 Bad Request", b"only GET\n")
        match words[1]:
            case b"/metrics":
                return _response("200 OK", generate_latest(self._metrics.registry))
            case b"/healthz":
                return _response("200 OK", b"ok\n")
            case b"/readyz" if self._node.ready:
                return _response("200 OK", b"ready\n")
            case b"/readyz":
                return _response("503 Service Unavailable", b"not ready\n")
            case _:
                return _response("404 Not Found", b"not found\n")


def _response(status: str, body: bytes) -> bytes:
    head = (
        f"HTTP/1.1 {status}\r\nContent-Type: {CONTENT_TYPE}\r\n"
        f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    )
    return head.encode() + body
