"""Metrics of the operator: gauges are read from the committed images at each scrape.

`planned="false"` marks ISR shrinks that no committed grant, drain or move covers: the ones worth an
alert.  Counters of every cluster that was seen begin at 0 in every process, leading or not: a
Prometheus that has a process's zeros sees the first shrink after a failover as an increase.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Protocol

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    ProcessCollector,
    generate_latest,
)
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from plimsoll_core.cluster.model import ClusterImage
from plimsoll_operator.api.cluster_status import BlockedAction
from plimsoll_operator.api.conditions import milliseconds
from plimsoll_operator.controller.controller_term import Controller
from plimsoll_operator.kube.seen_objects import Key
from plimsoll_operator.status.cluster_counts import brokers_status, partitions_status
from plimsoll_operator.status.planned_shrinks import WORDS
from plimsoll_operator.status.record_events import IsrChange
from plimsoll_process.loop_holds import LoopHolds
from plimsoll_process.loop_watch import loop_metrics

PARTITIONS_SHOWN_MAX = 2_000
_CLUSTER = ("namespace", "cluster")
# An expansion is good news, planned or not.
_ISR_SERIES = tuple(
    (change, cause, planned)
    for cause in WORDS
    for change, planned in (("shrink", "true"), ("shrink", "false"), ("expand", "true"))
)

Controllers = list[tuple[Key, Controller]]


class Shown(Protocol):
    """What there is to show: the clusters seen, and the controllers that run here."""

    def known(self) -> Iterable[Key]: ...

    def controllers(self) -> Controllers: ...

    def blocked(self) -> Iterable[tuple[Key, Iterable[BlockedAction]]]: ...

    def failures(self) -> Mapping[str, int]: ...


class Metrics:
    """One registry for the process; `controllers` lists what it leads at the moment."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._shown: Shown | None = None
        self._begun: dict[Key, None] = {}  # whose counters are there
        ProcessCollector(registry=self.registry)
        Gauge("plimsoll_operator_up", "1 while this operator runs", registry=self.registry).set(1)
        self._isr = Counter(
            "plimsoll_isr_changes",
            "Partitions whose ISR shrank or expanded",
            (*_CLUSTER, "change", "cause", "planned"),
            registry=self.registry,
        )

        self._unclean = Counter(
            "plimsoll_unclean_elections",
            "Partitions whose new leader may lack acknowledged records",
            _CLUSTER,
            registry=self.registry,
        )

    def watch_loop(self, holds: LoopHolds) -> None:
        """Show how long the process's event loop was held."""
        self.registry.register(_Loop(holds))

    def watch(self, shown: Shown) -> None:
        """Show the clusters that this process sees, and what it leads."""
        self._shown = shown
        self.registry.register(_Images(shown))

    def begin(self, key: Key) -> None:
        """Every series starts at 0: one that appears with its first event shows no increase."""
        if key in self._begun:
            return
        self._begun[key] = None
        self._unclean.labels(*key)
        for values in _ISR_SERIES:
            self._isr.labels(*key, *values)

    def _forget(self, key: Key) -> None:
        """A cluster that is gone has no series: nothing fires for it."""
        del self._begun[key]
        self._unclean.remove(*key)
        for values in _ISR_SERIES:
            self._isr.remove(*key, *values)

    def isr_changed(self, key: Key, change: IsrChange) -> None:
        self.begin(key)
        for kind, planned, count in (
            ("shrink", "true", change.planned),
            ("shrink", "false", change.shrank - change.planned),
            ("expand", "true", change.grew),
        ):
            if count:
                self._isr.labels(*key, kind, change.cause, planned).inc(count)

    def elected_uncleanly(self, key: Key, partitions: int) -> None:
        self.begin(key)
        self._unclean.labels(*key).inc(partitions)

    def render(self) -> bytes:
        """What Prometheus reads."""
        known = dict.fromkeys(self._shown.known()) if self._shown is not None else self._begun
        for key in known:
            self.begin(key)
        for key in [key for key in self._begun if key not in known]:
            self._forget(key)
        return generate_latest(self.registry)


class _Loop(Collector):
    def __init__(self, holds: LoopHolds) -> None:
        self._holds = holds

    def describe(self) -> Iterator[Metric]:
        return iter(())

    def collect(self) -> Iterator[Metric]:
        yield from loop_metrics("plimsoll_operator_", self._holds)


class _Images(Collector):
    """Gauges from committed images, and each controller's own counters."""

    def __init__(self, shown: Shown) -> None:
        self._shown = shown

    def describe(self) -> Iterator[Metric]:
        """Nothing is asked for at registration."""
        return iter(())

    def collect(self) -> Iterator[Metric]:
        led = self._shown.controllers()
        known = GaugeMetricFamily(
            "plimsoll_cluster_known", "1 for every LogCluster that was seen", labels=_CLUSTER
        )
        for key in self._shown.known():
            known.add_metric(key, 1)
        yield known
        for name, text, value in _GAUGES:
            family = GaugeMetricFamily(f"plimsoll_{name}", text, labels=_CLUSTER)
            for key, controller in led:
                if controller.active:
                    family.add_metric(key, value(controller.image))
            yield family
        active = GaugeMetricFamily(
            "plimsoll_controller_active", "1 where this process leads the cluster", labels=_CLUSTER
        )
        for key, controller in led:
            active.add_metric(key, float(controller.active))
        yield active
        yield _isr_sizes(led)
        yield _failures(self._shown.failures())
        yield from _blocked(self._shown.blocked())
        yield from _own(led)


def _partitions(field: str) -> Callable[[ClusterImage], float]:
    def value(image: ClusterImage) -> float:
        return float(getattr(partitions_status(image.partitions.values()), field))

    return value


def _under_replicated(image: ClusterImage) -> float:
    return sum(len(p.isr) < len(p.replicas) for p in image.partitions.values())


def _pending(image: ClusterImage) -> float:
    return sum(t.pending_deletion is not None for t in image.topics.values())


_GAUGES: tuple[tuple[str, str, Callable[[ClusterImage], float]], ...] = (
    ("controller_epoch", "The controller's term", lambda image: image.controller_epoch),
    ("metadata_offset", "Committed metadata records", lambda image: image.next_offset),
    ("topics", "Topics", lambda image: len(image.topics)),
    ("topics_pending_deletion", "Topics whose object is gone", _pending),
    ("partitions", "Partitions", lambda image: len(image.partitions)),
    ("partitions_offline", "Partitions without a leader", _partitions("offline")),
    ("partitions_under_replicated", "Partitions with less than a full ISR", _under_replicated),
    ("partitions_under_min_isr", "Partitions below min ISR", _partitions("under_min_isr")),
    ("partitions_at_min_isr", "Partitions exactly at min ISR", _partitions("at_min_isr")),
    ("brokers_desired", "Members", lambda image: brokers_status(image).desired),
    ("brokers_ready", "Members that take part", lambda image: brokers_status(image).ready),
    ("brokers_fenced", "Members that are fenced", lambda image: brokers_status(image).fenced),
)


FAILING = (
    "AllocateProducerIds",
    "AlterPartition",
    "FetchMetadata",
    "Forwarded",
    "Frame",
    "Heartbeat",
    "Leading",
    "RegisterBroker",
)
"""Told from the start: an increase from nothing is no increase."""


def _failures(counts: Mapping[str, int]) -> Metric:
    family = CounterMetricFamily(
        "plimsoll_operator_handler_failures",
        "Bugs of the operator that were met, by the request (or Leading: a cluster's own tasks)",
        labels=("request",),
    )
    for kind in sorted({*FAILING, *counts}):
        family.add_metric((kind,), counts.get(kind, 0))
    return family


def _isr_sizes(led: Controllers) -> Metric:
    """Per partition, for clusters small enough to show them all."""
    family = GaugeMetricFamily(
        "plimsoll_partition_isr_size",
        "Members of the ISR",
        labels=(*_CLUSTER, "topic", "partition"),
    )
    for key, controller in led:
        image = controller.image
        if not controller.active or len(image.partitions) > PARTITIONS_SHOWN_MAX:
            continue
        for partition in image.partitions.values():
            topic = image.topics.get(partition.topic_id)
            if topic is not None:
                labels = (*key, topic.name, str(partition.index))
                family.add_metric(labels, len(partition.isr))
    return family


def _blocked(found: Iterable[tuple[Key, Iterable[BlockedAction]]]) -> Iterator[Metric]:
    """Voluntary actions that wait: how many reasons are shown, and since when."""
    labels = (*_CLUSTER, "action", "broker", "reason")
    rows: dict[tuple[str, ...], list[int]] = {}
    for key, blocked in found:
        for row in blocked:
            broker = "" if row.broker is None else str(row.broker)
            known = rows.setdefault((*key, row.action, broker, row.reason), [])
            known.append(milliseconds(row.since))
    actions = GaugeMetricFamily(
        "plimsoll_blocked_actions", "Reasons why a voluntary action waits", labels=labels
    )
    since = GaugeMetricFamily(
        "plimsoll_blocked_action_start_time_seconds",
        "Since when a voluntary action waits, as a Unix time",
        labels=labels,
    )
    for values, times in sorted(rows.items()):
        actions.add_metric(values, len(times))
        since.add_metric(values, min(times) / 1000)
    yield actions
    yield since


def _own(led: Controllers) -> Iterator[Metric]:
    """The controllers' own registries, with the cluster as labels."""
    families: dict[str, Metric] = {}
    for (namespace, cluster), controller in led:
        for metric in controller.stats.registry.collect():
            family = families.setdefault(
                metric.name, Metric(metric.name, metric.documentation, metric.type)
            )
            for sample in metric.samples:
                labels = {"namespace": namespace, "cluster": cluster, **sample.labels}
                family.add_sample(sample.name, labels, sample.value)
    yield from families.values()
