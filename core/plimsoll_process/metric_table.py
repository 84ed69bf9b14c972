"""A table of the metrics of a process: each metric's name, meaning, labels, and number of series.

Collectors build their metrics from a table, and docs/observability.md is generated from the same
rows. Names follow Prometheus' conventions: base units, and `_total` for counters (which the client
library appends).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, TypeVar

from prometheus_client import CollectorRegistry, Counter
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily

Kind = Literal["counter", "gauge", "histogram"]
Labels = TypeVar("Labels", bound=tuple[str, ...])


@dataclass(frozen=True, slots=True)
class MetricRow:
    """One metric: name, kind, help text and labels. `series`: how many series one process can
    export, in words."""

    name: str
    kind: Kind
    text: str
    labels: tuple[str, ...] = ()
    series: str = "1"

    @property
    def shown_name(self) -> str:
        """Return the name under which Prometheus shows the metric, without the suffixes that it
        adds to a histogram."""
        return f"{self.name}_total" if self.kind == "counter" else self.name


class MetricTable:
    """The metrics of a process, by name. Builds the metric families that collectors return, and
    raises if no row has the requested name and kind."""

    def __init__(self, *rows: MetricRow) -> None:
        self.rows = {row.name: row for row in rows}
        assert len(self.rows) == len(rows), "each is stated once"

    def _row(self, name: str, kind: Kind) -> MetricRow:
        row = self.rows[name]
        assert row.kind == kind, name
        return row

    # --- families that a collector fills ----------------------------------------------------------

    def gauge(self, name: str, value: float) -> GaugeMetricFamily:
        row = self._row(name, "gauge")
        assert not row.labels, name
        return GaugeMetricFamily(name, row.text, value=value)

    def counter(self, name: str, value: float) -> CounterMetricFamily:
        row = self._row(name, "counter")
        assert not row.labels, name
        return CounterMetricFamily(name, row.text, value=value)

    def gauges(self, name: str, values: Mapping[Labels, float] | None = None) -> GaugeMetricFamily:
        """Build a gauge with one sample for each key of `values`: the label values, in the order of
        the row's labels."""
        row = self._row(name, "gauge")
        family = GaugeMetricFamily(name, row.text, labels=row.labels)
        for labels, value in (values or {}).items():
            family.add_metric(labels, value)
        return family

    def counters(
        self, name: str, values: Mapping[Labels, float] | None = None
    ) -> CounterMetricFamily:
        row = self._row(name, "counter")
        family = CounterMetricFamily(name, row.text, labels=row.labels)
        for labels, value in (values or {}).items():
            family.add_metric(labels, value)
        return family

    def histograms(self, name: str) -> HistogramMetricFamily:
        row = self._row(name, "histogram")
        return HistogramMetricFamily(name, row.text, labels=row.labels)

    # --- metrics that count for themselves --------------------------------------------------------

    def counting(self, name: str, registry: CollectorRegistry) -> Counter:
        row = self._row(name, "counter")
        return Counter(name, row.text, row.labels, registry=registry)


PROCESS_ROWS = (
    MetricRow("process_cpu_seconds", "counter", "Processor time, user and system"),
    MetricRow("process_resident_memory_bytes", "gauge", "Resident memory"),
    MetricRow("process_virtual_memory_bytes", "gauge", "Virtual memory"),
    MetricRow("process_start_time_seconds", "gauge", "Unix time at which the process started"),
    MetricRow("process_open_fds", "gauge", "Open file descriptors"),
    MetricRow("process_max_fds", "gauge", "Maximum number of open file descriptors"),
    MetricRow("python_info", "gauge", "Version of the Python interpreter",
              ("implementation", "major", "minor", "patchlevel", "version")),
    MetricRow("python_gc_objects_collected", "counter", "Objects that the garbage collector freed",
              ("generation",), "3"),
    MetricRow("python_gc_objects_uncollectable", "counter", "python_gc_objects_uncollectable",
              ("generation",), "3"),
    MetricRow("python_gc_collections", "counter", "python_gc_collections", ("generation",), "3"),
)  # fmt: skip
"""Rows of the metrics that the client library's own collectors export."""


def loop_rows(prefix: str) -> tuple[MetricRow, ...]:
    """Return the metric rows of `loop_watch`. `prefix`: the beginning of their names, including an
    underscore."""
    return (
        MetricRow(f"{prefix}loop_held_seconds", "histogram",
                  "Delay of timers by long turns of the loop", series="13 buckets"),
        MetricRow(f"{prefix}loop_held_seconds_max", "gauge",
                  "Longest turn of the event loop in the last one to two minutes"),
        MetricRow(f"{prefix}loop_held_cpu_seconds_max", "gauge",
                  "Most CPU time of a turn since the start"),
        MetricRow(f"{prefix}loop_holds", "counter",
                  "Turns with over 50 ms of CPU time"),
        MetricRow(f"{prefix}loop_waited_seconds", "counter",
                  "Time in which the event loop could have run and got no processor"),
    )  # fmt: skip
