"""BrokerCollector: a broker's metrics for Prometheus, read from counts that the broker's components
keep anyway.

`metrics_server` and tests call it; nothing is done per record. `metric_rows` lists the metrics, and
`partition_measures` measures partitions. Figures that grow with the number of groups come from the
last look of `coordinator.group_measures`, which also writes the groups' lag.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice
from typing import Protocol

from prometheus_client.core import HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from plimsoll_broker.coordinator.coordinators import Coordinators
from plimsoll_broker.inside import InsidePeers
from plimsoll_broker.node.metric_rows import PREFIX, TABLE
from plimsoll_broker.node.partition_measures import PartitionMeasures, measured
from plimsoll_broker.replication.full_disks import out_for_room
from plimsoll_broker.replication.replica_manager import ReplicaManager
from plimsoll_broker.replication.role_changes import StateChanges
from plimsoll_broker.replication.traffic import CleaningStats, Traffic
from plimsoll_broker.security.authority import Authority
from plimsoll_broker.server.client_memory import PoolState
from plimsoll_broker.server.client_quotas import Quotas
from plimsoll_broker.server.connection_limits import REASONS
from plimsoll_broker.server.fair_work import FairWork
from plimsoll_broker.server.listener import BrokerListener
from plimsoll_core.cluster.cluster_configs import own_integer
from plimsoll_core.cluster.isr_shrinks import PLANNED, ShrinkCause
from plimsoll_core.errors import Code
from plimsoll_core.quotas.connections import REASONS as ADDRESS_REASONS
from plimsoll_core.quotas.state import OF_CLIENTS
from plimsoll_core.security.client_certificates import CertificateRefusal
from plimsoll_core.security.inside import REASONS as INSIDE_REASONS
from plimsoll_core.security.tokens import TokenRefusal
from plimsoll_net.dialling import HANDSHAKE_FAILED
from plimsoll_net.handshakes import REASONS as TLS_REASONS
from plimsoll_process.durations import Durations
from plimsoll_process.loop_watch import LoopHolds, loop_metrics
from plimsoll_wire.api_versions import ApiKey

_TOLD_FROM_THE_START = (
    Code.NOT_COORDINATOR,
    Code.COORDINATOR_NOT_AVAILABLE,
    Code.COORDINATOR_LOAD_IN_PROGRESS,
    Code.ILLEGAL_GENERATION,
    Code.UNKNOWN_MEMBER_ID,
    Code.REBALANCE_IN_PROGRESS,
)
"""Error codes that have a series from the start, since Prometheus does not see the first appearance
of a counter as an increase."""


def group_metrics(prefix: str, coordinators: Coordinators) -> Iterator[Metric]:
    def gauge(name: str, value: float) -> Metric:
        return TABLE.gauge(prefix + name, value)

    def counter(name: str, value: float) -> Metric:
        return TABLE.counter(prefix + name, value)

    shards = coordinators.shards()
    stats, seen = coordinators.stats, coordinators.measures.seen
    states = {(state,): float(number) for state, number in seen.states.items()}
    yield TABLE.gauges(prefix + "groups", states)
    yield gauge("group_members", sum(shard.soft.seats for shard in shards))
    yield gauge("committed_offsets", sum(shard.state.offsets for shard in shards))
    rebalances = stats.rebalances_ended + sum(shard.soft.rebalances for shard in shards)
    yield counter("group_rebalances", rebalances)
    yield counter("offset_commits", stats.commits)
    codes = sorted({*(code.name for code in _TOLD_FROM_THE_START), *stats.commit_failures})
    failures = {(code,): float(stats.commit_failures[code]) for code in codes}
    yield TABLE.counters(prefix + "offset_commit_failures", failures)
    yield counter("group_loads", stats.loads)
    yield counter("group_load_seconds", stats.load_ms / 1000)
    yield gauge("group_loading_seconds", coordinators.loading_ms / 1000)
    pool = coordinators.memory.pool
    yield gauge("group_memory_bytes", pool.used)
    yield gauge("group_memory_limit_bytes", pool.capacity)
    yield counter("group_memory_refusals", pool.refused)
    yield counter("group_rate_refusals", coordinators.memory.rate.refused)
    unloaded = sum(len(one.state.unloaded) + one.state.more_unloaded for one in shards)
    yield gauge("groups_unloaded", unloaded)
    yield gauge("group_lag_series_left_out", seen.series_left_out)
    yield gauge("group_lag_partitions_left_out", seen.partitions_left_out)


def inside_metrics(prefix: str, peers: InsidePeers) -> Iterator[Metric]:
    yield TABLE.gauge(prefix + "inside_plaintext_connections", peers.figures.plaintext)
    counts = peers.refusals.counts
    refused = {(reason,): float(counts[reason]) for reason in (*INSIDE_REASONS, HANDSHAKE_FAILED)}
    yield TABLE.counters(prefix + "inside_peers_refused", refused)


def security_metrics(prefix: str, authority: Authority) -> Iterator[Metric]:
    stats = authority.stats
    counted = {
        "logins": stats.logins,
        "logins_failed": stats.failed_logins,
        "sessions_cut_off": stats.cut_off,
        "authorizations_denied": stats.denied,
        "authorizations_would_deny": stats.would_deny,
    }
    for name, value in counted.items():
        yield TABLE.counter(prefix + name, value)
    dropped = {(decision,): float(n) for decision, n in authority.audit.dropped.items()}
    yield TABLE.counters(prefix + "audit_events_dropped", dropped)
    refused = {(why.value,): float(stats.tokens_refused[why]) for why in TokenRefusal}
    yield TABLE.counters(prefix + "tokens_refused", refused)
    counts = stats.certificates_refused
    turned_away = {(why.value,): float(counts[why]) for why in CertificateRefusal}
    yield TABLE.counters(prefix + "client_certificates_refused", turned_away)


def long_work_metrics(prefix: str, work: FairWork) -> Iterator[Metric]:
    """Yield metrics of the threads for clients' long work, with names that begin with `prefix`. The
    processor time is labelled by principal for the largest users; the time of all others is added
    up under an empty label."""
    seconds = {(principal,): used_s for principal, used_s in work.used.seconds().items()}
    seconds[("",)] = seconds.get(("",), 0.0) + work.used.others_s()
    yield TABLE.counters(prefix + "long_work_seconds", seconds)
    yield TABLE.gauge(prefix + "long_work_running", work.threads.used)
    yield TABLE.gauge(prefix + "long_work_waiting", work.waiting.used)
    yield TABLE.counter(prefix + "long_work_wait_seconds", work.waited_s)
    yield TABLE.counter(prefix + "long_work_rest_seconds", work.rested_s)
    yield TABLE.counter(prefix + "long_work_refused", work.waiting.refused)
    yield TABLE.counter(prefix + "long_work_dropped", work.dropped)


def quota_metrics(prefix: str, quotas: Quotas) -> Iterator[Metric]:
    """Yield quota metrics, with names that begin with `prefix`, labelled by quota. They have no
    labels for users or client ids, which may be any number."""
    family = TABLE.histograms(prefix + "throttle_seconds")
    for quota in OF_CLIENTS:
        throttled = quotas.stats.throttled[quota]
        family.add_metric([quota.value], throttled.buckets(), throttled.sum_s)
    yield family
    yield TABLE.gauge(prefix + "quota_accounts", quotas.usage.accounts)
    yield TABLE.gauge(prefix + "connected_addresses", quotas.addresses.addresses)


FOLLOWER_FETCH = "FETCH_FOLLOWER"
TIMED_FROM_THE_START = (ApiKey.PRODUCE, ApiKey.FETCH, ApiKey.METADATA)
_ERRORS_FROM_THE_START = {
    "PRODUCE": (
        Code.NOT_LEADER_OR_FOLLOWER,
        Code.UNKNOWN_TOPIC_OR_PARTITION,
        Code.NOT_ENOUGH_REPLICAS,
        Code.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        Code.REQUEST_TIMED_OUT,
        Code.KAFKA_STORAGE_ERROR,
        Code.MESSAGE_TOO_LARGE,
        Code.OUT_OF_ORDER_SEQUENCE_NUMBER,
    ),
    "FETCH": (
        Code.NOT_LEADER_OR_FOLLOWER,
        Code.OFFSET_OUT_OF_RANGE,
        Code.FENCED_LEADER_EPOCH,
        Code.KAFKA_STORAGE_ERROR,
    ),
}
"""Error codes that have a series from the start, since Prometheus does not see the first appearance
of a counter as an increase."""
SEEN_BY_BROKERS = (
    ShrinkCause.LAG,
    ShrinkCause.FENCED,
    ShrinkCause.RESTART,
    ShrinkCause.UNKNOWN,
)
"""The unplanned causes of ISR shrinks that a broker can know. They have series from the start."""


class MeasuredNode(Protocol):
    """The part of `BrokerNode` that the metrics and health endpoints read."""

    @property
    def ready(self) -> bool: ...

    @property
    def manager(self) -> ReplicaManager | None:
        """The replica manager. None until the broker has registered."""

    @property
    def coordinators(self) -> Coordinators | None:
        """The group coordinators. None until the broker has registered."""

    @property
    def authority(self) -> Authority | None:
        """The authority, which decides what clients may do. None until the broker has
        registered."""

    @property
    def quotas(self) -> Quotas | None:
        """The clients' quotas. None until the broker has registered."""

    @property
    def long_work(self) -> FairWork | None:
        """The pool of threads for clients' long work. None until the broker has registered."""

    @property
    def listeners(self) -> Mapping[str, BrokerListener]:
        """The open listeners by name. Empty until the broker has registered."""

    @property
    def inside(self) -> InsidePeers:
        """The connections to brokers and controllers of this cluster, and their certificates."""

    @property
    def holds(self) -> LoopHolds | None:
        """How long and how often the event loop was held; None if it is not watched."""

    @property
    def handler_failures(self) -> Mapping[str, int]:
        """The number of requests that failed by a bug of the broker, by API. An API without such a
        request is missing."""

    @property
    def controller_silent_ms(self) -> int: ...

    @property
    def unknown_metadata(self) -> str:
        """The error met in metadata that only a newer release can read; empty if there was none."""


class BrokerCollector(Collector):
    """Yields all metrics of a broker to the Prometheus client library at each scrape, from counts
    that the components keep."""

    def __init__(self, node: MeasuredNode) -> None:
        self._node = node
        self.prepared: PartitionMeasures | None = None
        """The totals that the next call of `collect` reports. With None, `collect` measures all
        partitions itself."""

    def describe(self) -> Iterable[Metric]:
        return ()

    def collect(self) -> Iterator[Metric]:
        node = self._node
        yield _gauge("ready", int(node.ready))
        yield from _connections(node.listeners)
        yield from _requests(node.listeners)
        yield from _client_memory(node.listeners)
        yield _handler_failures(node.handler_failures)
        if node.holds is not None:
            yield from loop_metrics(PREFIX, node.holds)
        yield _gauge("controller_silence_seconds", node.controller_silent_ms / 1000)
        yield _gauge("metadata_unknown", int(bool(node.unknown_metadata)))
        manager = node.manager
        if manager is not None:
            measures, self.prepared = self.prepared or measured(manager), None
            yield from _traffic(manager.traffic)
            yield from _cleaning(manager.traffic.cleaning)
            yield from _partitions(manager, measures)
            yield from _isr_shrinks(manager, measures)
            yield from _disk(measures)
            yield from _movement(manager, measures)
            yield from _state_changes(manager.changes)
            yield from _topics(manager, measures)
        yield from inside_metrics(PREFIX, node.inside)
        if node.authority is not None:
            yield from security_metrics(PREFIX, node.authority)
        if node.quotas is not None:
            yield from quota_metrics(PREFIX, node.quotas)
        if node.long_work is not None:
            yield from long_work_metrics(PREFIX, node.long_work)
        if node.coordinators is not None:
            yield from group_metrics(PREFIX, node.coordinators)


def _handler_failures(counts: Mapping[str, int]) -> Metric:
    """Return a metric with the number of requests that failed by a bug, for every served API. APIs
    without one have 0 from the start, since Prometheus does not see the first appearance of a
    counter as an increase."""
    names = {key.name for key in ApiKey} | set(counts)
    values = {(name,): float(counts.get(name, 0)) for name in sorted(names)}
    return TABLE.counters(PREFIX + "handler_failures", values)


def _connections(listeners: Mapping[str, BrokerListener]) -> Iterator[Metric]:
    """Yield connection metrics. The counter of closed connections has every reason from the
    start."""
    clients = sum(one.connections for name, one in listeners.items() if name != "replication")
    yield _gauge("connections", clients)
    servers = sorted(listeners.items())
    open_now = {(name,): float(server.connections) for name, server in servers}
    limits = {(name,): float(server.limits.connections_max) for name, server in servers}
    waiting = {(name,): float(server.stats.waiting) for name, server in servers}
    accepted = {(name,): float(server.stats.accepted) for name, server in servers}
    away = {(name,): float(server.stats.turned_away) for name, server in servers}
    closed = {
        (name, reason): float(server.stats.closed_for[reason])
        for name, server in servers
        for reason in sorted({*REASONS, *_before_sessions(server), *server.stats.closed_for})
    }
    yield TABLE.gauges(PREFIX + "listener_connections", open_now)
    yield TABLE.gauges(PREFIX + "listener_connections_limit", limits)
    yield TABLE.gauges(PREFIX + "requests_waiting", waiting)
    yield TABLE.counters(PREFIX + "connections_accepted", accepted)
    yield TABLE.counters(PREFIX + "connections_turned_away", away)
    yield TABLE.counters(PREFIX + "connections_closed", closed)


def _before_sessions(server: BrokerListener) -> tuple[str, ...]:
    """Return the reasons for which this listener may close a connection before a session exists for
    it."""
    of_handshakes = TLS_REASONS if server.certificate is not None else ()
    return of_handshakes + (ADDRESS_REASONS if server.limits_addresses else ())


def _requests(listeners: Mapping[str, BrokerListener]) -> Iterator[Metric]:
    """Yield the durations of requests, of all listeners together."""
    family = TABLE.histograms(PREFIX + "request_seconds")
    keys = {*TIMED_FROM_THE_START, *(k for s in listeners.values() for k in s.stats.times)}
    for key in sorted(keys):
        every = (s.stats.times.get(key) for s in listeners.values())
        _add(family, ApiKey(key).name, [one for one in every if one is not None])
    _add(family, FOLLOWER_FETCH, [s.stats.follower_fetches for s in listeners.values()])
    yield family


def _add(family: HistogramMetricFamily, label: str, found: list[Durations]) -> None:
    together = Durations()
    for one in found:
        together.add(one)
    family.add_metric([label], together.buckets(), together.sum_s)


def _client_memory(listeners: Mapping[str, BrokerListener]) -> Iterator[Metric]:
    """Yield the bytes of memory that clients hold: replies not sent yet, and requests being
    received or handled."""
    pools = {
        (name,): pool
        for server in listeners.values()
        if (memory := server.memory) is not None
        for name, pool in (("replies", memory.replies), ("requests", memory.requests))
    }
    used = {labels: float(pool.used) for labels, pool in pools.items()}
    limit = {labels: float(pool.limit) for labels, pool in pools.items()}
    waits = {labels: float(pool.refused) for labels, pool in pools.items()}
    yield TABLE.gauges(PREFIX + "memory_budget_used_bytes", used)
    yield TABLE.gauges(PREFIX + "memory_budget_limit_bytes", limit)
    yield TABLE.counters(PREFIX + "memory_budget_waits", waits)
    yield from _principal_pools(listeners)


def _principal_pools(listeners: Mapping[str, BrokerListener]) -> Iterator[Metric]:
    """Yield the use of the memory pools that all principals share. No label names a principal."""
    states = {
        (name,): state
        for server in listeners.values()
        if server.memory is not None
        for name, state in server.memory.holdings.states()
    }

    def values(of: Callable[[PoolState], int]) -> dict[tuple[str, ...], float]:
        return {labels: float(of(state)) for labels, state in states.items()}

    yield TABLE.gauges(PREFIX + "principal_pool_held", values(lambda one: one.used))
    yield TABLE.gauges(PREFIX + "principal_pool_limit", values(lambda one: one.capacity))
    yield TABLE.gauges(PREFIX + "principal_pool_largest", values(lambda one: one.most))
    yield TABLE.gauges(PREFIX + "principal_pool_share", values(lambda one: one.share))
    yield TABLE.gauges(PREFIX + "principal_pool_principals", values(lambda one: one.principals))
    yield TABLE.counters(PREFIX + "principal_pool_refusals", values(lambda one: one.refused))


def _traffic(traffic: Traffic) -> Iterator[Metric]:
    yield _counter("bytes_in", traffic.bytes_in)
    yield _counter("records_in", traffic.records_in)
    yield _counter("bytes_out", traffic.bytes_out)
    yield _counter("replication_bytes_in", traffic.replicated_in)
    yield _counter("replication_bytes_out", traffic.replicated_out)
    yield _counter("unleased_refusals", traffic.unleased_refusals)
    yield _counter("isr_expands", traffic.isr_expands)
    yield _counter("truncations", traffic.truncations)
    yield _counter("truncated_records", traffic.truncated_records)
    yield _counter("room_again", traffic.room_again)
    yield _gauge("load_seconds", traffic.load_s)
    flushes = TABLE.histograms(PREFIX + "flush_seconds")
    flushes.add_metric([], traffic.flushes.buckets(), traffic.flushes.sum_s)
    yield flushes
    errors = {
        (api, code.name): float(traffic.errors.get((api, code), 0))
        for api, codes in _ERRORS_FROM_THE_START.items()
        for code in codes
    }
    for (api, number), count in traffic.errors.items():
        errors[api, Code(number).name] = float(count)
    yield TABLE.counters(PREFIX + "request_errors", errors)


def _isr_shrinks(manager: ReplicaManager, measures: PartitionMeasures) -> Iterator[Metric]:
    """Yield the number of replicas that left ISRs, by cause. Unplanned causes have a series for
    each follower from the start; a planned cause has one after its first shrink."""
    values = {
        (str(follower), cause.value, "false"): 0.0
        for follower in measures.lag_records
        for cause in SEEN_BY_BROKERS
    }
    for left, count in manager.shrinks.counts.items():
        planned = "true" if left.cause in PLANNED else "false"
        values[str(left.broker_id), left.cause.value, planned] = float(count)
    yield TABLE.counters(PREFIX + "isr_shrinks", values)


def _cleaning(stats: CleaningStats) -> Iterator[Metric]:
    yield _counter("cleaner_read_bytes", stats.bytes_read)
    yield _counter("cleaner_written_bytes", stats.bytes_written)
    yield _counter("cleaner_rounds", stats.rounds)
    yield _counter("cleaner_failures", stats.failures)
    yield _counter("cleaner_seconds", stats.spent_ms / 1000)
    yield _gauge("cleaner_due_logs", stats.due_logs)
    yield _gauge("cleaner_due_bytes", stats.due_bytes)
    yield _gauge("cleaner_max_dirty_ratio", stats.dirtiest)
    yield _gauge("cleaner_uncleanable_logs", stats.uncleanable_logs)
    yield _gauge("cleaner_in_brokers_share", stats.in_brokers_share)


def _movement(manager: ReplicaManager, measures: PartitionMeasures) -> Iterator[Metric]:
    """Yield metrics of partition moves: rate limits in bytes per second by name, copied bytes and
    the number of moving partitions. The limits are reported even if nothing is copied, so that a
    limit set by mistake is visible."""
    yield _gauge("moving_partitions", measures.moving)
    yield _counter("moved_bytes", manager.traffic.moved_in)
    limits = {(name,): float(rate) for name, rate in sorted(manager.copy_buckets.limits.items())}
    yield TABLE.gauges(PREFIX + "movement_limit_bytes_per_second", limits)


def _state_changes(changes: StateChanges) -> Iterator[Metric]:
    received = {(kind,): float(count) for kind, count in sorted(changes.received.items())}
    completed = {(kind,): float(count) for kind, count in sorted(changes.completed.items())}
    yield TABLE.counters(PREFIX + "state_changes_received", received)
    yield TABLE.counters(PREFIX + "state_changes_completed", completed)
    yield _gauge("state_changes_pending", changes.pending)
    yield _gauge("state_changes_pending_seconds", changes.pending_ms / 1000)


def _partitions(manager: ReplicaManager, measures: PartitionMeasures) -> Iterator[Metric]:
    yield _gauge("metadata_offset", manager.roles.applied)
    yield _gauge("partitions", measures.replicas)
    yield _gauge("partitions_limit", manager.store.partitions_max or 0)
    yield _gauge("offline_partitions", len(manager.broken) + measures.failed)
    shares = manager.disk_shares
    yield _gauge("disk_reserve_bytes", shares.reserve)
    yield _gauge("disk_short", int(shares.short))
    yield _counter("disk_refusals", shares.refused)
    yield _gauge("full_disk_partitions", len(out_for_room(manager)))
    yield _gauge("leaderless_partitions", measures.leaderless)
    yield _gauge("leaders", measures.leaders)
    yield _gauge("under_replicated_partitions", measures.under_replicated)
    yield _gauge("under_min_isr_partitions", measures.under_min_isr)
    yield _gauge("reduced_to_min_isr_partitions", measures.reduced_to_min_isr)
    yield _gauge("log_size_bytes", measures.log_size_bytes)
    yield _gauge("log_records", measures.log_records)
    yield _gauge("log_segments", measures.log_segments)
    files = manager.store.disk.files
    yield _gauge("log_files_open", len(files))
    yield _gauge("log_files_open_limit", files.files_max)
    yield _counter("log_files_closed_for_others", files.closed_for_others)
    sizes = {(str(size),): float(count) for size, count in sorted(measures.isr_sizes.items())}
    yield TABLE.gauges(PREFIX + "isr_size_partitions", sizes)
    records = {(str(b),): float(lag) for b, lag in sorted(measures.lag_records.items())}
    yield TABLE.gauges(PREFIX + "follower_lag_records", records)
    seconds = {(str(b),): ms / 1000 for b, ms in sorted(measures.lag_ms.items())}
    yield TABLE.gauges(PREFIX + "follower_lag_seconds", seconds)


def _disk(measures: PartitionMeasures) -> Iterator[Metric]:
    """Yield the size and free space of the volume; nothing if it could not be measured."""
    if measures.room is not None:
        yield _gauge("disk_free_bytes", measures.room[0])
        yield _gauge("disk_size_bytes", measures.room[1])


def _topics(manager: ReplicaManager, measures: PartitionMeasures) -> Iterator[Metric]:
    """Yield the traffic and size of topics with replicas here. Only the first
    metric.topic.series.max topics by name are shown, so that the choice is always the same; the
    number of the other ones is a metric, too."""
    most = own_integer(manager.settings.configs, "metric.topic.series.max")
    shown = list(islice(sorted(measures.topics.items()), most))
    yield _gauge("topic_series_left_out", len(measures.topics) - len(shown))
    bytes_in = {(name,): float(topic.bytes_in) for name, topic in shown}
    records_in = {(name,): float(topic.records_in) for name, topic in shown}
    bytes_out = {(name,): float(topic.bytes_out) for name, topic in shown}
    sizes = {(name,): float(topic.log_size_bytes) for name, topic in shown}
    yield TABLE.counters(PREFIX + "topic_bytes_in", bytes_in)
    yield TABLE.counters(PREFIX + "topic_records_in", records_in)
    yield TABLE.counters(PREFIX + "topic_bytes_out", bytes_out)
    yield TABLE.gauges(PREFIX + "topic_log_size_bytes", sizes)


def _gauge(name: str, value: float) -> Metric:
    return TABLE.gauge(PREFIX + name, value)


def _counter(name: str, value: float) -> Metric:
    return TABLE.counter(PREFIX + name, value)
