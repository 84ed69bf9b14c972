"""Metrics of the operator, read from committed images and seen objects at each scrape.

`metric_rows` lists the metrics and `commit_counters` counts commits. A scrape counts the partitions
of a cluster once, and only after a new commit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import NamedTuple, Protocol

from prometheus_client import (
    CollectorRegistry,
    Gauge,
    GCCollector,
    PlatformCollector,
    ProcessCollector,
    generate_latest,
)
from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from plimsoll_core.ids import BrokerId
from plimsoll_core.security import inside
from plimsoll_net import handshakes
from plimsoll_operator.api.cluster_status import BlockedAction
from plimsoll_operator.api.conditions import milliseconds
from plimsoll_operator.controller.controller_term import Controller
from plimsoll_operator.kube.api_calls import ApiCalls
from plimsoll_operator.kube.seen_objects import Key, Objects
from plimsoll_operator.pki.expiry import ListenerCertificate
from plimsoll_operator.reconcile_times import ReconcileCounters, ReconcileTimes
from plimsoll_operator.status.cluster_counts import CountedImage
from plimsoll_operator.status.commit_counters import CommitCounters
from plimsoll_operator.status.gauges import ImageGauges, IsrSizes, object_gauges
from plimsoll_operator.status.metric_rows import PREFIX, TABLE
from plimsoll_operator.status.unclean_recovery_condition import UncleanElections
from plimsoll_process.loop_watch import LoopHolds, loop_metrics

PEER_REASONS = (*inside.REASONS, *handshakes.REASONS)
"""Reasons for which a peer is rejected at the controllers' port, in the TLS handshake or after
it."""

Controllers = list[tuple[Key, Controller]]


class ShownHistory(Protocol):
    @property
    def behind_ms(self) -> int: ...

    @property
    def dropped_rows(self) -> int: ...


class ShownBackup(NamedTuple):
    """Figures of a backup at a scrape. `behind_ms`: age of the oldest metadata that is not stored;
    `stored_ms`, `proven_ms`: wall-clock times, 0 for none; `overdue_ms`: for how long a drill is
    due."""

    behind_ms: int
    stored_ms: int
    bytes: int
    proven_ms: int
    overdue_ms: int


class Shown(Protocol):
    """Source of the metrics: the known clusters and the controllers of this process."""

    @property
    def objects(self) -> Objects: ...

    def known(self) -> Mapping[Key, frozenset[BrokerId]]:
        """Return every known LogCluster, with the ids of its brokers."""

    def controllers(self) -> Controllers: ...

    def blocked(self) -> Iterable[tuple[Key, Iterable[BlockedAction]]]: ...

    def reconciling(self) -> Iterable[tuple[Key, ReconcileTimes]]: ...

    def failures(self) -> Mapping[str, int]: ...

    def met(self, error: Exception) -> None:
        """Count and log a bug in computing one part of the metrics."""

    def histories(self) -> Iterable[tuple[Key, ShownHistory]]: ...

    def backups(self) -> Iterable[tuple[Key, ShownBackup]]:
        """Return the figures of the backup of each cluster led here that has one."""

    def unclean_recoveries(self) -> Iterable[tuple[Key, UncleanElections]]:
        """Return the unclean elections of the last day of each cluster with an active controller in
        this process."""

    def certificates(self) -> Iterable[tuple[Key, Iterable[ListenerCertificate]]]: ...

    def peers_refused(self) -> Mapping[str, int]: ...


class Metrics:
    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.commits = CommitCounters(self.registry)
        self.api_calls = ApiCalls(self.registry)
        self.reconciles = ReconcileCounters(self.registry)
        self._shown: Shown | None = None
        self._counted: dict[Key, CountedImage] = {}
        self._isr_sizes = IsrSizes()
        for of_library in (ProcessCollector, PlatformCollector, GCCollector):
            of_library(registry=self.registry)
        up = TABLE.rows["plimsoll_operator_up"]
        Gauge(up.name, up.text, registry=self.registry).set(1)

    def watch_loop(self, holds: LoopHolds) -> None:
        """Export from now on for how long single callbacks blocked the process's event loop, as
        `holds` measures it."""
        self.registry.register(_Loop(holds))

    def watch(self, shown: Shown) -> None:
        """Compute the metrics of clusters and controllers from `shown` from now on."""
        self._shown = shown
        self.registry.register(_Led(shown, self._counted))

    async def prepare(self) -> None:
        """Count the partitions of the led clusters for the next `render`, while other tasks of the
        event loop run in between. Without this call, `render` counts them itself and blocks the
        loop."""
        for key, controller in self._shown.controllers() if self._shown is not None else ():
            if controller.active:
                await self._counted.setdefault(key, CountedImage()).prepare(controller.image)

    def render(self) -> bytes:
        if self._shown is not None:
            known = dict(self._shown.known())
            self.commits.keep(known)
            led = {key for key, _ in self._shown.controllers()}
            for key in self._counted.keys() - led:
                del self._counted[key]
        return generate_latest(self.registry) + self.isr_sizes()

    def isr_sizes(self) -> bytes:
        """Return the ISR size metric of all clusters with an active controller here, in the
        Prometheus text format. It is rendered apart from the registry."""
        led = [] if self._shown is None else self._shown.controllers()
        active = ((key, controller.image) for key, controller in led if controller.active)
        return self._isr_sizes.text(active)


class _Loop(Collector):
    def __init__(self, holds: LoopHolds) -> None:
        self._holds = holds

    def describe(self) -> Iterator[Metric]:
        return iter(())

    def collect(self) -> Iterator[Metric]:
        yield from loop_metrics(PREFIX, self._holds)


class _Led(Collector):
    """Collector of cluster gauges and of each controller's own counters."""

    def __init__(self, shown: Shown, counted: dict[Key, CountedImage]) -> None:
        self._shown = shown
        self._counted = counted

    def describe(self) -> Iterator[Metric]:
        """Return nothing, so that registering the collector does not compute the metrics."""
        return iter(())

    def collect(self) -> Iterator[Metric]:
        """Yield all metrics of clusters and controllers. A bug in one part is counted and loses
        that part only."""
        shown, led = self._shown, self._shown.controllers()
        parts: tuple[Callable[[], Iterable[Metric]], ...] = (
            lambda: self._clusters(led),
            lambda: self._images(led),
            lambda: object_gauges(shown.objects),
            lambda: [_refused(shown.peers_refused())],
            lambda: _blocked(shown.blocked()),
            lambda: _reconciling(shown.reconciling()),
            lambda: _histories(shown.histories()),
            lambda: _backups(shown.backups()),
            lambda: _unclean(shown.unclean_recoveries()),
            lambda: [_certificates(shown.certificates())],
            lambda: _controllers(led),
            lambda: [_failures(shown.failures())],
        )
        for part in parts:
            try:
                yield from tuple(part())
            except Exception as error:  # noqa: BLE001  # counted, logged and alerted
                shown.met(error)

    def _clusters(self, led: Controllers) -> Iterator[Metric]:
        known = {tuple(key): 1.0 for key in self._shown.known()}
        yield TABLE.gauges("plimsoll_cluster_known", known)
        active = {tuple(key): float(controller.active) for key, controller in led}
        yield TABLE.gauges("plimsoll_controller_active", active)

    def _images(self, led: Controllers) -> Iterator[Metric]:
        gauges = ImageGauges()
        for key, controller in led:
            if controller.active:
                counts = self._counted.setdefault(key, CountedImage()).read(controller.image)
                gauges.add(key, controller, counts)
        yield from gauges.families()


FAILING = (
    "AllocateProducerIds",
    "AlterPartition",
    "FetchMetadata",
    "Forwarded",
    "Frame",
    "Heartbeat",
    "Leading",
    "Look",
    "Metrics",
    "ReconcileAbsentTopics",
    "ReconcileBroker",
    "ReconcileCluster",
    "ReconcileReassignment",
    "ReconcileRebalance",
    "ReconcileRolls",
    "ReconcileTopic",
    "ReconcileUser",
    "ReconcileVerification",
    "ReconcileVerificationSchedule",
    "RegisterBroker",
    "Status",
)
"""Label values of the metric of internal errors. Each is exported at 0 from the start: a series
that first appears with a value shows no increase."""


def _refused(counts: Mapping[str, int]) -> Metric:
    """Return the counter of rejected peers, with a series for every possible reason."""
    values = {(reason,): float(counts.get(reason, 0)) for reason in PEER_REASONS}
    return TABLE.counters("plimsoll_controller_peers_refused", values)


def _failures(counts: Mapping[str, int]) -> Metric:
    values = {(kind,): float(counts.get(kind, 0)) for kind in sorted({*FAILING, *counts})}
    return TABLE.counters("plimsoll_operator_handler_failures", values)


def _blocked(found: Iterable[tuple[Key, Iterable[BlockedAction]]]) -> Iterator[Metric]:
    """Yield the number of blocked actions, and the time at which the first of them began to wait,
    by broker, action and reason."""
    rows: dict[tuple[str, ...], list[int]] = {}
    for key, blocked in found:
        for row in blocked:
            broker = "" if row.broker is None else str(row.broker)
            known = rows.setdefault((*key, broker, row.action, row.reason), [])
            known.append(milliseconds(row.since))
    counts = {labels: float(len(times)) for labels, times in sorted(rows.items())}
    yield TABLE.gauges("plimsoll_blocked_actions", counts)
    since = {labels: min(times) / 1000 for labels, times in sorted(rows.items())}
    yield TABLE.gauges("plimsoll_blocked_action_start_time_seconds", since)


def _histories(found: Iterable[tuple[Key, ShownHistory]]) -> Iterator[Metric]:
    behind = TABLE.gauges("plimsoll_history_behind_seconds")
    dropped = TABLE.counters("plimsoll_history_rows_dropped")
    for key, history in found:
        behind.add_metric(key, history.behind_ms / 1000)
        dropped.add_metric(key, history.dropped_rows)
    yield from (behind, dropped)


def _backups(found: Iterable[tuple[Key, ShownBackup]]) -> Iterator[Metric]:
    behind = TABLE.gauges("plimsoll_backup_behind_seconds")
    stored = TABLE.gauges("plimsoll_backup_stored_time_seconds")
    size = TABLE.gauges("plimsoll_backup_bytes")
    proven = TABLE.gauges("plimsoll_backup_proven_time_seconds")
    overdue = TABLE.gauges("plimsoll_backup_drill_overdue_seconds")
    for key, backup in found:
        behind.add_metric(key, backup.behind_ms / 1000)
        stored.add_metric(key, backup.stored_ms / 1000)
        size.add_metric(key, backup.bytes)
        proven.add_metric(key, backup.proven_ms / 1000)
        overdue.add_metric(key, backup.overdue_ms / 1000)
    yield from (behind, stored, size, proven, overdue)


def _unclean(found: Iterable[tuple[Key, UncleanElections]]) -> Iterator[Metric]:
    partitions = TABLE.gauges("plimsoll_unclean_recovery_partitions")
    last = TABLE.gauges("plimsoll_unclean_recovery_time_seconds")
    for key, known in found:
        partitions.add_metric((*key, "certain"), known.certain)
        partitions.add_metric((*key, "possible"), known.partitions - known.certain)
        last.add_metric(key, known.last_ms / 1000)
    yield from (partitions, last)


def _certificates(found: Iterable[tuple[Key, Iterable[ListenerCertificate]]]) -> Metric:
    ends = TABLE.gauges("plimsoll_certificate_expiry_time_seconds")
    for key, certificates in found:
        for one in certificates:
            ends.add_metric((*key, one.listener, one.kind), one.not_after_ms / 1000)
    return ends


def _reconciling(found: Iterable[tuple[Key, ReconcileTimes]]) -> Iterator[Metric]:
    running = TABLE.gauges("plimsoll_reconcile_running_seconds")
    failing = TABLE.gauges("plimsoll_reconcile_failing_seconds")
    waiting = TABLE.gauges("plimsoll_reconcile_waiting")
    for key, times in found:
        running.add_metric(key, times.longest_running_s)
        failing.add_metric(key, times.longest_failing_s)
        waiting.add_metric(key, times.waiting)
    yield from (running, failing, waiting)


def _controllers(led: Controllers) -> Iterator[Metric]:
    """Yield the metrics of each controller's own registry, labelled by cluster, and the gauges of
    its current state."""
    families: dict[str, Metric] = {}
    now = {
        name: TABLE.gauges(f"plimsoll_{name}")
        for name in (
            "controller_commit_pending_seconds",
            "controller_queued_decisions",
            "controller_client_requests_waiting",
            "controller_take_over_seconds",
            "metadata_log_slots_used",
            "metadata_log_slots",
            "metadata_log_batch_bytes",
            "metadata_log_snapshot_bytes",
        )
    }
    for key, controller in led:
        for metric in controller.stats.registry.collect():
            family = families.setdefault(
                metric.name, Metric(metric.name, metric.documentation, metric.type)
            )
            for sample in metric.samples:
                labels = {"namespace": key[0], "cluster": key[1], **sample.labels}
                family.add_sample(sample.name, labels, sample.value)
        for name, value in _now(controller):
            now[name].add_metric(key, value)
    yield from families.values()
    yield from now.values()


def _now(controller: Controller) -> Iterator[tuple[str, float]]:
    stats, usage = controller.stats, controller.snapshotter.usage
    began_ms = stats.append_began_ms
    pending_ms = 0 if began_ms is None else controller.now_ms - began_ms
    yield "controller_commit_pending_seconds", pending_ms / 1000
    yield "controller_queued_decisions", controller.waiting
    yield "controller_client_requests_waiting", controller.clients_waiting
    yield "controller_take_over_seconds", stats.take_over_ms / 1000
    if usage is not None:
        yield "metadata_log_slots_used", usage.slots_used
        yield "metadata_log_slots", usage.slots
        yield "metadata_log_batch_bytes", usage.batch_bytes
        yield "metadata_log_snapshot_bytes", usage.snapshot_bytes
