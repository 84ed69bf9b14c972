"""A broker's HTTP endpoints: /metrics, and for the kubelet /healthz and /readyz.

Prometheus, the kubelet and `plimsoll local` ask.  /healthz: the process turns; /readyz: it may be
counted on, so that a disruption budget is right even with no controller.  Metrics are read from
what the data path counts anyway: nothing is done for them per record.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from typing import Protocol

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from plimsoll_broker.config import Address
from plimsoll_broker.coordinator.roles import Coordinators
from plimsoll_broker.node.group_metrics import group_metrics
from plimsoll_broker.node.security_metrics import security_metrics
from plimsoll_broker.replication.cleaning_stats import CleaningStats
from plimsoll_broker.replication.full_disks import out_for_room
from plimsoll_broker.replication.replica_manager import ReplicaManager
from plimsoll_broker.replication.traffic import Traffic
from plimsoll_broker.security.authority import Authority
from plimsoll_broker.server.listener import Server
from plimsoll_broker.server.overdue_connections import REASONS
from plimsoll_core.replica.maximal_isr import PendingShrink
from plimsoll_net.handshakes import REASONS as TLS_REASONS
from plimsoll_process.loop_holds import LoopHolds
from plimsoll_process.loop_watch import loop_metrics
from plimsoll_wire.api_versions import ApiKey

PREFIX = "plimsoll_broker_"

# Longer than an election takes while there is a controller.
LEADER_SILENT_MS = 15_000
REQUEST_BYTES_MAX = 8_192
REQUEST_MS_MAX = 5_000
CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


class MeasuredNode(Protocol):
    """Who is asked."""

    @property
    def ready(self) -> bool: ...

    @property
    def manager(self) -> ReplicaManager | None:
        """None until the logs are loaded."""

    @property
    def coordinators(self) -> Coordinators | None:
        """None until groups are coordinated."""

    @property
    def authority(self) -> Authority | None:
        """None until the logs are loaded."""

    @property
    def listeners(self) -> Mapping[str, Server]:
        """By name; none until the logs are loaded."""

    @property
    def holds(self) -> LoopHolds | None:
        """How long the event loop was held, where that is watched."""

    @property
    def handler_failures(self) -> Mapping[str, int]:
        """Requests that met a bug, by API; without those that none has met."""

    @property
    def controller_silent_ms(self) -> int: ...

    @property
    def unknown_metadata(self) -> str:
        """Why no more metadata is applied; empty: it goes on."""


class BrokerCollector(Collector):
    """Reads the data path's own counts when it is asked; keeps nothing."""

    def __init__(self, node: MeasuredNode) -> None:
        self._node = node

    def describe(self) -> Iterable[Metric]:
        return ()

    def collect(self) -> Iterator[Metric]:
        yield _gauge("ready", "Whether the broker may be counted on", int(self._node.ready))
        yield from _connections(self._node.listeners)
        yield from _client_memory(self._node.listeners)
        yield _handler_failures(self._node.handler_failures)
        if self._node.holds is not None:
            yield from loop_metrics(PREFIX, self._node.holds)
        text = "For how long no controller that may decide has answered this broker"
        yield _gauge("controller_silence_seconds", text, self._node.controller_silent_ms / 1000)
        text = "1 when a newer release wrote metadata that this broker cannot apply"
        yield _gauge("metadata_unknown", text, int(bool(self._node.unknown_metadata)))
        manager = self._node.manager
        if manager is not None:
            yield from _traffic(manager.traffic)
            yield from _cleaning(manager.traffic.cleaning)
            yield from _partitions(manager)
            yield from _movement(manager)
        if self._node.authority is not None:
            yield from security_metrics(PREFIX, self._node.authority)
        if self._node.coordinators is not None:
            yield from group_metrics(PREFIX, self._node.coordinators)


def _handler_failures(counts: Mapping[str, int]) -> Metric:
    """Every API that is served is told from the start: an increase from nothing is no increase."""
    text = "Requests that met a bug of the broker and cost their clients the connection, by API"
    family = CounterMetricFamily(PREFIX + "handler_failures", text, labels=["api"])
    names = {key.name for key in ApiKey} | set(counts)
    for name in sorted(names):
        family.add_metric([name], counts.get(name, 0))
    return family


def _connections(listeners: Mapping[str, Server]) -> Iterator[Metric]:
    """A counter for every reason to close a connection, from the start."""
    clients = sum(one.connections for name, one in listeners.items() if name != "replication")
    yield _gauge("connections", "Open client connections", clients)
    open_now = GaugeMetricFamily(
        PREFIX + "listener_connections", "Open connections, by listener", labels=["listener"]
    )
    limit = GaugeMetricFamily(
        PREFIX + "listener_connections_limit",
        "Connections that a listener may have open",
        labels=["listener"],
    )
    away = CounterMetricFamily(
        PREFIX + "connections_turned_away",
        "New connections that a full listener had no room for",
        labels=["listener"],
    )
    text = "Connections that the broker closed, by listener and reason"
    closed = CounterMetricFamily(PREFIX + "connections_closed", text, labels=["listener", "reason"])
    for name, server in sorted(listeners.items()):
        open_now.add_metric([name], server.connections)
        limit.add_metric([name], server.limits.connections_max)
        away.add_metric([name], server.stats.turned_away)
        handshakes = TLS_REASONS if server.certificate is not None else ()
        for reason in sorted({*REASONS, *handshakes, *server.stats.closed_for}):
            closed.add_metric([name, reason], server.stats.closed_for[reason])
    yield from (open_now, limit, away, closed)


def _client_memory(listeners: Mapping[str, Server]) -> Iterator[Metric]:
    """Bytes that clients hold together: replies not taken yet, requests not whole or looked at."""
    names = ["budget"]
    used = GaugeMetricFamily(PREFIX + "memory_budget_used_bytes", "In use", labels=names)
    limit = GaugeMetricFamily(PREFIX + "memory_budget_limit_bytes", "To be had", labels=names)
    text = "Requests and fetches that had to wait for memory"
    waits = CounterMetricFamily(PREFIX + "memory_budget_waits", text, labels=names)
    # One budget for the clients of all listeners.
    for memory in dict.fromkeys(server.memory for server in listeners.values()):
        if memory is not None:
            for name, pool in (("replies", memory.replies), ("requests", memory.requests)):
                used.add_metric([name], pool.used)
                limit.add_metric([name], pool.limit)
                waits.add_metric([name], pool.refused)
    yield from (used, limit, waits)


def _traffic(traffic: Traffic) -> Iterator[Metric]:
    yield _counter("bytes_in", "Bytes appended by producers", traffic.bytes_in)
    yield _counter("bytes_out", "Bytes sent to consumers", traffic.bytes_out)
    yield _counter("replication_bytes_in", "Bytes appended from leaders", traffic.replicated_in)
    yield _counter("replication_bytes_out", "Bytes sent to followers", traffic.replicated_out)
    text = "Reads and acks=0/1 refused because another broker may lead (onControllerLoss)"
    yield _counter("unleased_refusals", text, traffic.unleased_refusals)
    for name, text, counts in (
        ("isr_shrinks", "ISR shrinks proposed by this broker, by cause", traffic.isr_shrinks),
        ("isr_expands", "ISR expansions proposed by this broker, by cause", traffic.isr_expands),
    ):
        family = CounterMetricFamily(PREFIX + name, text, labels=["cause"])
        for cause, count in sorted(counts.items()):
            family.add_metric([cause], count)
        yield family


def _cleaning(stats: CleaningStats) -> Iterator[Metric]:
    text = "Bytes of compacted logs' segments that the cleaner looked through"
    yield _counter("cleaner_read_bytes", text, stats.bytes_read)
    text = "Bytes of what is left of them"
    yield _counter("cleaner_written_bytes", text, stats.bytes_written)
    yield _counter("cleaner_rounds", "Logs that were cleaned, each time", stats.rounds)
    text = "Rounds that failed, and left their log as it was"
    yield _counter("cleaner_failures", text, stats.failures)
    text = "How long all rounds took"
    yield _counter("cleaner_seconds", text, stats.spent_ms / 1000)
    text = "Logs that are to be cleaned, as of the cleaner's last look"
    yield _gauge("cleaner_due_logs", text, stats.due_logs)
    text = "Bytes of these logs that were never cleaned"
    yield _gauge("cleaner_due_bytes", text, stats.due_bytes)
    text = "The greatest part of one of these logs that was never cleaned"
    yield _gauge("cleaner_max_dirty_ratio", text, stats.dirtiest)
    text = "Logs that are not cleaned any more, because a segment is damaged"
    yield _gauge("cleaner_uncleanable_logs", text, stats.uncleanable_logs)


def _movement(manager: ReplicaManager) -> Iterator[Metric]:
    """The limits are told whether anything moves or not: one that was forgotten is seen."""
    copies = sum(manager.copy_buckets.limit(h.replica.partition) is not None for h in manager)
    yield _gauge("moving_partitions", "Replicas that are being copied to this broker", copies)
    text = "Bytes of replicas that were being copied to this broker, under a movement limit"
    yield _counter("moved_bytes", text, manager.traffic.moved_in)
    text = "How fast replicas may be copied to this broker, by whose limit it is; 0 is paused"
    limits = GaugeMetricFamily(PREFIX + "movement_limit_bytes_per_second", text, labels=["mover"])
    for name, rate in sorted(manager.copy_buckets.limits.items()):
        limits.add_metric([name], rate)
    yield limits


def _partitions(manager: ReplicaManager) -> Iterator[Metric]:
    """About the partitions that are led here, by what their leader knows."""
    led = [hosted.replica for hosted in manager if hosted.replica.leader is not None]
    sizes: Counter[int] = Counter()
    lags: dict[int, int] = {}
    under_replicated = under_min_isr = 0
    for replica in led:
        leader = replica.leader
        assert leader is not None, "selected above"
        size = len(leader.isr.committed)
        sizes[size] += 1
        under_replicated += size < len(replica.partition.replicas)
        # Who is to leave has fallen behind, whether a controller is there to commit it or not.
        leaving = leader.isr.leaving if isinstance(leader.isr, PendingShrink) else ()
        under_min_isr += size - len(leaving) < leader.min_isr
        for follower, progress in leader.followers.items():
            end = replica.log.log_end_offset
            lag = end - (progress.log_end if progress.log_end is not None else 0)
            lags[follower] = max(lags.get(follower, 0), lag)
    yield _gauge("partitions", "Replicas on this broker", len(manager))
    offline = len(manager.broken) + sum(hosted.replica.failed for hosted in manager)
    yield _gauge("offline_partitions", "Replicas whose log is out of service", offline)
    text = "Replicas whose log is out of service until the disk, which is full, has room again"
    yield _gauge("full_disk_partitions", text, len(out_for_room(manager)))
    text = "Replicas that went back into service when a full disk had room again"
    yield _counter("room_again", text, manager.traffic.room_again)
    text = "Replicas on this broker whose partition has no leader, or one that does not answer it"
    yield _gauge("leaderless_partitions", text, _leaderless(manager))
    yield _gauge("leaders", "Partitions led by this broker", len(led))
    text = "Partitions led by this broker whose ISR lacks a replica"
    yield _gauge("under_replicated_partitions", text, under_replicated)
    text = "Partitions led by this broker of which fewer replicas keep up than min ISR"
    yield _gauge("under_min_isr_partitions", text, under_min_isr)
    text = "Partitions led by this broker, by the size of their ISR"
    isr = GaugeMetricFamily(PREFIX + "isr_size_partitions", text, labels=["size"])
    for size, count in sorted(sizes.items()):
        isr.add_metric([str(size)], count)
    yield isr
    text = "By how many records a follower is behind the ends of this broker's leaders, at most"
    lag_family = GaugeMetricFamily(PREFIX + "follower_lag_records", text, labels=["follower"])
    for follower_id, records in sorted(lags.items()):
        lag_family.add_metric([str(follower_id)], records)
    yield lag_family


def _leaderless(manager: ReplicaManager) -> int:
    """While no controller can commit, leaders stay as committed: also those that are gone."""
    return sum(
        hosted.replica.partition.leader is None
        or manager.fetchers.silent_ms(hosted.key) >= LEADER_SILENT_MS
        for hosted in manager
    )


def _gauge(name: str, text: str, value: float) -> Metric:
    return GaugeMetricFamily(PREFIX + name, text, value=value)


def _counter(name: str, text: str, value: float) -> Metric:
    return CounterMetricFamily(PREFIX + name, text, value=value)


class MetricsServer:
    """Listeners for a few small GETs; one answer a connection.

    Without a health port, as version 0.1 has it, the metrics' port answers for both."""

    def __init__(self, node: MeasuredNode) -> None:
        self._registry = CollectorRegistry()
        self._registry.register(BrokerCollector(node))
        self._node = node
        self._servers: list[asyncio.Server] = []

    async def start(self, metrics: Address | None, health: Address | None = None) -> None:
        both = frozenset({b"/metrics", b"/healthz", b"/readyz"})
        alone = both - {b"/metrics"}
        await self._listen(metrics, both if health is None else both - alone)
        await self._listen(health, alone)

    async def _listen(self, address: Address | None, paths: frozenset[bytes]) -> None:
        if address is not None:
            self._servers.append(
                await asyncio.start_server(
                    partial(self._serve, paths),
                    address.host,
                    address.port,
                    limit=REQUEST_BYTES_MAX,
                )
            )

    @property
    def ports(self) -> list[int]:
        return [server.sockets[0].getsockname()[1] for server in self._servers]

    async def close(self) -> None:
        for server in self._servers:
            server.close()

    async def _serve(
        self,
        paths: frozenset[bytes],
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> None:
        try:
            async with asyncio.timeout(REQUEST_MS_MAX / 1000):
                head = await reader.readuntil(b"\r\n\r\n")
                writer.write(self._answer(head, paths))
                await writer.drain()
        except (OSError, TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            return
        finally:
            writer.close()

    @property
    def _lag(self) -> bytes:
        found = self._node.coordinators
        return b"" if found is None else found.measures.seen.lag_text

    def _answer(self, head: bytes, paths: frozenset[bytes]) -> bytes:
        words = head.split(b"\r\n", 1)[0].split(b" ")
        if len(words) != 3 or words[0] != b"GET":
            return _response("400 Bad Request", b"only GET\n")
        match words[1]:
            case path if path not in paths:
                return _response("404 Not Found", b"not found\n")
            case b"/metrics":
                return _response("200 OK", generate_latest(self._registry) + self._lag)
            case b"/healthz":
                return _response("200 OK", b"ok\n")
            case b"/readyz" if self._node.ready:
                return _response("200 OK", b"ready\n")
            case _:
                why = self._node.unknown_metadata or "not ready"
                return _response("503 Service Unavailable", why.encode() + b"\n")


def _response(status: str, body: bytes) -> bytes:
    head = (
        f"HTTP/1.1 {status}\r\nContent-Type: {CONTENT_TYPE}\r\n"
        f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    )
    return head.encode() + body
